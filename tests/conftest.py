"""Hypothesis for every folder: no example has a deadline, because the first one may import torch, and because no test
may depend on how fast the machine is."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("ropecheck", deadline=None)
settings.load_profile("ropecheck")

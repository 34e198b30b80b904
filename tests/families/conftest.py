"""Hypothesis without a deadline: the first example of a test may import torch."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("families", deadline=None)
settings.load_profile("families")

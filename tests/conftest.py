"""Hypothesis for every folder: no example has a deadline, because the first one may import torch, and because no test
may depend on how fast the machine is. And one worker for all tests that plant faults in the engine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.adapters_sglang.support import Worker

settings.register_profile("ropecheck", deadline=None)
settings.load_profile("ropecheck")


@pytest.fixture(scope="session")
def planted_worker() -> Iterator[Worker]:
    """The real engine's, with faults and mends by the names of jobs. Tests that use it share an xdist group."""
    pytest.importorskip("sglang")
    started = Worker("tests.adapters_sglang.planted_worker")
    yield started
    assert started.close() == 0

"""Hypothesis for every folder: no example has a deadline, because the first one may import torch, and because no test
may depend on how fast the machine is. And one worker for all tests that plant faults in the engine, one browser for all
that look at pages."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings
from playwright.sync_api import Browser, sync_playwright

from tests.adapters_sglang.support import LOOKAHEAD, UNO, Worker
from tests.report.chromium import chromium

settings.register_profile("ropecheck", deadline=None)
settings.load_profile("ropecheck")


@pytest.fixture(scope="session")
def planted_worker() -> Iterator[Worker]:
    """The real engine's, with faults and mends by the names of jobs. Tests that use it share an xdist group."""
    pytest.importorskip("sglang")
    started = Worker("tests.adapters_sglang.planted_worker", ROPECHECK_MODE_FILES=f"{LOOKAHEAD}{os.pathsep}{UNO}")
    yield started
    assert started.close() == 0


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One for all tests of pages; they share an xdist group, since Playwright starts once a process."""
    path = chromium()
    if not path:
        pytest.fail("no Chromium to read the report with: run requirements/browser.sh, or set ROPECHECK_CHROMIUM")
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield made
        made.close()

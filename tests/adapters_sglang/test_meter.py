"""Whose exception it was: the engine's, or the suite's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ropecheck.adapters.sglang import meter

torch = pytest.importorskip("torch")

from ropecheck.adapters.sglang import cost, cuda_cost  # noqa: E402 - they import torch

ENGINE = "/somewhere/sglang/srt/engine.py"
MISMATCH = "lambda: torch.ones(2, device='meta') + torch.ones(3, device='meta')"


def engine(source: str) -> Callable[[], Any]:
    """A function whose file is the engine's."""
    made: Callable[[], Any] = eval(compile(source, ENGINE, "eval"), {"torch": torch})
    return made


def stage(function: Callable[[], Any]) -> str:
    """To whom an exception of the function is put down while copies are counted."""
    lines: list[str] = []
    try:
        with cost._Functions(lines), cost._Operations(lines):
            function()
    except Exception as error:
        return meter.raised(error).stage
    return "none"


def test_an_engines_exception_inside_a_count_is_the_engines() -> None:
    """Every operation of the engine passes the hooks that count, which are the adapter's."""
    assert stage(engine(MISMATCH)) == "engine"
    assert stage(engine("lambda: torch.ones(2) + torch.ones(3)")) == "engine"
    assert stage(engine("lambda: torch.tensor('x', device='meta')")) == "engine"


def test_a_hooks_own_exception_is_the_suites(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> str:
        raise ValueError("in the hook")

    monkeypatch.setattr(cost, "engine_line", broken)
    assert stage(engine("lambda: torch.tensor([1], device='meta')")) == "adapter"


def test_an_operation_of_the_adapters_own_is_the_suites() -> None:
    assert stage(lambda: cost.meta_positions("", torch.ones(1), None, 3)) == "adapter"


def test_a_finder_of_copies_on_a_gpu_looks_at_what_it_runs() -> None:
    finder = cuda_cost._Finder()
    made = finder(engine("lambda one, *, other: torch.tensor([one, other])"), (1,), {"other": 2})
    assert made.tolist() == [1, 2] and finder.to_device == finder.to_host == []

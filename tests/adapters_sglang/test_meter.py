"""Whose exception it was: the engine's, or the suite's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ropecheck.adapters.protocol import BROKEN
from ropecheck.adapters.sglang import meter, stand_ins

torch = pytest.importorskip("torch")

from ropecheck.adapters.sglang import cost, cuda_cost  # noqa: E402 - they import torch

ENGINE = "/somewhere/sglang/srt/engine.py"
MISMATCH = "lambda: torch.ones(2, device='meta') + torch.ones(3, device='meta')"


def engine(source: str, **names: Any) -> Callable[..., Any]:
    """A function whose file is the engine's."""
    made: Callable[..., Any] = eval(compile(source, ENGINE, "eval"), {"torch": torch, **names})
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


# ---------------------------------------------------------------- the clock, and whose a frame is


def test_time_inside_the_engine_adds_up_also_when_it_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter((10, 13, 20, 25))
    monkeypatch.setattr(meter, "perf_counter_ns", lambda: next(times))
    clock = meter.Meter()
    assert (clock.ns, clock.forwards, clock.probe) == (0, 0, None)
    assert clock.call(divmod, 7, 2) == (3, 1) and clock.ns == 3
    with pytest.raises(ZeroDivisionError):
        clock.call(divmod, 7, 0)
    assert clock.ns == 8
    clock.probe = lambda function, args, kwargs: (function, args, kwargs)
    assert clock.call(divmod, 7, two=2) == (divmod, (7,), {"two": 2}) and clock.ns == 8


@pytest.mark.parametrize(
    ("path", "inside"),
    [
        ("/a/sglang/srt/b.py", "sglang/srt/b.py"),
        ("/a/sglang/kernels/b.py", "sglang/kernels/b.py"),
        ("/a/sglang/jit_kernel/b.py", "sglang/jit_kernel/b.py"),
        ("/sglang/srt/c/sglang/srt/b.py", "sglang/srt/b.py"),
        ("/a/sglang/lang/b.py", None),
        ("/a/adapters/sglang/srt/b.py", None),
        ("/a/torch/b.py", None),
    ],
)
def test_files_of_the_engine(path: str, inside: str | None) -> None:
    assert meter.engine_frame(path) == inside


def test_the_innermost_line_of_the_engine() -> None:
    """Of those that called."""
    assert meter.engine_line() == ""
    inner = engine("lambda: line()", line=lambda: meter.engine_line())
    outer = eval(compile("\nlambda: inner()", "/somewhere/sglang/srt/outer.py", "eval"), {"inner": inner})
    assert outer() == "sglang/srt/engine.py:1 <lambda>"


class AcceleratorError(RuntimeError):
    pass


class OutOfMemoryError(RuntimeError):
    pass


@pytest.mark.parametrize(
    ("error", "stage"),
    [
        (RuntimeError("plain"), "adapter"),
        (AcceleratorError("x"), "engine"),
        (RuntimeError(f"then: {BROKEN[0]}"), "engine"),
        (OutOfMemoryError("x"), "device"),
        (OutOfMemoryError(BROKEN[-1]), "device"),
    ],
)
def test_a_device_that_fails_is_not_whose_call_it_was(error: Exception, stage: str) -> None:
    found = meter.raised(error)
    assert (found.stage, found.type, found.message, found.where) == (stage, type(error).__name__, str(error), "")
    broken = isinstance(error, AcceleratorError) or any(word in str(error) for word in BROKEN)
    assert meter.is_broken_context(error) == broken


def failed(function: Callable[[], Any]) -> Any:
    try:
        function()
    except Exception as error:
        return meter.raised(error)
    raise AssertionError


def test_an_exception_is_told_with_its_innermost_engine_line() -> None:
    raising = engine("lambda: [].pop()")
    found = failed(lambda: raising())
    assert (found.stage, found.type, found.where) == ("engine", "IndexError", "sglang/srt/engine.py:1 <lambda>")
    found = failed(engine("lambda: back()", back=lambda: cost.meta_positions("", None, None, 3)))
    assert (found.stage, found.where) == ("adapter", "sglang/srt/engine.py:1 <lambda>")
    assert len(failed(engine("lambda: {}['x' * 5000]")).message) == 2000


def test_what_a_stand_in_lacks_is_the_suites() -> None:
    for thing, stage in ((stand_ins.StandIn(), "adapter"), (object(), "engine")):
        assert failed(engine("lambda: thing.nothing", thing=thing)).stage == stage
    assert failed(engine("lambda: thing.own_plan(1, 2)", thing=stand_ins.Translator())).stage == "adapter"

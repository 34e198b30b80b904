"""How long the engine ran, and where it failed.

| spec field | adapter field | engine field |
| --- | --- | --- |
| - | JobAnswer.engine_ns | time inside engine constructors and functions |
| - | JobAnswer.forwards | calls of `ForwardBatch.init_new` that returned |
| - | Raised | the exception, its innermost engine frame |

Nothing is faked here.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from time import perf_counter_ns
from types import TracebackType
from typing import Any

from ropecheck.adapters.protocol import BROKEN, Raised
from ropecheck.adapters.sglang.stand_ins import is_stand_in, is_wrong_call

ENGINE_PACKAGES = ("/sglang/srt/", "/sglang/kernels/", "/sglang/jit_kernel/")
ADAPTER = "/adapters/sglang/"


class Meter:
    """Adds up time spent inside the engine. The suite's own work called back from there is taken off again."""

    def __init__(self) -> None:
        self.ns = 0
        self.forwards = 0
        self.probe: Callable[[Callable[..., Any], Any, Any], Any] | None = None
        """Runs the engine functions instead, while something is measured."""

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call an engine function and count its time, also when it raises."""
        if self.probe is not None:
            return self.probe(function, args, kwargs)
        start = perf_counter_ns()
        try:
            return function(*args, **kwargs)
        finally:
            self.ns += perf_counter_ns() - start


def passed_on(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """What a hook of torch's does with an operation that it only looks at. An exception from below is the caller's."""
    return function(*args, **(kwargs or {}))


def engine_frame(path: str) -> str | None:
    """The path from "sglang/" on when the file belongs to the engine, else None."""
    if ADAPTER in path:
        return None
    for package in ENGINE_PACKAGES:
        index = path.rfind(package)
        if index >= 0:
            return path[index + 1 :]
    return None


def engine_line() -> str:
    """The innermost engine frame on the caller's stack, "sglang/...py:LINE function"; "" for none."""
    frame = sys._getframe(1).f_back
    while frame is not None:
        path = engine_frame(frame.f_code.co_filename)
        if path is not None:
            return f"{path}:{frame.f_lineno} {frame.f_code.co_name}"
        frame = frame.f_back
    return ""


def is_broken_context(error: BaseException) -> bool:
    """Whether a kernel has failed, after which every call of this process fails."""
    return type(error).__name__ == "AcceleratorError" or any(word in str(error) for word in BROKEN)


def is_passed_on(frame: traceback.FrameSummary) -> bool:
    """Whether the frame is `passed_on`'s; the one above it is the hook's."""
    return frame.name == passed_on.__name__ and frame.filename == passed_on.__code__.co_filename


def raised(error: BaseException) -> Raised:
    """Describe an exception. Its stage is "engine" when the innermost frame that belongs to the engine or to this
    adapter is the engine's, unless a stand-in lacked what was asked of it.

    Frames of libraries below (torch, numpy) belong to whoever called them, and so do hooks of torch's that only look.
    """
    where = ""
    stage = "adapter"
    trace: TracebackType | None = error.__traceback__
    frames = traceback.extract_tb(trace)
    passing = {number for number, frame in enumerate(frames) if is_passed_on(frame)}
    for number, frame in enumerate(frames):
        if number in passing or number + 1 in passing:
            continue
        engine = engine_frame(frame.filename)
        if engine is not None:
            where = f"{engine}:{frame.lineno} {frame.name}"
            stage = "engine"
        elif ADAPTER in frame.filename:
            stage = "adapter"
    missing = isinstance(error, AttributeError) and is_stand_in(error.obj)
    if missing or is_wrong_call(error):
        stage = "adapter"
    if type(error).__name__ == "OutOfMemoryError":
        stage = "device"
    elif is_broken_context(error):
        stage = "engine"  # asynchronous: whoever meets it first is not who did it, and the suite launches no kernels
    return Raised(stage, type(error).__name__, str(error)[:2000], where)

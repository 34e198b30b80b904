"""One scheduler, recorded, monitored or left alone from wave to wave of requests, and timed by itself.

A request `bench.KIND.WAVE.n.` says which. Waves do not overlap, so each kind sees all that it must. A wave named "sync"
runs under torch's counter of synchronisations.
"""

from __future__ import annotations

import functools
import json
import os
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from ropecheck import record
from ropecheck.adapters.sglang.recorder import hook

FILE, VARIABLE = "waves.jsonl", "BENCH_FOLDER"
APART = 8
"""Cores that a machine must have for the scheduler to get half as many for itself."""


def start() -> None:
    """Once per process."""
    hook.install(imported)


def imported(module: ModuleType) -> None:
    """The engine's scheduler is there, but no object of it."""
    from ropecheck.adapters.sglang.recorder import watch

    folder = Path(os.environ[VARIABLE])
    opened: list[Any] = []

    def open_sinks(header: Any) -> Any:
        opened.append(header)
        os.environ[record.FOLDER] = str(folder)
        return record._monitor(header, folder)

    watch.install(module, open_sinks)
    waves: list[Waves] = []
    scheduler = module.Scheduler

    def built(inner: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> None:
        inner(self, *args, **kwargs)
        monitor = watch._active[0]
        log = watch.Recorder(self, record._open(opened[0]))
        cores = os.cpu_count() or 1
        for task in Path("/proc/self/task").glob("*") if cores >= APART else ():
            os.sched_setaffinity(int(task.name), range(cores - APART // 2, cores))
        recorders = {"off": [], "control": [], "log": [log], "monitor": [monitor]}
        waves.append(Waves(watch._active, recorders, folder / FILE))

    def arrives(inner: Callable[..., Any], self: Any, message: Any, *args: Any) -> Any:
        if message.rid.startswith("bench."):  # others ask for the server's health
            _, kind, wave, *_ = message.rid.split(".")
            waves[0].begin(kind, wave)
        return inner(self, message, *args)

    def runs(inner: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
        waves[0].stamps.append(time.perf_counter_ns())
        return inner(self, *args, **kwargs)

    def rests(inner: Callable[..., Any], self: Any, *args: Any) -> Any:
        result = inner(self, *args)
        if waves[0].stamps and self.is_fully_idle():
            waves[0].end()
        return result

    around(scheduler, "__init__", built)
    around(scheduler, "handle_generate_request", arrives)
    around(scheduler, "run_batch", runs)
    around(scheduler, "on_idle", rests)


def around(owner: Any, name: str, outer: Callable[..., Any]) -> None:
    """outer(inner, self, ..) in the method's place."""
    inner = owner.__dict__[name]

    @functools.wraps(inner)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return outer(inner, self, *args, **kwargs)

    setattr(owner, name, method)


class Waves:
    """Which recorder there is, and how long each wave took."""

    def __init__(self, active: list[Any], recorders: dict[str, list[Any]], file: Path) -> None:
        self._active, self._recorders, self._file = active, recorders, file
        self._kind = self._wave = ""
        self.stamps: list[int] = []
        """Nanoseconds at which each forward of the wave was launched."""
        self._syncs: list[str] = []
        active[:] = []

    def begin(self, kind: str, wave: str) -> None:
        """A request of that wave arrives."""
        import torch

        if (kind, wave) == (self._kind, self._wave):
            return
        self._kind, self._wave, self.stamps = kind, wave, []
        self._active[:] = self._recorders[kind]
        self._syncs.clear()
        if wave == "sync" and torch.cuda.is_available():
            warnings.simplefilter("always")
            warnings.showwarning = lambda message, *_, **__: self._syncs.append(str(message))
            torch.cuda.set_sync_debug_mode("warn")

    def end(self) -> None:
        """The wave is over."""
        import torch

        syncs = sum("synchroniz" in one for one in self._syncs)
        if self._wave == "sync" and torch.cuda.is_available():
            torch.cuda.set_sync_debug_mode("default")
        steps = [after - before for before, after in zip(self.stamps, self.stamps[1:], strict=False)]
        self.stamps = []
        if not steps:
            return
        about = {"kind": self._kind, "wave": self._wave, "steps": len(steps) + 1, "seconds": sum(steps) / 1e9}
        about |= {"step_us": statistics.median(steps) / 1e3, "syncs": syncs}
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(about) + "\n")

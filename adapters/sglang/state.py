"""All that one job may see: the engine's requests and sessions, the graph buffers, the clock. Dropped after the job.

| spec field | adapter field | engine field |
| --- | --- | --- |
| request | `JobState.reqs[n]` | `Req`, rid "r<n>" |
| session | `JobState.sessions[n]` | `Session`, id "s<n>" |

Nothing is faked here.
"""

from __future__ import annotations

import importlib
import os
from functools import lru_cache
from time import perf_counter_ns
from typing import Any

from adapters.protocol import Cost, Forward, Job, Table
from adapters.sglang.capabilities import Engine
from adapters.sglang.meter import Meter
from adapters.sglang.wire import table

COMPARATOR = "ROPECHECK_COMPARATOR"
"""In the worker's environment."""


class Absent(Exception):
    """This release lacks what the step needs; the message says what."""


class NeverMade(LookupError):
    """A step names a request that no earlier step made."""


class JobState:
    """One job's objects. device: a torch device name."""

    def __init__(self, engine: Engine, job: Job) -> None:
        self.engine = engine
        self.device = job.device
        self.meter = Meter()
        self.reqs: dict[int, Any] = {}
        self.sessions: dict[int, Any] = {}
        self.considered: set[int] = set()
        """Requests whose next window's `init_next_round_input` has already run, by a Schedule step."""
        self.absent: dict[int, str] = {}
        """Requests that this release cannot make, and why."""
        self.items = 0
        """Media items made so far: their number is their hash."""
        self.registry: Any = None
        self.graph_runners: dict[tuple[str, int, int], Any] = {}
        """Runners by (class, tokens per request, draft steps), with the static buffers that they own."""
        self.widest = widest(job)
        self.compare_ns = 0

    def table(self, label: str, forward: Forward, batch: Any) -> Table:
        """The tables that a forward batch holds now, or that they were compared where they are."""
        if forward.expect and (compare := comparator()) is not None:
            start = perf_counter_ns()
            right = compare(forward, label, batch.positions, batch.mrope_positions)
            self.compare_ns += perf_counter_ns() - start
            if right:
                return Table(label, None, None, True)
        return table(label, batch)

    def req(self, number: int) -> Any:
        """The engine's request. Raises Absent when this release cannot make it, NeverMade when its step failed."""
        if number in self.reqs:
            return self.reqs[number]
        if number in self.absent:
            raise Absent(self.absent[number])
        raise NeverMade(f"request {number} does not exist: the step that makes it failed or is missing")


@lru_cache(maxsize=1)
def comparator() -> Any:
    """The function that the environment names as "module:function", or None: the suite's, not the adapter's."""
    module, _, name = os.environ.get(COMPARATOR, "").partition(":")
    return getattr(importlib.import_module(module), name) if module else None


def widest(job: Job) -> tuple[int, int]:
    """The largest padded (batch, tokens) of the job's graph paddings: its static buffers' size."""
    batch = tokens = 1
    for step in job.steps:
        forward = step.forward if isinstance(step, Cost) else step
        if isinstance(forward, Forward) and forward.padding is not None:
            batch = max(batch, forward.padding.batch)
            tokens = max(tokens, forward.padding.tokens)
    return batch, tokens

"""All that one job may see: the engine's requests and sessions, the graph buffers, the clock. Dropped after the job.

| spec field | adapter field | engine field |
| --- | --- | --- |
| request | `JobState.reqs[n]` | `Req`, rid "r<n>" |
| session | `JobState.sessions[n]` | `Session`, id "s<n>" |

Nothing is faked here.
"""

from __future__ import annotations

from time import perf_counter_ns
from typing import Any

import msgspec

from ropecheck.adapters.protocol import BuildForward, Cost, Job, Result, TablePair, TablesAnswer
from ropecheck.adapters.sglang.capabilities import Absent, Engine
from ropecheck.adapters.sglang.compare import Comparator
from ropecheck.adapters.sglang.meter import Meter, raised
from ropecheck.adapters.sglang.wire import pack


class NeverMade(LookupError):
    """A step names a request that no earlier step made."""


class JobState:
    """One job's objects. device: a torch device name."""

    def __init__(self, engine: Engine, job: Job) -> None:
        self.engine = engine
        self.device = job.device
        self.traced = job.trace
        self.meter = Meter()
        self.reqs: dict[int, Any] = {}
        self.sessions: dict[int, Any] = {}
        self.considered: set[int] = set()
        """Requests whose next window's `init_next_round_input` has already run, by a Schedule step."""
        self.running: set[int] = set()
        """Requests that are out of the waiting queue."""
        self.absent: dict[int, str] = {}
        """Requests that this release cannot make, and why."""
        self.items = 0
        """Media items made so far: their number is their hash."""
        self.registry: Any = None
        self.graph_runners: dict[tuple[str, int, int], Any] = {}
        """Runners by (class, tokens per request, draft steps), with the static buffers that they own."""
        self.rotaries: dict[str, Any] = {}
        """Rotary embeddings by the arguments that made them."""
        self.widest = widest(job)
        self.compare_ns = 0
        self._comparator = Comparator()
        self._unsettled: list[TablePair] = []

    def table(self, label: str, forward: BuildForward, holder: Any) -> TablePair:
        """The tables that a forward batch, or a runner's buffers, hold now (`positions`, `mrope_positions`); where they
        are compared on the device, an empty one in their place until `settle`."""
        positions, rows = holder.positions, holder.mrope_positions
        right = next((table for table in forward.expect if table.label == label), None)
        if right is None:
            return TablePair(label, pack(positions), pack(rows))
        start = perf_counter_ns()
        added = self._comparator.add(right, positions, rows)
        self.compare_ns += perf_counter_ns() - start
        if not added:
            return TablePair(label, pack(positions), pack(rows))
        self._unsettled.append(empty := TablePair(label, None, None))
        return empty

    def settle(self, results: list[Result]) -> None:
        """Put what the comparisons came to in place of the empty tables. Waits for the device; when that fails, all
        results with an empty table raise. results: changed in place."""
        if not self._unsettled:
            return
        unsettled, self._unsettled = {id(empty): empty for empty in self._unsettled}, []
        start = perf_counter_ns()
        try:
            answers = dict(zip(unsettled, self._comparator.settle(), strict=True))
        except Exception as error:
            failed = raised(error)
            for number, result in enumerate(results):
                if isinstance(result, TablesAnswer) and any(id(one) in unsettled for one in result.tables):
                    results[number] = failed
            return
        finally:
            self.compare_ns += perf_counter_ns() - start
        for number, result in enumerate(results):
            if isinstance(result, TablesAnswer) and any(id(one) in unsettled for one in result.tables):
                tables = (settled(one, answers[id(one)]) if id(one) in answers else one for one in result.tables)
                results[number] = msgspec.structs.replace(result, tables=tuple(tables))

    def req(self, number: int) -> Any:
        """The engine's request. Raises Absent when this release cannot make it, NeverMade when its step failed."""
        if number in self.reqs:
            return self.reqs[number]
        if number in self.absent:
            raise Absent(self.absent[number])
        raise NeverMade(f"request {number} does not exist: the step that makes it failed or is missing")


def settled(empty: TablePair, wrong: tuple[Any, Any] | None) -> TablePair:
    """The table that belongs in an empty one's place. wrong: positions and rows, None when they are right."""
    if wrong is None:
        return TablePair(empty.label, None, None, True)
    return TablePair(empty.label, pack(wrong[0]), pack(wrong[1]))


def widest(job: Job) -> tuple[int, int]:
    """The largest padded (batch, tokens) of the job's graph paddings: its static buffers' size."""
    batch = tokens = 1
    for step in job.steps:
        forward = step.forward if isinstance(step, Cost) else step
        if isinstance(forward, BuildForward) and forward.padding is not None:
            batch = max(batch, forward.padding.batch)
            tokens = max(tokens, forward.padding.tokens)
    return batch, tokens

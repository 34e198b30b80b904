"""One job: its steps in order, one result each; an exception ends its step and no other.

| spec field | adapter field | engine field |
| --- | --- | --- |
| operation | Job.steps[i] | the call in `HANDLERS` |
| verdict's input | JobAnswer.results[i] | - |

Faked: what the imported modules list; `FAKED` joins them.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch

from ropecheck.adapters import protocol
from ropecheck.adapters.sglang import (
    batches,
    boot,
    cost,
    forwards,
    fused_rotary,
    graph_runners,
    kernels,
    requests,
    rotary,
    sessions,
    speculation,
    stand_ins,
    trace,
)
from ropecheck.adapters.sglang.capabilities import Absent, Engine, LostCapability
from ropecheck.adapters.sglang.meter import raised
from ropecheck.adapters.sglang.scheduler import FAKED as SCHEDULER_FAKED
from ropecheck.adapters.sglang.scheduler import hosts
from ropecheck.adapters.sglang.state import JobState
from ropecheck.adapters.sglang_families import handler as families
from ropecheck.adapters.sglang_routes import routes, sources

FAKED: tuple[str, ...] = (
    *boot.FAKED,
    *stand_ins.FAKED,
    *requests.FAKED,
    *sessions.FAKED,
    *batches.FAKED,
    *speculation.FAKED,
    *kernels.FAKED,
    *graph_runners.FAKED,
    *cost.FAKED,
    *rotary.FAKED,
    *fused_rotary.FAKED,
    *families.FAKED,
    *routes.FAKED,
    *SCHEDULER_FAKED,
)


def prompt_table(state: JobState, step: protocol.PromptTable) -> protocol.Result:
    """A prompt-table builder's answer, on the host, where the processors call it. No forward is built."""
    if step.builder.startswith(routes.PREFIX):
        return routes.drive(step, state.meter.call)
    return families.prompt_table(step, call=state.meter.call)


def play(state: JobState, step: protocol.PlayStep) -> Any:
    """A client's script on the real scheduler, in a process of its own."""
    return state.meter.call(hosts.play, step, state.traced)


HANDLERS: dict[type, Callable[[JobState, Any], Any]] = {
    protocol.SubmitStep: requests.submit,
    protocol.Open: sessions.open_session,
    protocol.TurnStep: sessions.turn,
    protocol.Generate: requests.generate,
    protocol.Finish: requests.finish,
    protocol.Abort: requests.abort,
    protocol.Retract: requests.retract,
    protocol.Schedule: requests.schedule,
    protocol.BuildForward: forwards.run,
    protocol.Observe: requests.observe,
    protocol.Cost: cost.cost,
    protocol.Rotary: rotary.rotate,
    protocol.PromptTable: prompt_table,
    protocol.PlayStep: play,
}

_DONE = protocol.Done()


def answer(engine: Engine, job: protocol.Job, device: str = "cpu") -> protocol.JobAnswer:
    """Run a job from nothing to its answer. Never raises for what a step does. device: the worker's own."""
    if job.device not in ("cpu", device):
        refused = protocol.NotOfferedAnswer(f"this worker was started for {device}, the job wants {job.device}")
        return protocol.JobAnswer(job.id, (refused,) * len(job.steps), 0, 0)
    state = JobState(engine, job)
    results: list[protocol.Result] = []
    traced: list[tuple[str, ...]] = []
    watched = watch() if watching(job) else contextlib.nullcontext()
    for step in job.steps:
        if job.trace:
            with trace.functions() as ran:
                results.append(result(state, step))
            last = results[-1]
            traced.append((*ran, *(last.ran if isinstance(last, protocol.Played) else ())))
        else:
            with contextlib.nullcontext() if isinstance(step, READERS) else watched:
                results.append(result(state, step))
        if one_by_one():
            state.settle(results)
    if job.device != "cpu" and results:
        # A kernel that fails must fail in its own job, not in the next.
        try:
            torch.cuda.synchronize()
        except Exception as error:
            results[-1] = raised(error)
    state.settle(results)
    return protocol.JobAnswer(
        job.id,
        tuple(results),
        state.meter.ns,
        state.meter.forwards,
        state.compare_ns,
        tuple(traced),
        routes=watch().fresh(),
    )


READERS = (protocol.BuildForward, protocol.Rotary)
"""Steps that read tables and make none: on a CPU their interpreted kernels call Python functions by the million."""

WATCHED_JOBS = 600
"""A worker's first jobs, which go through every kind of step; to be looked on costs time."""

_JOBS = itertools.count()


def watching(job: protocol.Job) -> bool:
    """Whether the job's steps are looked on: prompt tables always, other jobs while they are new."""
    return next(_JOBS) < WATCHED_JOBS or any(isinstance(step, protocol.PromptTable) for step in job.steps)


@lru_cache(maxsize=1)
def watch() -> sources.Watch:
    """What is known of the engine's routes and of those that ran in this process."""
    return sources.Watch()


@lru_cache(maxsize=1)
def one_by_one() -> bool:
    """Whether kernels run one after the other, so that a failing one fails in its own step: then tables are settled
    there too, before a later step breaks the device."""
    return os.environ.get("CUDA_LAUNCH_BLOCKING") == "1"


def result(state: JobState, step: protocol.Step) -> protocol.Result:
    """One step's result."""
    try:
        outcome: protocol.Result | None = HANDLERS[type(step)](state, step)
    except Absent as absent:
        return protocol.NotOfferedAnswer(str(absent))
    except LostCapability as lost:
        return protocol.Raised("engine", "Lost", str(lost), "")
    except Exception as error:
        return raised(error)
    return _DONE if outcome is None else outcome

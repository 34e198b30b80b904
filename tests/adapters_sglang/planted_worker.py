"""The real worker over the real engine, with a fault planted in the engine for the length of a job.

Job "plant:NAME" runs with the fault of that name, job "fault:NAME" with one of `engine_faults`, job "patch:NAME" with
one of `scheduler.faults`, and job "mend:CAUSE" with that known bug mended. Job "one by one:" runs as where kernels do.

The faults lie where an adapter that looked away would report nothing.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from ropecheck.adapters import protocol
from ropecheck.adapters.sglang import jobs, mends, worker
from ropecheck.adapters.sglang.scheduler import faults
from tests.adapters_sglang import family_faults
from tests.adapters_sglang.engine_faults import FAULTS, MASKS, OTHERS
from tests.live import cut_picture

Change = Callable[[Any, Any], None]
"""(the batch that the constructor is given, the model runner)."""


def in_place(name: str) -> Change:
    """An input is written to; the values stay as they are."""

    def change(batch: Any, _: Any) -> None:
        tensor = getattr(batch, name)
        if tensor is not None:
            tensor.add_(0)

    return change


def other_list(name: str) -> Change:
    """An input is replaced by an equal list."""
    return lambda batch, _: setattr(batch, name, list(getattr(batch, name)))


def media_written(batch: Any, _: Any) -> None:
    for inputs in batch.multimodal_inputs:
        if inputs is not None:
            inputs.mrope_positions.add_(0)


def media_replaced(batch: Any, _: Any) -> None:
    for inputs in batch.multimodal_inputs:
        if inputs is not None:
            inputs.mrope_position_delta = inputs.mrope_position_delta.clone()


def lengths_gone(batch: Any, _: Any) -> None:
    """The engine's own code raises."""
    batch.seq_lens = batch.seq_lens_cpu = None


CHANGES: dict[str, Change] = {
    "seq_lens written": in_place("seq_lens"),
    "seq_lens_cpu written": in_place("seq_lens_cpu"),
    "inputs replaced": other_list("multimodal_inputs"),
    "reqs replaced": other_list("reqs"),
    "media written": media_written,
    "media replaced": media_replaced,
    "lengths gone": lengths_gone,
    "the device read": lambda batch, _: batch.seq_lens.sum().item(),
    "a stand-in called wrongly": lambda _, runner: runner.kv_index_translator.own_plan(1, 2, 3),
    "a stand-in asked for more": lambda _, runner: runner.no_such_part,
}


@contextlib.contextmanager
def planted(engine: Any, name: str) -> Iterator[None]:
    """The fault is in the engine."""
    if name == "a shared pool":
        original = engine.build_decode_registry

        def build(*args: Any, share_pool: bool = True, **kwargs: Any) -> Any:
            if share_pool:
                raise RuntimeError("the buffers of the whole process")
            return original(*args, share_pool=share_pool, **kwargs)

        engine.build_decode_registry = build
        try:
            yield
        finally:
            engine.build_decode_registry = original
        return
    if name == "no streaming sessions":
        takes, engine.session_takes = engine.session_takes, frozenset()
        try:
            yield
        finally:
            engine.session_takes = takes
        return
    cls, change = engine.ForwardBatch, CHANGES[name]
    held, constructor = cls.__dict__["init_new"], cls.init_new

    def init_new(batch: Any, runner: Any, **kwargs: Any) -> Any:
        change(batch, runner)
        return constructor(batch, runner, **kwargs)

    cls.init_new = staticmethod(init_new)
    try:
        yield
    finally:
        cls.init_new = held


@contextlib.contextmanager
def patched(name: str) -> Iterator[None]:
    """The text of the engine is changed."""
    owner, attribute, held = faults.apply(faults.FAULTS[name])
    try:
        yield
    finally:
        setattr(owner, attribute, held)


@contextlib.contextmanager
def one_by_one() -> Iterator[None]:
    """Tables are settled at each step."""
    os.environ["CUDA_LAUNCH_BLOCKING"] = "1"
    jobs.one_by_one.cache_clear()
    try:
        assert jobs.one_by_one()
        yield
    finally:
        del os.environ["CUDA_LAUNCH_BLOCKING"]
        jobs.one_by_one.cache_clear()


def changed(engine: Any, kind: str, name: str) -> contextlib.AbstractContextManager[None]:
    """The engine as the job's id wants it."""
    if kind == "plant":
        return planted(engine, name)
    if kind == "one by one":
        return one_by_one()
    if kind == "patch":
        return patched(name)
    masks = {name: fault for name, (_, fault) in (*MASKS.items(), *family_faults.FAULTS.items())}
    chosen = {"mend": mends.MENDS, "fault": FAULTS | OTHERS | masks}.get(kind)
    return contextlib.nullcontext() if chosen is None else mends.changed(chosen[name])


def main() -> int:
    answer = jobs.answer

    def with_fault(engine: Any, job: protocol.Job, device: str = "cpu") -> protocol.JobAnswer:
        kind, _, name = job.id.partition(":")
        if kind in ("cut", "turned"):
            return cut_picture.answer(job)
        with changed(engine, kind, name):
            return answer(engine, job, device)

    jobs.answer = with_fault
    return worker.main()


if __name__ == "__main__":
    sys.exit(main())

"""Planted faults in the paths that a GPU takes, to see that the suite catches them there: ROPECHECK_FAULT names one.

| spec field | adapter field | engine field |
| --- | --- | --- |
| - | the worker's environment | the engine function that a fault wraps |

Nothing is faked here unless the variable is set; then the worker says so in Hello.faked.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch

from ropecheck.adapters.sglang.boot import optional
from ropecheck.adapters.sglang.capabilities import Engine
from ropecheck.adapters.sglang.kernels import COMMON

VARIABLE = "ROPECHECK_FAULT"

Change = Callable[[Any, Any], None]
"""(forward batch, batch it was built from) -> changes the forward batch."""


def wrap_init_new(engine: Engine, mode: str, change: Change) -> None:
    """Let the batch constructor's result of one mode be changed."""
    original = engine.ForwardBatch.init_new

    def init_new(batch: Any, *args: Any, **kwargs: Any) -> Any:
        made = original(batch, *args, **kwargs)
        if made.forward_mode == engine.mode(mode) and made.mrope_positions is not None:
            change(made, batch)
        return made

    engine.ForwardBatch.init_new = staticmethod(init_new)


def wrong_row(engine: Engine) -> None:
    """An extend's w row is a copy of its h row."""

    def change(made: Any, _: Any) -> None:
        made.mrope_positions[2] = made.mrope_positions[1]

    wrap_init_new(engine, "EXTEND", change)


def one_column_short(engine: Engine) -> None:
    """A verify's three rows miss the last draft token."""

    def change(made: Any, _: Any) -> None:
        made.mrope_positions = made.mrope_positions[:, :-1]

    wrap_init_new(engine, "TARGET_VERIFY", change)


def hidden_copy(engine: Engine) -> None:
    """A verify sends a list from the host although nothing needs it."""

    def change(made: Any, _: Any) -> None:
        made.mrope_positions += torch.tensor([0], device=made.mrope_positions.device)

    wrap_init_new(engine, "TARGET_VERIFY", change)


def hidden_wait(engine: Engine) -> None:
    """A decode asks the device for a number."""

    def change(made: Any, _: Any) -> None:
        made.seq_lens.sum().item()

    wrap_init_new(engine, "DECODE", change)


def wrong_stride(engine: Engine) -> None:
    """The fused draft kernel is given rows of a wider buffer, which it takes for packed ones."""
    common = optional(COMMON)
    original = common.assign_draft_cache_locs_contiguous_func

    def call(*args: Any, mrope: Any = None, **kwargs: Any) -> Any:
        if mrope is None:
            return original(*args, mrope=mrope, **kwargs)
        wide = mrope.new_zeros((mrope.shape[0], 2 * mrope.shape[1] + 1))[:, : mrope.shape[1]]
        answer = original(*args, mrope=wide, **kwargs)
        mrope.copy_(wide)
        return answer

    common.assign_draft_cache_locs_contiguous_func = call


def transposed_layout(engine: Engine) -> None:
    """The fused draft extend writes its rows column by column."""
    common = optional(COMMON)
    original = common.prepare_draft_extend_layout

    def call(*args: Any, **kwargs: Any) -> Any:
        *lengths, info = original(*args, **kwargs)
        rows = info[-1]
        if rows is not None:
            rows.copy_(rows.clone().t().reshape(rows.shape))
        return (*lengths, info)

    common.prepare_draft_extend_layout = call


def ignored_stride(engine: Engine) -> None:
    """The fused draft extend reads its lengths as if they were contiguous."""
    common = optional(COMMON)
    original = common.prepare_draft_extend_layout

    def call(seq_lens: Any, *args: Any, **kwargs: Any) -> Any:
        return original(torch.as_strided(seq_lens, seq_lens.shape, (1,)), *args, **kwargs)

    common.prepare_draft_extend_layout = call


def other_graph(engine: Engine) -> None:
    """The decode runner replays the graph of one request more than it padded to."""
    cls = engine.DecodeCudaGraphRunner
    original = cls._capture_graph_size
    cls._capture_graph_size = lambda self, **sizes: original(self, **sizes) + 1


def no_clamp(engine: Engine) -> None:
    """The decode kernel forgets the minus one."""
    module = optional(engine.ForwardBatch.__module__)
    original = module.clamp_position
    module.clamp_position = lambda seq_lens: original(seq_lens) + 1


def out_of_bounds(engine: Engine) -> None:
    """A kernel of a draft extend of four requests writes far outside of its buffer: the context is lost."""
    from ropecheck.adapters.sglang.faults_kernel import write_far

    def change(made: Any, batch: Any) -> None:
        if len(batch.seq_lens) >= 4:  # few scenarios: each costs two starts of a worker
            write_far(made.positions)

    wrap_init_new(engine, "DRAFT_EXTEND_V2", change)


FAULTS: dict[str, Callable[[Engine], None]] = {
    fault.__name__: fault
    for fault in (
        wrong_row,
        one_column_short,
        hidden_copy,
        hidden_wait,
        wrong_stride,
        transposed_layout,
        ignored_stride,
        other_graph,
        no_clamp,
        out_of_bounds,
    )
}


def install(engine: Engine) -> tuple[str, ...]:
    """Plant the fault that the environment names; what Hello says of it. Raises KeyError for an unknown name."""
    name = os.environ.get(VARIABLE, "")
    if not name:
        return ()
    FAULTS[name](engine)
    return (f"PLANTED FAULT {name}: {FAULTS[name].__doc__}",)

"""Load a forward into a wider buffer, through the engine's own buffers.

| spec field | adapter field | engine field |
| --- | --- | --- |
| padded width | Padding.batch, Padding.tokens | `padded_bs`, `padded_num_tokens` |
| kind "graph" | `JobState.registry` | `build_decode_registry(share_pool=False)`, kept for the job |
| kind "graph" of drafts, "frozen_kv", "multi_layer" | `graph_runners` | the runners' own buffers |
| kind "dp" | - | `ForwardBatch._pad_inputs_to_size` |

Faked: nothing here; the attention backend's fill value is a stand-in's (`stand_ins`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ropecheck.adapters.protocol import BuildForward, Padding, TablePair
from ropecheck.adapters.sglang import graph_runners
from ropecheck.adapters.sglang.state import JobState

DRAFT_RUNNERS: dict[tuple[str, str], Callable[[JobState, BuildForward, Any], TablePair]] = {
    ("graph", "draft_decode"): graph_runners.draft,
    ("graph", "draft_extend_v2"): graph_runners.draft_extend,
    ("frozen_kv", "draft_decode"): graph_runners.frozen_kv,
    ("multi_layer", "draft_extend_v2"): graph_runners.multi_layer,
}
"""(kind, mode) -> the runner that has buffers of its own."""


def padded(state: JobState, forward: BuildForward, batch: Any, model_runner: Any) -> TablePair:
    """The tables in the wider buffer. Raises Absent, or ValueError for an unknown kind."""
    padding = forward.padding
    assert padding is not None
    if (padding.kind, forward.mode) in DRAFT_RUNNERS:
        return DRAFT_RUNNERS[padding.kind, forward.mode](state, forward, batch)
    if padding.kind == "graph":
        return graph(state, forward, padding, batch)
    if padding.kind == "dp":
        return data_parallel(state, forward, padding, batch, model_runner)
    raise ValueError(f"unknown padding kind {padding.kind!r} of {forward.mode}")


def graph(state: JobState, forward: BuildForward, padding: Padding, batch: Any) -> TablePair:
    """The registry of static buffers: filled from the batch and viewed at the padded size, both as the runner does
    where there is one."""
    if forward.mode == "extend":
        return graph_runners.prefill(state, forward, batch)
    if state.engine.build_decode_registry is None:
        raise state.engine.absent("build_decode_registry", "this release has no graph buffer registry")
    if state.registry is None:
        max_batch, max_tokens = state.widest
        state.registry = state.meter.call(
            state.engine.build_decode_registry,
            device=torch.device(state.device),
            max_bs=max_batch,
            max_num_token=max_tokens,
            seq_len_fill_value=1,
            cache_loc_dtype=torch.int64,
            share_pool=False,  # the process-wide pool would carry values over to the next job
        )
    registry = state.registry
    sizes = graph_runners.decode(state, forward, batch, registry)
    if sizes is None:
        sizes = padding.batch, padding.tokens
        state.meter.call(
            registry.fill_from,
            batch,
            raw_bs=batch.batch_size,
            padded_bs=padding.batch,
            raw_num_tokens=batch.positions.shape[0],
            padded_num_tokens=padding.tokens,
        )
    view = state.meter.call(
        registry.extract_buffer,
        padded_bs=sizes[0],
        padded_num_tokens=sizes[1],
        forward_batch_template=batch,
    )
    return state.table("padded", forward, view)


def data_parallel(state: JobState, forward: BuildForward, padding: Padding, batch: Any, model_runner: Any) -> TablePair:
    """Padding to the other data-parallel ranks' size, in place as the engine does it."""
    if not hasattr(batch, "_pad_inputs_to_size"):
        raise state.engine.absent(
            "ForwardBatch._pad_inputs_to_size", "this release has no ForwardBatch._pad_inputs_to_size"
        )
    state.meter.call(batch._pad_inputs_to_size, model_runner, padding.tokens, padding.batch)
    return state.table("padded", forward, batch)

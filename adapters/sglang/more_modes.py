"""Modes that are no member of ForwardMode, each through the engine's own functions: one function a mode.

| spec field | adapter field | engine field |
| --- | --- | --- |
| frozen_kv_draft | its Batch | `FrozenKVMTPDraftInput`, the functions of `frozen_kv_mtp_utils` |
| widened_draft_extend | its Batch | `compute_widened_draft_extend_locs_positions`, `prepare_for_draft_extend` |
| beam_decode | its Batch | `append_beam_tail` |

Faked: a beam group (member rows of zeros), the stash of hidden states, as what `batches` and `speculation` fake.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import torch

from ropecheck.adapters.batch import Batch
from ropecheck.adapters.protocol import BuildForward, TablePair, TablesAnswer
from ropecheck.adapters.sglang import batches, forwards, kernels, speculation
from ropecheck.adapters.sglang.capabilities import filled
from ropecheck.adapters.sglang.imports import imported
from ropecheck.adapters.sglang.stand_ins import HIDDEN, StandIn
from ropecheck.adapters.sglang.state import JobState

SPECULATIVE = "sglang.srt.speculative."


def install() -> None:
    """Let these functions drive their modes."""
    forwards.ROUTES.update(
        {
            "frozen_kv_draft": frozen_kv_draft,
            "widened_draft_extend": widened_draft_extend,
            "beam_decode": beam_decode,
        }
    )


def frozen_kv_draft(state: JobState, forward: BuildForward) -> TablesAnswer:
    """The batch as `FrozenKVMTPWorker.draft` builds it, up to its first forward."""
    tools = module(SPECULATIVE + "frozen_kv_mtp_utils")
    kind = getattr(module(SPECULATIVE + "frozen_kv_mtp_info"), "FrozenKVMTPDraftInput", None)
    if kind is None or not hasattr(tools, "position_for_batch"):
        raise state.engine.absent("frozen-KV MTP draft", "this release has no frozen-KV MTP draft")
    topk = forward.batch.number("topk", 1)

    def build() -> tuple[Any, Any]:
        batch = batches.schedule_batch(state, as_mode(forward, "decode"))
        info = filled(kind, num_tokens_per_req=topk, num_tokens_for_logprob_per_req=topk)
        info.positions = state.meter.call(tools.position_for_batch, batch)
        batch.spec_info = info
        snapshot = batches.Snapshot(batch)
        made = batches.init_new(state, batch, batches.runner_for(state, "draft_decode"))
        state.meter.call(tools.set_frozen_kv_positions, made, topk)
        state.meter.call(tools.expand_for_topk_draft, made, topk)
        return made, snapshot

    return answered(state, forward, build)


def widened_draft_extend(state: JobState, forward: BuildForward) -> TablesAnswer:
    """`compute_widened_draft_extend_locs_positions`, then `prepare_for_draft_extend` with what it says."""
    widened = getattr(
        module(SPECULATIVE + "multi_layer_eagle_utils"), "compute_widened_draft_extend_locs_positions", None
    )
    speculation.require(state, "prepare_for_draft_extend")
    if widened is None or state.engine.EagleDraftExtendInput is None:
        raise state.engine.absent("widened draft extend", "this release does not widen a draft extend")
    nodes, front = forward.batch.number("num_draft_tokens"), forward.batch.number("num_front_tokens")
    rows, device = len(forward.reqs), state.device

    def build() -> tuple[Any, Any]:
        batch = speculation.prepared_batch(state, as_mode(forward, "draft_extend_v2"))
        snapshot = batches.Snapshot(batch)
        valid = torch.full((rows,), front, dtype=torch.int32, device=device)
        table = batch.req_to_token_pool.req_to_token
        locs, positions = state.meter.call(
            widened, batch.seq_lens, batch.req_pool_indices, table, valid, nodes, front, 0
        )
        info = filled(
            state.engine.EagleDraftExtendInput,
            hidden_states=batches.zeros(rows * nodes * HIDDEN, torch.float32, device).view(-1, HIDDEN),
            num_tokens_per_req=nodes + front,
            num_front_tokens=front,
        )
        made = state.meter.call(
            state.engine.prepare_for_draft_extend,
            info,
            batch,
            batches.zeros(rows * nodes, torch.int64, device),
            nodes,
            batches.runner_for(state, "draft_extend_v2"),
            None,
            return_hidden_states_before_norm=False,
            widened_out_cache_loc=locs,
            widened_positions=positions,
        )
        state.meter.forwards += 1
        return made, snapshot

    return answered(state, forward, build)


def beam_decode(state: JobState, forward: BuildForward) -> TablesAnswer:
    """A decode batch whose beam tail the engine's own `append_beam_tail` has put on."""
    append = getattr(module("sglang.srt.beam_search.batch_tail"), "append_beam_tail", None)
    if append is None:
        raise state.engine.absent("beam search", "this release has no beam search")
    leaders, members = forward.batch.parts
    widths = dict(zip(members.reqs, members.each("members"), strict=True))
    single = BuildForward(Batch("decode", (msgspec.structs.replace(leaders, mode=""),)))

    def build() -> tuple[Any, Any]:
        batch = batches.schedule_batch(state, single)
        batch.req_pool_indices_cpu = torch.zeros(len(leaders.reqs), dtype=torch.int64)
        batch.orig_seq_lens = batch.seq_lens.clone()
        batch.beam_tail = None
        groups = [group(widths.get(number, 0), state.device) for number in leaders.reqs]
        for req, one in zip(batch.reqs, groups, strict=True):
            req.beam_group = one
        try:
            state.meter.call(append, batch)
            total = int(batch.seq_lens.shape[0])
            batch.input_ids = batches.zeros(total, torch.int64, state.device)
            batch.out_cache_loc = batches.zeros(total, torch.int64, state.device)
            snapshot = batches.Snapshot(batch)
            made = batches.init_new(state, batch, batches.runner_for(state, "decode"))
        finally:
            for req in batch.reqs:
                req.beam_group = None
        return made, snapshot

    return answered(state, forward, build)


def group(members: int, device: str) -> Any:
    """A live beam group with so many member rows; None for a request without beams."""
    if not members:
        return None
    rows = torch.zeros(members, dtype=torch.int64)
    return StandIn(member_rows=rows.to(device), member_rows_cpu=rows, num_member_rows=members, retired=False)


def answered(state: JobState, forward: BuildForward, build: Callable[[], tuple[Any, Any]]) -> TablesAnswer:
    """What `build` makes, once or twice. build: the forward batch, and a snapshot of what it was made of."""
    tables: list[TablePair] = []
    changed: tuple[str, ...] = ()
    for again in ("", "again") if forward.repeat else ("",):
        made, snapshot = build()
        tables.append(state.table(again, forward, made))
        changed = changed or snapshot.changes()
    return TablesAnswer(tuple(tables), changed, tuple(dict.fromkeys(kernels.ran)))


def as_mode(forward: BuildForward, mode: str) -> BuildForward:
    """The same rows as a batch of another mode, for functions that set a batch's fields by its mode."""
    return msgspec.structs.replace(forward, batch=Batch(mode, forward.batch.parts))


def module(name: str) -> Any:
    """The engine's module; an empty one where this release lacks it."""
    return imported(name) or StandIn()

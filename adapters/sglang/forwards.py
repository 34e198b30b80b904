"""Which route a Forward takes, and what is read back.

| spec field | adapter field | engine field |
| --- | --- | --- |
| positions | BuildForward.positions (direct verify and draft) | `spec_info.positions` |
| mode | BuildForward.mode | `ScheduleBatch.forward_mode` |
| tables | TablesAnswer | `ForwardBatch.positions`, `.mrope_positions` |

Nothing is faked here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import torch

from ropecheck.adapters.protocol import BuildForward, TablePair, TablesAnswer
from ropecheck.adapters.sglang import batches, kernels, requests, speculation, trees
from ropecheck.adapters.sglang.capabilities import filled
from ropecheck.adapters.sglang.padding import padded
from ropecheck.adapters.sglang.state import JobState
from ropecheck.adapters.sglang.wire import pack

WINDOWED = ("EXTEND", "SPLIT_PREFILL", "MIXED")

CALLERS: dict[str, Callable[[JobState, BuildForward, Any], Any]] = {
    "draft_decode": speculation.draft_decode,
    "target_verify": speculation.target_verify,
    "draft_extend_v2": speculation.draft_extend,
    "ragged_verify": speculation.ragged_verify,
    "idle": speculation.idle,
}
"""Modes whose batch the engine prepares in a function that runs without pools; the others are always set by hand."""


ROUTES: dict[str, Callable[[JobState, BuildForward], TablesAnswer]] = {}
"""Modes with a function of their own: `more_modes`, and those of files outside the repository (`outside`)."""


def run(state: JobState, forward: BuildForward) -> TablesAnswer:
    """Build the forward's batch through the engine and report its tables. Raises Absent."""
    kernels.ran.clear()
    if forward.path == "kernel":
        return kernel(state, forward)
    if forward.mode in ROUTES:
        return ROUTES[forward.mode](state, forward)
    member = batches.member_of(state, forward.mode)
    for number in forward.reqs[: batches.prefill_rows(forward)] if member in WINDOWED else ():
        requests.begin_window(state, number, state.req(number))
    if forward.mode == "ragged_verify" or (forward.path != "direct" and forward.mode in CALLERS):
        return by_caller(state, forward)
    return direct(state, forward)


def direct(state: JobState, forward: BuildForward) -> TablesAnswer:
    """The batch is set by hand and given to the engine's batch constructor; a repeat gives it the same batch."""
    batch = batches.schedule_batch(state, forward)
    runner = batches.runner_for(state, forward.mode)
    snapshot = batches.Snapshot(batch)
    tables: list[TablePair] = []
    batch.spec_info = spec_info(state, forward, batch)
    for again in ("", "again") if forward.repeat else ("",):
        made = batches.init_new(state, batch, runner)
        tables += read(state, forward, made, again, runner)
    return TablesAnswer(tuple(tables), snapshot.changes(), tuple(dict.fromkeys(kernels.ran)))


def by_caller(state: JobState, forward: BuildForward) -> TablesAnswer:
    """The engine's own preparing function builds the batch; a repeat starts from a fresh batch of the same requests."""
    prepare = CALLERS[forward.mode]
    runner = batches.runner_for(state, forward.mode)
    tables: list[TablePair] = []
    changed: tuple[str, ...] = ()
    for again in ("", "again") if forward.repeat else ("",):
        batch = speculation.prepared_batch(state, forward)
        snapshot = batches.Snapshot(batch)
        made = prepare(state, forward, batch)
        if forward.mode == "draft_decode":
            # What the model was given counts: up to 0.5.11 the loop moves the positions before its first forward.
            wider = [] if again else in_wider_buffer(state, forward, made, runner)
            steps = speculation.draft_loop(state, forward, made, again)
            tables += steps[:1] if again else [*steps, *wider]
        else:
            tables += read(state, forward, made, again, runner)
        changed = changed or snapshot.changes()
    return TablesAnswer(tuple(tables), changed, tuple(dict.fromkeys(kernels.ran)))


def read(state: JobState, forward: BuildForward, made: Any, again: str, runner: Any) -> list[TablePair]:
    """The tables of a built batch: its own, and of the wider buffer."""
    own = state.table(again, forward, made)
    return [own] if again else [own, *in_wider_buffer(state, forward, made, runner)]


def in_wider_buffer(state: JobState, forward: BuildForward, made: Any, runner: Any) -> list[TablePair]:
    """The tables of a built batch in the wider buffer that the forward asks for, if it does."""
    return [] if forward.padding is None else [padded(state, forward, made, runner)]


def kernel(state: JobState, forward: BuildForward) -> TablesAnswer:
    """The engine's Triton kernel for 1-D extend positions, run for itself."""
    function = state.engine.compute_position_triton
    if function is None:
        raise state.engine.absent("compute_position_triton", "this release has no compute_position_triton")
    windows = torch.tensor(forward.batch.windows, dtype=torch.int32, device=state.device).reshape(-1, 2)
    total = sum(length for _, length in forward.batch.windows)
    positions, _ = state.meter.call(function, windows[:, 0].contiguous(), windows[:, 1].contiguous(), total)
    kernels.ran.append(kernels.qualified(function))
    return TablesAnswer((TablePair("", pack(positions), None),), (), tuple(dict.fromkeys(kernels.ran)))


def spec_info(state: JobState, forward: BuildForward, batch: Any) -> Any:
    """The speculative input that the engine's caller would bring, with the job's positions."""
    engine = state.engine
    if forward.mode == "draft_extend_v2":
        if not forward.host_lengths and not engine.batch_is_schedule_batch:
            raise engine.absent("batch_is_schedule_batch", "this release's batch constructor takes host lengths only")
        set_draft_extend_windows(forward, batch)
        kind = engine.EagleDraftExtendInput or engine.EagleDraftInput
        return filled(kind, num_tokens_per_req=forward.batch.number("num_draft_tokens"))
    if forward.mode not in ("target_verify", "draft_decode"):
        return None
    positions = torch.tensor(forward.positions, dtype=torch.int64, device=batch.device)
    if forward.mode == "draft_decode":
        info = batches.draft_input(state, forward, batch.device)
        info.num_tokens_per_req = forward.batch.number("topk", 1)
        info.positions = positions
        return info
    steps = max(map(trees.depth_of, forward.batch.each("parents")))
    return verify_info(
        state, batch, positions, steps, forward.batch.number("topk", 1), len(positions) // len(batch.reqs)
    )


def verify_info(state: JobState, batch: Any, positions: Any, num_steps: int, topk: int, num_draft_tokens: int) -> Any:
    """The engine's own verify input, whose 1-D positions the caller brings. positions: int64 [tokens]."""
    return filled(
        state.engine.EagleVerifyInput,
        draft_token=batch.input_ids,
        positions=positions,
        spec_steps=num_steps,
        topk=topk,
        draft_token_num=num_draft_tokens,
        capture_hidden_mode=state.engine.CaptureHiddenMode.FULL,
    )


def with_positions(forward: BuildForward) -> BuildForward:
    """The forward as the direct path wants it: some positions, whose values a meta tensor drops."""
    if forward.positions or forward.mode not in ("target_verify", "draft_decode"):
        return forward
    return msgspec.structs.replace(forward, positions=(0,) * batches.token_count(forward))


def set_draft_extend_windows(forward: BuildForward, batch: Any) -> None:
    """The windows as `prepare_for_draft_extend` hands them over: host lists, or device tensors without host lengths."""
    rows = len(forward.reqs)
    batch.extend_num_tokens = rows * forward.batch.number("num_draft_tokens")
    if forward.host_lengths:
        batch.prefix_lens = list(forward.batch.seq_lens)
        batch.extend_lens = [forward.batch.number("num_draft_tokens")] * rows
        return
    batch.prefix_lens = batch.seq_lens.to(torch.int32)
    batch.extend_lens = torch.full(
        (rows,), forward.batch.number("num_draft_tokens"), dtype=torch.int32, device=batch.device
    )

"""Speculative forwards through the engine's own preparing functions: `prepare_for_draft` and the real draft loop,
`build_eagle_verify_input` with `eagle_prepare_for_verify`, `prepare_for_draft_extend`, and DSPARK's ragged window.

| spec field | adapter field | engine field |
| --- | --- | --- |
| seq_len (committed) | seq_len | `ScheduleBatch.seq_lens` |
| topk, num_steps, num_draft_tokens | the same | `EagleDraftWorker.topk`, `.speculative_num_steps`, ... |
| parents | parents | `parent_list`, `top_scores_index` (see `trees`) |
| lens | parents, Forward.tier | `RaggedVerifyLayout` |

Faked: the draft model (its forward records the tables and returns fixed logits), the draft worker's and verify
executor's constructors (`kernels.hollow`), drafted tokens and hidden states (zeros).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from time import perf_counter_ns
from typing import Any

import torch

from ropecheck.adapters.protocol import BuildForward, TablePair
from ropecheck.adapters.sglang import batches, kernels, trees
from ropecheck.adapters.sglang.capabilities import filled, taken
from ropecheck.adapters.sglang.stand_ins import HIDDEN, VOCABULARY, AttentionBackend, StandIn
from ropecheck.adapters.sglang.state import JobState

FAKED = (
    "drafted tokens, bonus tokens, hidden states: zeros",
    "dspark TargetVerifyExecutor: created without __init__; target forward records the batch",
)


def prepared_batch(state: JobState, forward: BuildForward) -> Any:
    """The batch before a preparing function runs, pools attached; on the fused path its lengths claim a GPU."""
    batch = batches.schedule_batch(state, forward)
    if forward.mode == "idle":
        state.meter.call(batch.prepare_for_idle)
        return batch
    batch.forward_mode = state.engine.mode("DECODE")
    span = forward.batch.number("num_draft_tokens") + forward.batch.number("topk", 1) * (
        forward.batch.number("num_steps") + 1
    )
    batch.req_to_token_pool = batches.token_pool(max(forward.batch.seq_lens, default=0) + span, state.device)
    batch.token_to_kv_pool_allocator = batches.ALLOCATOR
    if forward.path == "fused" and state.device == "cpu":
        batch.seq_lens = batch.seq_lens.as_subclass(kernels.OnGpu)
    return batch


def draft_decode(state: JobState, forward: BuildForward, batch: Any) -> Any:
    """`prepare_for_draft`. Returns the forward batch before its loop. Raises Absent."""
    engine = state.engine
    require(state, "prepare_for_draft", "EagleDraftWorker")
    draft_input = batch.spec_info = batches.draft_input(state, forward, state.device)
    result = state.meter.call(
        engine.prepare_for_draft,
        draft_input,
        batch.req_to_token_pool,
        batches.for_worker(state, batch),
        None,
        batches.runner_for(state, forward.mode),
        forward.batch.number("topk", 1),
        forward.batch.number("num_steps"),
    )
    state.meter.forwards += 1
    return result[0]


def draft_loop(state: JobState, forward: BuildForward, batch: Any, first: str) -> list[TablePair]:
    """The engine's own draft loop over a prepared batch: one table per draft forward: `first`, "step 1" and so on."""
    recorded: list[TablePair] = []

    def record(forward_batch: Any, *_: Any, **__: Any) -> Any:
        start = perf_counter_ns()
        label = f"step {len(recorded)}" if recorded else first
        recorded.append(state.table(label, forward, forward_batch))
        output = draft_output(forward_batch.positions.shape[0], state.device)
        state.meter.ns -= perf_counter_ns() - start  # called from inside the engine: not the engine's time
        return output

    runner = batches.runner_for(state, forward.mode)
    runner.forward = record
    worker = draft_worker(
        state.engine.EagleDraftWorker,
        forward.batch.number("topk", 1),
        forward.batch.number("num_steps"),
        state.device,
        runner,
    )
    while worker._topk1_parents_prealloc.shape[0] < len(forward.reqs):
        worker._topk1_parents_prealloc = worker._topk1_parents_prealloc.repeat(2, 1)
        worker._topk1_score_indices_prealloc = worker._topk1_score_indices_prealloc.repeat(2, 1)
    try:
        state.meter.call(worker.draft_forward, batch)
    finally:
        del runner.forward  # the runner outlives the job
    kernels.ran.append(state.engine.found["EagleDraftWorker"].replace(":", ".") + ".draft_forward")
    return recorded


class DraftOutput(StandIn):
    """A runner's output; 0.5.6 takes it apart as (logits output, whether a graph ran)."""

    logits_output: Any

    def __iter__(self) -> Iterator[Any]:
        return iter((self.logits_output, False))


@lru_cache(maxsize=64)
def draft_output(rows: int, device: str) -> StandIn:
    """What a draft model returns for this many tokens: fixed logits and hidden states."""
    logits = torch.arange(VOCABULARY, dtype=torch.float32, device=device).repeat(rows, 1) / VOCABULARY
    hidden = torch.zeros((rows, HIDDEN), device=device)
    return DraftOutput(logits_output=StandIn(next_token_logits=logits, hidden_states=hidden))


@lru_cache(maxsize=64)
def draft_worker(cls: type, topk: int, num_steps: int, device: str, runner: Any) -> Any:
    """The engine's draft worker with the attributes that its loop reads."""
    chain = torch.arange(-1, num_steps - 1, dtype=torch.int64, device=device).repeat(64, 1)
    scores = torch.arange(num_steps, dtype=torch.int64, device=device).repeat(64, 1)
    return kernels.hollow(
        cls,
        topk=topk,
        speculative_num_steps=num_steps,
        # A chain keeps every token; a tree keeps the best as many as its last level has.
        speculative_num_draft_tokens=num_steps + 1 if topk == 1 else topk + 1,
        hot_token_id=None,
        server_args=StandIn(speculative_use_rejection_sampling=False, enable_nan_detection=False),  # up to 0.5.16
        _topk1_parents_prealloc=chain,
        _topk1_score_indices_prealloc=scores,
        index_share_for_mtp_iteration=False,
        seed_dsa_topk_from_draft_extend=False,
        draft_runner=runner,
        draft_attn_backend=StandIn(attn_backends=[AttentionBackend()] * num_steps),
        device=device,
    )


def target_verify(state: JobState, forward: BuildForward, batch: Any) -> Any:
    """`build_eagle_verify_input`, then `eagle_prepare_for_verify`. Returns the forward batch. Raises Absent."""
    engine, device = state.engine, state.device
    require(state, "build_eagle_verify_input", "eagle_prepare_for_verify", "TreeMaskMode")
    rows, nodes = len(forward.reqs), forward.batch.number("num_draft_tokens")
    num_steps = max(1, *map(trees.depth_of, forward.batch.each("parents")))  # no engine drafts 0 steps
    encoded = [
        trees.encode(parents, forward.batch.number("topk", 1), num_steps) for parents in forward.batch.each("parents")
    ]
    runner = batches.runner_for(state, forward.mode)
    runner.attn_backend.max_context_len = batch.req_to_token_pool.req_to_token.shape[1]
    worker = StandIn(model_runner=runner)
    # The fused choice wants a mask of the tree alone; elsewhere the GPU default, whose prefix part nothing reads.
    fused = forward.path == "fused" or device == "cpu"
    verify_input = state.meter.call(
        engine.build_eagle_verify_input,
        batch,
        engine.EagleDraftInput(bonus_tokens=batches.zeros(rows, torch.int64, device)),
        torch.tensor([beams for beams, _ in encoded], dtype=torch.int64, device=device),
        torch.tensor([chosen for _, chosen in encoded], dtype=torch.int64, device=device),
        batches.zeros(rows * (nodes - 1), torch.int64, device).view(rows, nodes - 1),
        None,
        target_worker=worker,
        topk=forward.batch.number("topk", 1),
        num_steps=num_steps,
        num_draft_tokens=nodes,
        tree_mask_mode=engine.TreeMaskMode.QLEN_ONLY if fused else engine.TreeMaskMode.FULL_MASK,
        device=device,
    )
    batch.spec_info = verify_input
    result = state.meter.call(engine.eagle_prepare_for_verify, verify_input, batch.req_to_token_pool, batch, worker)
    state.meter.forwards += 1
    return result[0]


def ragged_verify(state: JobState, forward: BuildForward, batch: Any) -> Any:
    """DSPARK's packed verify: its window builder, then the executor's own `_run_ragged`. Raises Absent."""
    engine, device = state.engine, state.device
    require(state, "RaggedVerifyLayout", "BuildRaggedVerifyWindow", "DFlashVerifyInput", "TargetVerifyExecutor")
    lens = batches.verify_lens(forward)
    rows, widest = len(forward.reqs), max(lens)
    runner = batches.runner_for(state, forward.mode)
    runner.req_to_token_pool = batch.req_to_token_pool
    layout = state.meter.call(
        engine.RaggedVerifyLayout.from_verify_lens,
        verify_lens_cpu=lens,
        device=device,
        grid=[batches.token_count(forward)],
    )
    blocks = batches.zeros(rows * widest, torch.int64, device).view(rows, widest)
    window = state.meter.call(
        engine.BuildRaggedVerifyWindow.execute,
        batch=batch,
        layout=layout,
        draft_block_ids=blocks,
        draft_tokens=blocks,
        bs=rows,
        device=device,
        verify_num_draft_tokens=widest,
        model_runner=runner,
    )
    made: list[Any] = []

    def keep(*, forward_batch: Any, **_: Any) -> Any:
        made.append(forward_batch)
        return StandIn(logits_output=None, can_run_cuda_graph=False)

    executor = kernels.hollow(
        engine.TargetVerifyExecutor,
        target_worker=StandIn(model_runner=runner, forward_batch_generation=keep),
        _target_is_dsv41=False,
        verify_num_draft_tokens=widest,
        model_runner=runner,
    )
    state.meter.call(
        executor._run_ragged,
        **taken(
            engine.TargetVerifyExecutor._run_ragged,
            batch=batch,
            layout=layout,
            ragged_window=window,
            sampling_info=None,
            kv_loc_plan=None,
        ),
    )
    state.meter.forwards += 1
    kernels.ran.extend(
        kernels.qualified(f) for f in (engine.BuildRaggedVerifyWindow.execute, engine.TargetVerifyExecutor._run_ragged)
    )
    return made[0]


def draft_extend(state: JobState, forward: BuildForward, batch: Any) -> Any:
    """`prepare_for_draft_extend`. Returns the forward batch. Raises Absent."""
    engine, device = state.engine, state.device
    require(state, "prepare_for_draft_extend")
    tokens = len(forward.reqs) * forward.batch.number("num_draft_tokens")
    if not forward.host_lengths and not engine.batch_is_schedule_batch:
        raise engine.absent("batch_is_schedule_batch", "this release's batch constructor takes host lengths only")
    draft_input = filled(
        engine.EagleDraftExtendInput or engine.EagleDraftInput,
        hidden_states=batches.zeros(tokens * HIDDEN, torch.float32, device).view(tokens, HIDDEN),
        num_tokens_per_req=forward.batch.number("num_draft_tokens"),
    )
    result = state.meter.call(
        engine.prepare_for_draft_extend,
        draft_input,
        batches.for_worker(state, batch),
        batches.zeros(tokens, torch.int64, device),
        forward.batch.number("num_draft_tokens"),
        batches.runner_for(state, forward.mode),
        None,
        **taken(engine.prepare_for_draft_extend, return_hidden_states_before_norm=False),
    )
    state.meter.forwards += 1
    return result


def idle(state: JobState, forward: BuildForward, batch: Any) -> Any:
    """The batch constructor on what `ScheduleBatch.prepare_for_idle` left."""
    return batches.init_new(state, batch, batches.runner_for(state, forward.mode))


def require(state: JobState, *names: str) -> None:
    """Note the functions among these names as about to run. Raises what `Engine.needs` raises."""
    state.engine.needs(*names)
    places = [state.engine.found[name] for name in names if name[0].islower()]
    kernels.ran.extend(place.replace(":", ".") for place in places)

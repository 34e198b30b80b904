"""The load step of the engine's CUDA-graph runners: what a captured graph would read when it is replayed.

| spec field | adapter field | engine field |
| --- | --- | --- |
| padded batch | Padding.batch | `capture_bs`, a list of this one size |
| padded width | Padding.tokens / Padding.batch | `captured_req_width` (to 0.5.15 `num_tokens_per_bs`) |
| padded tables | TablePair "padded" | `buffers.positions`, `buffers.mrope_positions` when `_replay_graph` is called |
| kind "graph", decode and verify | - | `DecodeCudaGraphRunner.load_batch` over the job's registry |
| kind "graph", extend | - | `PrefillCudaGraphRunner.load_batch` over a registry of its own |
| kind "graph", drafts | - | `EAGLEDraftCudaGraphRunner`, `EAGLEDraftExtendCudaGraphRunner`: `.execute` |
| kind "frozen_kv" | - | `FrozenKVMTPCudaGraphRunner.execute` |
| kind "multi_layer" | - | `MultiLayerEagleMultiStepDraftExtendCudaGraphRunner.prepare` |

A runner and its buffers live as long as the job, so that a batch finds what the one before it left.

Faked: see `FAKED`. The batches are the engine's own, as its callers prepared them; a runner gets a shallow copy.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

import torch

from ropecheck.adapters.protocol import BuildForward, Padding, TablePair
from ropecheck.adapters.sglang import batches, kernels
from ropecheck.adapters.sglang.capabilities import filled, taken
from ropecheck.adapters.sglang.stand_ins import HIDDEN, AttentionBackend, LocationPlan, StandIn
from ropecheck.adapters.sglang.state import JobState

FAKED = (
    "graph runners: created without __init__; nothing is captured or captured again, no event is recorded, and the one "
    "captured size is the step's padded one",
    "graph runners: _replay_graph reads the static tables and returns zeros; the draft's outputs are not cut to size",
    "graph runners: static buffers as their __init__ makes them, but of the job alone (the engine shares them by name)",
    "graph runners, draft extend: select_index, num_correct_drafts, num_accept_tokens, hidden states: zeros",
    "graph runner frozen_kv: gets an EAGLE draft's batch, lengths and slots repeated for each branch (frozen-KV MTP "
    "drafts at other indices); its worker's attention metadata: nothing",
    "graph runner multi_layer: gets an EAGLE draft extend's batch (no front tokens)",
)


def draft(state: JobState, forward: BuildForward, batch: Any) -> TablePair:
    """`EAGLEDraftCudaGraphRunner.execute` on a prepared draft batch. Raises Absent."""
    runner = runner_of(
        state, forward, "EAGLEDraftCudaGraphRunner", "EagleDraftInputBuffers", forward.batch.number("topk", 1)
    )
    return replayed(state, forward, runner, lambda: runner.execute(copied(batch)))


def frozen_kv(state: JobState, forward: BuildForward, batch: Any) -> TablePair:
    """`FrozenKVMTPCudaGraphRunner.execute` on a draft batch whose rows are repeated per branch. Raises Absent."""
    runner = runner_of(
        state, forward, "FrozenKVMTPCudaGraphRunner", "FrozenKVMTPInputBuffers", forward.batch.number("topk", 1)
    )
    rows, topk = len(forward.reqs), forward.batch.number("topk", 1)
    batch = copied(batch)
    batch.spec_info = filled(
        state.engine.FrozenKVMTPDraftInput,
        topk_p=batches.zeros(rows * topk, torch.float32, state.device).view(rows, topk),
        topk_index=batches.zeros(rows * topk, torch.int64, state.device).view(rows, topk),
        hidden_states=batches.zeros(rows * HIDDEN, torch.float32, state.device).view(rows, HIDDEN),
        bonus_tokens=batches.zeros(rows, torch.int64, state.device),
    )
    batch.batch_size = rows * topk
    batch.seq_lens_sum = sum(forward.batch.seq_lens) * topk
    for name in ("seq_lens", "seq_lens_cpu", "req_pool_indices"):
        value = getattr(batch, name)
        setattr(batch, name, None if value is None else value.repeat_interleave(topk))
    return replayed(state, forward, runner, lambda: runner.execute(batch))


def draft_extend(state: JobState, forward: BuildForward, batch: Any) -> TablePair:
    """`EAGLEDraftExtendCudaGraphRunner.execute` on a prepared draft extend batch. Raises Absent."""
    width = forward.batch.number("num_draft_tokens")
    runner = runner_of(
        state,
        forward,
        "EAGLEDraftExtendCudaGraphRunner",
        "EagleDraftExtendInputBuffers",
        width,
        forward.batch.number("num_steps"),
    )
    selected = batches.zeros(len(forward.reqs), torch.int64, state.device)
    return replayed(
        state,
        forward,
        runner,
        lambda: runner.execute(copied(batch), **taken(type(runner).execute, select_index=selected)),
    )


def multi_layer(state: JobState, forward: BuildForward, batch: Any) -> TablePair:
    """`MultiLayerEagleMultiStepDraftExtendCudaGraphRunner.prepare`, whose buffers every layer's graph reads."""
    name, buffers = "MultiLayerEagleMultiStepDraftExtendCudaGraphRunner", "MultiLayerEagleDraftExtendInputBuffers"
    runner = runner_of(state, forward, name, buffers, forward.batch.number("num_draft_tokens"), method="prepare")
    layer = state.engine.MultiLayerEagleDraftExtendCudaGraphRunner
    runner.runners = [StandIn(_pad_to_bucket=layer._pad_to_bucket)]
    batch = copied(batch)
    counts = batches.zeros(len(forward.reqs), torch.int32, state.device)
    batch.spec_info.num_correct_drafts = batch.spec_info.num_accept_tokens = counts
    tokens = batches.token_count(forward)
    batch.spec_info.hidden_states = batches.zeros(tokens * HIDDEN, torch.float32, state.device).view(tokens, HIDDEN)
    state.meter.call(runner.prepare, batch)
    return state.table("padded", forward, static_tables(runner, runner.bs))


def decode(state: JobState, forward: BuildForward, batch: Any, registry: Any) -> tuple[int, int] | None:
    """`DecodeCudaGraphRunner.load_batch`, which fills the job's registry. Returns the (batch, tokens) of the graph that
    it would replay; None where a release has no such step."""
    cls = state.engine.DecodeCudaGraphRunner
    if not hasattr(cls, "load_batch"):
        return None
    padding = _padding(forward)
    width = padding.tokens // padding.batch
    key = (cls.__name__, width, 0)
    runner = state.graph_runners.get(key)
    if runner is None:
        runner = state.graph_runners[key] = kernels.hollow(
            cls,
            **common(state, forward, width),
            **DECODE_FLAGS,
            buffers=slots(registry),
            buffer_registry=registry,
            capture_hidden_mode=state.engine.CaptureHiddenMode.FULL,
        )
    runner.capture_bs = [padding.batch]
    runner.capture_forward_mode = batch.forward_mode
    kernels.ran.append(kernels.qualified(cls.load_batch))
    state.meter.call(runner.load_batch, copied(batch))
    rows = runner._replay_graph_key.size
    return rows, rows * runner.captured_req_width


def prefill(state: JobState, forward: BuildForward, batch: Any) -> TablePair:
    """`PrefillCudaGraphRunner.load_batch`: the batch that it replays, over a registry of the job. Raises Absent."""
    state.engine.needs("build_prefill_registry")
    cls, tokens = state.engine.PrefillCudaGraphRunner, _padding(forward).tokens
    runner = state.graph_runners.get(("prefill", 0, 0))
    if runner is None:
        build = state.engine.build_prefill_registry
        sizes = {
            "device": torch.device(state.device),
            "max_bs": state.widest[0],
            "max_num_token": state.widest[1],
            "cache_loc_dtype": torch.int64,
            "is_multimodal": True,
            "hidden_size": HIDDEN,
            "embed_dtype": torch.float32,
            "share_pool": False,
        }
        registry = state.meter.call(build, **taken(build, **sizes))
        runner = kernels.hollow(cls or object, **PREFILL_FLAGS, buffer_registry=registry)
        state.graph_runners["prefill", 0, 0] = runner
    runner.capture_num_tokens = [tokens]
    if cls is None or not hasattr(batch, "kv_loc_plan"):  # up to 0.5.21 a step of other attributes: its registry alone
        rows, live = batch.batch_size, batch.positions.shape[0]
        sizes = {"raw_bs": rows, "padded_bs": rows, "raw_num_tokens": live, "padded_num_tokens": tokens}
        state.meter.call(runner.buffer_registry.fill_from, batch, **sizes)
        wide = {"padded_bs": rows, "padded_num_tokens": tokens, "forward_batch_template": batch}
        return state.table("padded", forward, state.meter.call(runner.buffer_registry.extract_buffer, **wide))
    kernels.ran.append(kernels.qualified(cls.load_batch))
    batch = copied(batch)
    batch.kv_loc_plan = LocationPlan()
    loaded = state.meter.call(runner.load_batch, batch)  # from 0.5.23 on with the events that end its reading
    return state.table("padded", forward, loaded[0] if isinstance(loaded, tuple) else loaded)


PREFILL_FLAGS = {
    "max_context_size": None,
    "enable_cp_bcg_capture": False,
    "prefill_cp_bcg_input": None,
    "backend": None,
    "capture_return_pooled_hidden_states": False,
    "has_mha_companion_layers": False,
    "static_draft_hidden_states": None,
    "_use_draft_input_embeds": False,
    "_is_full_backend": False,
    "_prefill_static_buffers": None,
    "_next_token_logits_buffer": lambda rows: None,
    "_prefill_logits_buffer_rows": lambda batch: 0,
    "_shape_key": lambda tokens, batch: None,
    "_prepare_forward_metadata_for_replay": lambda *_: None,
    "model_runner": StandIn(
        attn_tp_sequence_sharded=lambda tokens: False,
        prepare_dummy_forward_batch=lambda batch: batch,
        kv_index_translator=None,
    ),
}
"""A prefill runner without context parallelism, a draft, pooling or logits."""

DECODE_FLAGS = {
    "dllm_uses_input_embeds": False,
    "dllm_input_preparation": None,
    "ragged_verify_mode": False,
    "require_attn_tp_gather": False,
    "attention_graph_variants": None,
    "record_nolora_graph": False,
    "enable_two_batch_overlap": False,
    "enable_pdmux": False,
    "is_encoder_decoder": False,
    "is_dllm": False,
    "_early_verify_metadata": None,
    "_metadata_glue": None,
    "_skip_glued_replay_view": False,
    "_draft_metadata_glue": False,
    "_target_metadata_glue": False,
    "_skips_prefilled_inputs": False,
    "dsa_index_topk": None,
    "recapture_if_needed": lambda *_, **__: None,
}
"""A decode runner without LoRA, overlap, diffusion, encoder or secondary graphs."""


def slots(registry: Any) -> Any:
    """The registry's tensors by name, as the runner's own namespace holds them."""
    names = ("input_ids", "positions", "mrope_positions", "req_pool_indices", "seq_lens", "seq_lens_cpu")
    held = {name: registry.get_slot(name).buffer for name in names}
    return StandIn(**held, mamba_track_indices=None, num_token_non_padded=None, encoder_lens=None, custom_mask=None)


def _padding(forward: BuildForward) -> Padding:
    assert forward.padding is not None
    return forward.padding


def runner_of(
    state: JobState, forward: BuildForward, name: str, buffers: str, width: int, steps: int = 0, method: str = "execute"
) -> Any:
    """The job's runner of this class, width and number of steps, its captured size set to the step's. Raises Absent."""
    state.engine.needs(name, buffers)
    cls = getattr(state.engine, name)
    if not hasattr(cls, method):
        raise state.engine.absent(f"{name}.{method}", f"this release has no {name}.{method}")
    steps = steps or max(forward.batch.number("num_steps"), 1)
    runner = state.graph_runners.get((name, width, steps))
    if runner is None:
        runner = kernels.hollow(
            cls,
            **common(state, forward, width),
            buffers=static_buffers(state, getattr(state.engine, buffers), width, steps),
            speculative_num_steps=steps,
        )
        state.graph_runners[name, width, steps] = runner
    runner.capture_bs = [_padding(forward).batch]
    kernels.ran.append(kernels.qualified(getattr(cls, method)))
    return runner


def common(state: JobState, forward: BuildForward, width: int) -> dict[str, Any]:
    """What every runner reads: one GPU, no data parallelism, attention and graph replaced."""
    backend = AttentionBackend()
    rows = state.widest[0]
    return {
        "model_runner": batches.runner_for(state, forward.mode),
        "frozen_kv_mtp_worker": StandIn(_init_frozen_kv_metadata_replay_cuda_graph=lambda *_: None),
        "deepep_adapter": StandIn(replay=lambda: None),
        "device": state.device,
        "device_module": StandIn(Event=lambda: StandIn(record=lambda: None)),
        "attn_backend": backend,
        "draft_attn_backend": backend,
        "draft_extend_attn_backend": backend,
        "draft_extend_attn_backend_list": [],
        "forward_mode": state.engine.mode(batches.MEMBERS[forward.mode]),
        "topk": forward.batch.number("topk", 1),
        "captured_req_width": width,
        "num_tokens_per_bs": width,
        "max_bs": rows,
        "seq_len_fill_value": 1,
        "num_front_tokens": 0,
        "extend_seq_lens_cpu": [width] * rows,
        "require_mlp_tp_gather": False,
        "require_gathered_buffer": False,
        "_postprocess_output_to_raw_bs": lambda out, raw_bs: out,
    }


def static_buffers(state: JobState, cls: type, width: int, steps: int) -> Any:
    """The runner's own buffer class, every tensor as its constructor makes it: zeros, lengths at their fill value."""
    rows, device = state.widest[0], state.device
    tokens = rows * width
    frozen = "FrozenKV" in cls.__name__
    lengths = torch.int32 if "MultiLayer" in cls.__name__ else torch.int64

    def zeros(*shape: int, dtype: Any = torch.int64) -> Any:
        return torch.zeros(shape, dtype=dtype, device=device)

    per_row = tokens if frozen else rows
    hidden_rows = tokens if "DraftExtend" in cls.__name__ else rows
    return filled(
        cls,
        input_ids=zeros(tokens),
        req_pool_indices=zeros(per_row),
        out_cache_loc=zeros(tokens * steps),
        positions=zeros(tokens),
        mrope_positions=zeros(3, tokens),
        seq_lens=zeros(per_row, dtype=lengths) + 1,
        seq_lens_cpu=torch.ones(per_row, dtype=lengths),
        extend_seq_lens=zeros(rows, dtype=torch.int32) + width,
        extend_start_loc=zeros(rows, dtype=torch.int32),
        topk_p=zeros(rows, width, dtype=torch.float32),
        topk_index=zeros(rows, width),
        hidden_states=zeros(hidden_rows, HIDDEN, dtype=torch.float32),
        bonus_tokens=zeros(rows),
        num_correct_drafts=zeros(rows, dtype=torch.int32) + width,
        num_accept_tokens=zeros(rows, dtype=torch.int32) + width,
        select_index=zeros(rows),
        next_token_logits_buffer=zeros(rows, 1, dtype=torch.float32),
    )


def copied(batch: Any) -> Any:
    """The batch and its speculative input, so that what a runner hangs into them does not reach the caller."""
    batch = copy.copy(batch)
    batch.spec_info = copy.copy(batch.spec_info)
    return batch


def replayed(state: JobState, forward: BuildForward, runner: Any, execute: Callable[[], Any]) -> TablePair:
    """What the graph would have read, had it been replayed inside `execute`."""
    seen: list[TablePair] = []

    def replay(shape_key: Any, forward_batch: Any) -> Any:
        start = perf_counter_ns()
        seen.append(state.table("padded", forward, static_tables(runner, shape_key.size)))
        state.meter.ns -= perf_counter_ns() - start  # called from inside the engine: not the engine's time
        return StandIn(next_token_logits=torch.zeros(1, 1), hidden_states=torch.zeros(1, 1))

    runner._replay_graph = replay
    state.meter.call(execute)
    if not seen:
        raise RuntimeError(f"{type(runner).__name__} loaded a batch and replayed no graph")
    return seen[-1]


def static_tables(runner: Any, size: int) -> StandIn:
    """The static tables as the graph captured for `size` requests has them."""
    columns = size * runner.captured_req_width
    buffers = runner.buffers
    return StandIn(positions=buffers.positions[:columns], mrope_positions=buffers.mrope_positions[:, :columns])

"""One ScheduleBatch with the job's numbers, and what `ForwardBatch.init_new` makes of it.

| spec field | adapter field | engine field |
| --- | --- | --- |
| seq_len | seq_len | `ScheduleBatch.seq_lens`, `.seq_lens_cpu` (int64) |
| prefix_len, extend_len | prefix_len, extend_len | `ScheduleBatch` and `Req`: the same names |
| end of a window | seq_len | `Req.extend_end` |
| table, delta | - | `.multimodal_inputs[i]`, the request's own object |
| block offset, size | block_offset, block_size | `Req.dllm_block_offset`, `DllmConfig.block_size` |

Fields are set from the job the way `prepare_for_extend`, `prepare_for_decode` and `mix_with_running` set them; those
functions also allocate KV memory, which needs pools.

Faked: input token ids and KV slots are zeros (no table depends on them).
"""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import torch

from ropecheck.adapters.protocol import BuildForward
from ropecheck.adapters.sglang.capabilities import Absent, filled
from ropecheck.adapters.sglang.stand_ins import HIDDEN, VOCABULARY, StandIn, runner
from ropecheck.adapters.sglang.state import JobState
from ropecheck.adapters.sglang.wire import between_others

FAKED = ("ScheduleBatch.input_ids, out_cache_loc: zeros; req_pool_indices: zeros",)

CLAMP = "sglang.kernels.ops.attention.clamp_position"
"""The kernel that makes a decode's 1-D table on a GPU."""
EXTENDING = {"extend": "EXTEND", "split_prefill": "SPLIT_PREFILL", "mixed": "MIXED", "dllm_extend": "DLLM_EXTEND"}
MEMBERS = {
    **EXTENDING,
    "decode": "DECODE",
    "draft_decode": "DECODE",
    "target_verify": "TARGET_VERIFY",
    "ragged_verify": "TARGET_VERIFY",
    "draft_extend_v2": "DRAFT_EXTEND_V2",
    "idle": "IDLE",
}
"""Protocol mode -> ForwardMode member."""


def member_of(state: JobState, mode: str) -> str:
    """The engine's ForwardMode that runs this mode. Raises Absent."""
    member = MEMBERS.get(mode)
    if member is None:
        raise Absent(f"this adapter has no function for the mode {mode}")
    if state.engine.mode(member) is None:
        raise state.engine.absent(f"ForwardMode.{member}", f"this release has no ForwardMode.{member}")
    return member


_MODEL_CONFIG = StandIn(vocab_size=VOCABULARY, is_matryoshka=False)
ALLOCATOR = StandIn(page_size=1)


_ZEROS: dict[tuple[int, Any, str], Any] = {}


def zeros(count: int, dtype: Any, device: str) -> Any:
    """A shared tensor of zeros that the engine only reads; one that was written to is never handed out again."""
    key = (count, dtype, device)
    tensor = _ZEROS.get(key)
    if tensor is None or tensor._version:
        if len(_ZEROS) > 1000:
            _ZEROS.clear()
        tensor = _ZEROS[key] = torch.zeros(count, dtype=dtype, device=device)
    return tensor


@lru_cache(maxsize=16)
def token_pool(width: int, device: str) -> Any:
    """A token pool with one row of at least `width` slots; every request points at row 0."""
    size = 4096
    while size < width:
        size *= 2
    return StandIn(req_to_token=torch.zeros((1, size), dtype=torch.int32, device=device), device=device)


@lru_cache(maxsize=16)
def shared_runner(device: str, algorithm: Any, mrope: bool, draft: bool) -> Any:
    """Runner stand-ins hold no state of a job, so one of each kind serves all."""
    return runner(device, algorithm, mrope=mrope, draft=draft)


def runner_for(state: JobState, mode: str, device: str | None = None) -> Any:
    """The runner that runs this mode: the draft model's for drafting, one without M-RoPE for diffusion models."""
    draft = mode in ("draft_decode", "draft_extend_v2")
    algorithm = state.engine.SpeculativeAlgorithm.EAGLE
    return shared_runner(device or state.device, algorithm, mode != "dllm_extend", draft)


def schedule_batch(state: JobState, forward: BuildForward, device: str | None = None, member: str = "") -> Any:
    """The engine's batch for this forward. device: "meta" to count copies, else the job's. member: the
    ForwardMode, where the mode's name does not say it."""
    device = device or state.device
    engine = state.engine
    reqs = [state.req(number) for number in forward.reqs]
    on_host = torch.tensor(forward.batch.seq_lens, dtype=torch.int64)
    batch = state.meter.call(engine.ScheduleBatch, reqs=reqs)
    batch.forward_mode = engine.mode(member or MEMBERS[forward.mode])
    batch.device = device
    batch.model_config = _MODEL_CONFIG
    # The CPU copy is a tensor of its own: an engine that wrote into one must not be seen to write into both.
    batch.seq_lens = on_host.clone() if device == "cpu" else on_host.to(device)
    if forward.strided:
        if forward.mode == "decode" and device == "cuda" and find_spec(CLAMP):
            raise Absent(f"{CLAMP} says that it takes no lengths with others between them; no scheduler gives it any")
        batch.seq_lens = between_others(batch.seq_lens)
    if forward.lagging:
        on_host = on_host - 1
    batch.seq_lens_cpu = on_host if forward.host_lengths else None
    if not engine.batch_is_schedule_batch:
        batch.seq_lens_sum = sum(forward.batch.seq_lens)  # later releases fill it in themselves
    batch.req_pool_indices = zeros(len(reqs), torch.int64, device)
    batch.multimodal_inputs = [req.multimodal_inputs for req in reqs]
    batch.spec_algorithm = engine.SpeculativeAlgorithm.NONE
    if forward.mode in EXTENDING:
        set_windows(state, forward, batch)
    elif forward.mode == "idle":
        batch.extend_num_tokens = 0
    tokens = token_count(forward)
    batch.input_ids = zeros(tokens, torch.int64, device)
    # A draft loop brings the slots of all its steps.
    slots = tokens * max(forward.batch.number("num_steps"), 1) if forward.mode == "draft_decode" else tokens
    batch.out_cache_loc = zeros(slots, torch.int64, device)
    return batch


def set_windows(state: JobState, forward: BuildForward, batch: Any) -> None:
    """The extend windows of the batch, on it and on its requests, as the scheduler leaves them."""
    if forward.mode == "dllm_extend":
        batch.dllm_config = dllm_config(state, forward.batch.number("block_size"))
        batch.prefix_lens = list(forward.batch.each("block_offset"))
        batch.extend_lens = [forward.batch.number("block_size")] * len(forward.reqs)
        batch.extend_num_tokens = forward.batch.number("block_size") * len(forward.reqs)
        offsets = forward.batch.each("block_offset")
        for req, offset in zip(batch.reqs, offsets, strict=True):
            req.dllm_block_offset = offset
            req.dllm_has_literal_mask = min(offsets) > 0  # then committed lengths are sent along with the positions
        return
    batch.prefix_lens = [prefix for prefix, _ in forward.batch.windows]
    batch.extend_lens = [length for _, length in forward.batch.windows]
    batch.extend_num_tokens = sum(batch.extend_lens)
    batch.extend_logprob_start_lens = [0] * len(batch.reqs)
    prefilling = prefill_rows(forward)
    ends = zip(batch.reqs, forward.batch.windows, forward.batch.seq_lens, strict=True)
    for row, (req, window, end) in enumerate(ends):
        if row >= prefilling:
            state.meter.call(refresh_fill_ids, req)
        elif hasattr(req, "prefix_len"):
            req.prefix_len = window[0]
        set_window(req, *window, end)
        if row < prefilling:
            req.is_retracted = False
    if prefilling < len(batch.reqs):
        batch.decoding_reqs = batch.reqs[prefilling:]


def prefill_rows(forward: BuildForward) -> int:
    """Rows of an extend-shaped batch that prefill; the others decode."""
    return sum(len(part.reqs) for part in forward.batch.parts if "extend_len" in part.fields)


def set_window(req: Any, prefix: int, length: int, end: int) -> None:
    """Tell the request its window, by whichever field this release keeps it in."""
    if hasattr(req, "extend_end"):
        req.extend_end = end
    elif hasattr(req, "set_extend_range"):
        req.set_extend_range(prefix, end)
    elif hasattr(req, "set_extend_input_len"):
        req.set_extend_input_len(length)
    else:
        req.extend_input_len = length


def refresh_fill_ids(req: Any) -> None:
    """What `mix_with_running` does to a decoding request's fill ids, in each release's own way."""
    refresh = getattr(req, "refresh_fill_ids", None) or getattr(req, "_refresh_fill_ids", None)
    if refresh is not None:
        refresh()
    else:
        req.fill_ids = req.origin_input_ids + req.output_ids


def dllm_config(state: JobState, block_size: int) -> Any:
    """The engine's configuration of a diffusion model with this block size."""
    return filled(
        state.engine.DllmConfig,
        algorithm="",
        algorithm_config={},
        block_size=block_size,
        mask_id=VOCABULARY,
        max_running_requests=1,
    )


def token_count(forward: BuildForward) -> int:
    """How many tokens the forward feeds. A count of inputs, not a position."""
    rows = len(forward.reqs)
    if forward.positions:
        return len(forward.positions)
    if forward.mode in EXTENDING:
        return sum(length for _, length in forward.batch.windows)
    if forward.mode == "ragged_verify":
        return forward.tier or sum(verify_lens(forward))
    if forward.mode in ("target_verify", "draft_extend_v2"):
        return rows * forward.batch.number("num_draft_tokens")
    return rows * forward.batch.number("topk", 1) if forward.mode == "draft_decode" else rows


def verify_lens(forward: BuildForward) -> list[int]:
    """Nodes of each request of a ragged verify, root included."""
    return [len(parents) + 1 for parents in forward.batch.each("parents")]


def draft_input(state: JobState, forward: BuildForward, device: str) -> Any:
    """A draft input as a verify leaves it, without positions: scores, drafted tokens and hidden states of zeros."""
    rows, topk = len(forward.reqs), forward.batch.number("topk", 1)
    return filled(
        state.engine.EagleDraftInput,
        topk_p=zeros(rows * topk, torch.float32, device).view(rows, topk),
        topk_index=zeros(rows * topk, torch.int64, device).view(rows, topk),
        hidden_states=zeros(rows * HIDDEN, torch.float32, device).view(rows, HIDDEN),
        bonus_tokens=zeros(rows, torch.int64, device),
    )


def for_worker(state: JobState, batch: Any) -> Any:
    """The batch as a worker gets it: itself, or what the scheduler of older releases makes of it."""
    return batch if state.engine.batch_is_schedule_batch else state.meter.call(batch.get_model_worker_batch)


def init_new(state: JobState, batch: Any, model_runner: Any) -> Any:
    """`ForwardBatch.init_new` with the arguments that this release takes."""
    engine = state.engine
    extra: dict[str, Any] = {}
    if "capture_hidden_mode" in engine.init_new_takes:
        extra["capture_hidden_mode"] = engine.CaptureHiddenMode.NULL
    if "return_hidden_states_before_norm" in engine.init_new_takes:
        extra["return_hidden_states_before_norm"] = False
    result = state.meter.call(engine.ForwardBatch.init_new, for_worker(state, batch), model_runner, **extra)
    state.meter.forwards += 1
    return result


class Snapshot:
    """The inputs that the batch constructor may only read, remembered by identity and tensor version counters.

    A version counter moves with every in-place write, so nothing has to be copied.
    """

    def __init__(self, batch: Any) -> None:
        self.batch = batch
        self.seq_lens = batch.seq_lens
        self.seq_lens_version = batch.seq_lens._version
        self.seq_lens_cpu = batch.seq_lens_cpu
        self.seq_lens_cpu_version = None if batch.seq_lens_cpu is None else batch.seq_lens_cpu._version
        self.inputs = batch.multimodal_inputs
        self.media = [media_stamp(inputs) for inputs in self.inputs]
        self.reqs = batch.reqs
        self.members = list(map(id, batch.reqs))

    def changes(self) -> tuple[str, ...]:
        """Names of the inputs that are no longer what they were."""
        batch, changed = self.batch, []
        if batch.seq_lens is not self.seq_lens or batch.seq_lens._version != self.seq_lens_version:
            changed.append("seq_lens")
        host = batch.seq_lens_cpu
        if host is not self.seq_lens_cpu or (host is not None and host._version != self.seq_lens_cpu_version):
            changed.append("seq_lens_cpu")
        if batch.multimodal_inputs is not self.inputs or self.media != [media_stamp(inputs) for inputs in self.inputs]:
            changed.append("multimodal_inputs")
        if batch.reqs is not self.reqs or list(map(id, batch.reqs)) != self.members:
            changed.append("reqs")
        return tuple(changed)


def media_stamp(inputs: Any) -> tuple[int | None, ...] | None:
    """Identity and version of one request's multimodal inputs; None for text."""
    if inputs is None:
        return None
    table, delta, items = inputs.mrope_positions, inputs.mrope_position_delta, inputs.mm_items
    return (
        id(inputs),
        id(table),
        None if table is None else table._version,
        id(delta),
        None if delta is None else delta._version,
        id(items),
        len(items),
    )

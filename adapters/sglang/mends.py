"""The known bugs of SGLang mended in memory, a few lines each: ROPECHECK_MEND names some, or "all".

| spec field | adapter field | engine field |
| --- | --- | --- |
| - | the environment of a worker, or of a play.ServerConfig | the function that a mend goes around |

With every mend a run needs no entry of the known-failure list, and nothing that "follows from" one is left: each was a
consequence, and none hid a bug of its own. A mend is named like the cause (conformance/known) that it ends. Nothing is
changed unless the variable is set; then Hello.faked says so.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import importlib
import inspect
import os
import weakref
from array import array
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

VARIABLE = "ROPECHECK_MEND"
ALL = "all"

Change = tuple[Any, str, Any]
"""(module or class, name, what stands there)."""

BATCH = "sglang.srt.managers.schedule_batch"
SESSION = "sglang.srt.session.session_controller"
SCHEDULER = "sglang.srt.managers.scheduler:Scheduler"
ADDER = "sglang.srt.managers.schedule_policy:PrefillAdder"
SPECULATIVE = "sglang.srt.speculative."
BEAMS = "sglang.srt.beam_search.batch_tail"
SEARCH = "sglang.srt.beam_search.coordinator:BeamCoordinator.validate_and_init"
TOP_UP = "sglang.srt.managers.mm_utils:extend_mrope_positions_for_retracted_request"
NEXT_ROUND = f"{BATCH}:Req.init_next_round_input"
CREATE = f"{SESSION}:Session.create_req"
STRIP = f"{SESSION}:Session._strip_bos_token"
COMPUTE = "sglang.srt.model_executor.forward_batch_info:ForwardBatch.compute_spec_mrope_positions"
FROZEN = f"{SPECULATIVE}frozen_kv_mtp_cuda_graph_runner:FrozenKVMTPCudaGraphRunner.execute"
MULTI_LAYER = (
    f"{SPECULATIVE}multi_layer_eagle_draft_extend_cuda_graph_runner:"
    "MultiLayerEagleMultiStepDraftExtendCudaGraphRunner.prepare"
)
READER = "sglang.srt.layers.rotary_embedding.mrope:MRotaryEmbedding.forward_native"


def text_after_the_largest(original: Any, table: Any, outputs: int) -> Any:
    """A retracted request's outputs go on after the largest position of its table."""
    if outputs <= 0:
        return table
    return torch.cat([table, (table.max() + 1 + torch.arange(outputs)).expand(3, -1)], dim=1)


def topped_up_once(original: Any, req: Any, *args: Any, **kwargs: Any) -> None:
    """A retracted request's table never has more columns than the request has tokens."""
    original(req, *args, **kwargs)
    held = req.multimodal_inputs
    if req.is_retracted and held is not None and held.mrope_positions is not None:
        held.mrope_positions = held.mrope_positions[:, : len(req.origin_input_ids) + len(req.output_ids)]


def a_table_of_its_own(original: Any, req: Any, *args: Any, **kwargs: Any) -> None:
    """A retracted request is topped up in media inputs of its own, not in those that it shares with its parent."""
    if req.is_retracted and req.multimodal_inputs is not None:
        req.multimodal_inputs = dataclasses.replace(req.multimodal_inputs)
    original(req, *args, **kwargs)


def cut_with_the_tokens(original: Any, session: Any, turn: Any, *args: Any, **kwargs: Any) -> Any:
    """A turn with an offset keeps of its parent's table and items what belongs to the tokens that it keeps."""
    made = original(session, turn, *args, **kwargs)
    if turn.session_params.offset and made.multimodal_inputs is not None:
        kept = len(made.origin_input_ids) - len(turn.input_ids)
        made.multimodal_inputs = cut(made.multimodal_inputs, kept)
    return made


def media_stand_behind(original: Any, req: Any, inputs: Any) -> None:
    """A turn's media stand behind its whole history, in inputs of its own; what was put aside for decodes stays."""
    held, own = req.multimodal_inputs, inputs.mrope_positions
    before = torch.zeros(3, 0, dtype=own.dtype) if held is None else held.mrope_positions
    before = whole(before, len(req.origin_input_ids) - own.shape[1])
    table = torch.cat([before, own + first_free(before)], dim=1)
    delta = (table.max() + 1 - table.shape[1]).reshape(1, 1)
    items = inputs.mm_items if held is None else [*held.mm_items, *inputs.mm_items]
    fields = {"mrope_positions": table, "mrope_position_delta": delta}
    req.multimodal_inputs = dataclasses.replace(held or inputs, mm_items=items, **fields)


def its_table_is_whole(original: Any, session: Any, turn: Any, *args: Any, **kwargs: Any) -> Any:
    """A turn of text behind media has columns for its whole prompt."""
    made = original(session, turn, *args, **kwargs)
    held = made.multimodal_inputs
    tokens = len(made.origin_input_ids)
    if held is not None and turn.mm_inputs is None and held.mrope_positions.shape[1] < tokens:
        made.multimodal_inputs = dataclasses.replace(held, mrope_positions=whole(held.mrope_positions, tokens))
    return made


def whole(table: Any, tokens: int) -> Any:
    """The columns of so many tokens: behind the table stands text."""
    text = first_free(table) + torch.arange(max(0, tokens - table.shape[1]))
    return torch.cat([table[:, :tokens], text.expand(3, -1)], dim=1)


def first_free(table: Any) -> int:
    """The position behind the largest of a table."""
    return int(table.max()) + 1 if table.numel() else 0


def nothing_put_aside_stays(original: Any, req: Any, inputs: Any) -> None:
    """What decodes add to a length is made anew when there is a delta more."""
    original(req, inputs)
    req.multimodal_inputs.mrope_position_delta_repeated_cache = None


def nothing_is_carried(original: Any, session: Any, turn: Any, *args: Any, **kwargs: Any) -> Any:
    """A turn's tokens are put together anew once its media are in them."""
    made = original(session, turn, *args, **kwargs)
    made.full_untruncated_fill_ids = array("q")
    return made


def a_refused_turn_is_none(original: Any, req: Any, *args: Any, **kwargs: Any) -> None:
    """A turn that is refused after it was made leaves its session's tree."""
    original(req, *args, **kwargs)
    nodes = getattr(req.session, "req_nodes", {})
    node = nodes.get(req.rid)
    if node is not None and node.req is req and not req.session.streaming:
        del nodes[req.rid]
        if node.parent is not None:
            node.parent.children.remove(node)


def embeddings_have_ids(original: Any, session: Any, turn: Any, *args: Any, **kwargs: Any) -> Any:
    """A turn of embeddings has an id in the place of each, as a request of no session has."""
    if turn.input_ids is None and turn.input_embeds is not None:
        turn.input_ids = array("q", [1]) * len(turn.input_embeds)
    return original(session, turn, *args, **kwargs)


def nothing_is_kept(original: Any, session: Any, turn: Any, *args: Any, **kwargs: Any) -> Any:
    """An offset of 0 is one: it keeps no token, and a streaming session refuses it."""
    if turn.session_params.offset == 0:
        turn.session_params.offset = -(1 << 60)
    return original(session, turn, *args, **kwargs)


def cut(inputs: Any, tokens: int) -> Any:
    """The media inputs of a history's first tokens; None where they hold no media."""
    items = []
    for item in inputs.mm_items:
        spans = [(start, min(last, tokens - 1)) for start, last in item.offsets or () if start < tokens]
        if spans:
            kept = copy.copy(item)
            kept.offsets = spans
            items.append(kept)
    if not items:
        return None
    table, delta = inputs.mrope_positions, inputs.mrope_position_delta
    if table is not None and tokens < table.shape[1]:
        table = table[:, :tokens]
        delta = (table.max() + 1 - tokens).reshape(1, 1)
    fields = {"mrope_positions": table, "mrope_position_delta": delta, "mrope_position_delta_repeated_cache": None}
    return dataclasses.replace(inputs, mm_items=items, **fields)


def its_column_leaves_too(original: Any, session: Any, turn: Any, tokenizer: Any) -> None:
    """The table of a turn whose start of sequence is left out has no column for it."""
    tokens = len(turn.input_ids)
    original(turn, tokenizer)
    media = turn.mm_inputs
    if media and len(turn.input_ids) < tokens and media.mrope_positions is not None:
        media.mrope_positions = media.mrope_positions[:, 1:] - 1


def cleared_beforehand(original: Any, session: Any, turn: Any, *args: Any, **kwargs: Any) -> Any:
    """The turns of a session that starts afresh are cleared one by one, and not while their dict is walked."""
    if turn.session_params.replace and turn.session_params.rid is None and not session.streaming:
        while session.req_nodes:
            next(iter(session.req_nodes.values())).clear(session.req_nodes)
    return original(session, turn, *args, **kwargs)


def refused_turns_leave(original: Any, session: Any, *args: Any, **kwargs: Any) -> Any:
    """A turn that is refused keeps no media and no session of its parent's."""
    made = original(session, *args, **kwargs)
    if made.to_finish is not None:
        made.session = made.multimodal_inputs = None
    return made


def a_close_waits(original: Any, controller: Any, name: str) -> None:
    """An ordinary session with an unfinished turn is closed when that turn has ended, as a streaming one is."""
    session = controller.sessions[name]
    if session.streaming or controller._all_requests_finished(session):
        original(controller, name)
    else:
        session.close_on_finish = True


def media_stay_until_the_close(original: Any, req: Any) -> None:
    """A turn of an ordinary session that can be continued keeps its media, however it ended."""
    if req.session is None or req.session.streaming or not isinstance(req.finished_reason, finish_abort()):
        original(req)


def also_of_one_that_waits(original: Any, scheduler: Any, req: Any) -> None:
    """So does one that is given up while it waits."""
    held = req.multimodal_inputs
    original(scheduler, req)
    if req.session is not None and not req.session.streaming:
        req.multimodal_inputs = held


def finish_abort() -> Any:
    """The engine's reason of a request that was given up."""
    return importlib.import_module(BATCH).FINISH_ABORT


def columns_by_their_owner(original: Any, made: Any, runner: Any, batch: Any, seq_positions: Any = None) -> None:
    """Packed columns belong to requests by their counts; the tail behind them stays as it is."""
    layout = getattr(batch.spec_info, "ragged_verify_layout", None)
    if layout is None:
        original(made, runner, batch, seq_positions)
    else:
        made.mrope_positions = columns(batch, batch.spec_info.positions, layout.verify_lens_cpu)


def drafts_read_the_table(original: Any, made: Any, runner: Any, batch: Any, seq_positions: Any = None) -> None:
    """A draft that stands at tokens of the prompt reads their columns from its table."""
    info = batch.spec_info
    if "FrozenKV" not in type(info).__name__ and not getattr(info, "num_front_tokens", 0):
        original(made, runner, batch, seq_positions)
        return
    places = info.positions if seq_positions is None else seq_positions
    rows = len(batch.multimodal_inputs)
    made.mrope_positions = columns(batch, places, [places.numel() // rows] * rows)


def columns(batch: Any, places: Any, counts: Iterable[int]) -> Any:
    """[3, width]: of every token index its request's column. counts: columns of each request, in its order."""
    rows = places.to(torch.int64).flatten().repeat(3, 1)
    start = 0
    for inputs, count in zip(batch.multimodal_inputs, counts, strict=True):
        for at in range(start, start + count if inputs is not None else start):
            index, table = int(rows[0, at]), inputs.mrope_positions
            rows[:, at] = table[:, index] if index < table.shape[1] else index + inputs.mrope_position_delta.item()
        start += count
    return rows


def rows_are_zeroed_too(original: Any, runner: Any, *args: Any, **kwargs: Any) -> Any:
    """A frozen-KV draft's runner empties its three rows as it does the one."""
    runner.buffers.mrope_positions.zero_()
    return original(runner, *args, **kwargs)


def rows_are_copied_too(original: Any, runner: Any, batch: Any, **kwargs: Any) -> Any:
    """The runner of a multi-layer draft extend copies the three rows into its buffers."""
    answer = original(runner, batch, **kwargs)
    if batch.mrope_positions is not None:
        runner.buffers.mrope_positions.zero_()
        runner.buffers.mrope_positions[:, : batch.mrope_positions.shape[1]].copy_(batch.mrope_positions)
    return answer


def members_have_media(original: Any, batch: Any) -> None:
    """The rows of a beam tail have media inputs, their leaders', as long as the tail is on."""
    original(batch)
    if batch.beam_tail is not None and batch.multimodal_inputs is not None:
        leaders = [one.leader_idx for one in batch.beam_tail.entries for _ in range(one.start, one.end)]
        batch.multimodal_inputs = [*batch.multimodal_inputs, *(batch.multimodal_inputs[n] for n in leaders)]


def and_leave_with_it(original: Any, batch: Any) -> None:
    """The tail is taken off."""
    if batch.beam_tail is not None and batch.multimodal_inputs is not None:
        batch.multimodal_inputs = batch.multimodal_inputs[: batch.beam_tail.num_base_rows]
    original(batch)


def a_retracted_turn_is_unfinished(original: Any, session: Any, turn: Any) -> None:
    """A streaming session's turn that was retracted stays its turn in flight."""
    if turn.finished():
        original(session, turn)


def notes_itself(original: Any, adder: Any, *args: Any, **kwargs: Any) -> None:
    """The batch that is being put together can be found."""
    original(adder, *args, **kwargs)
    _ADDER[:] = [weakref.ref(adder)]


def rows_are_promised_at_once(original: Any, scheduler: Any, *args: Any, **kwargs: Any) -> int:
    """What the searches of the batch that is being put together will need is no longer free."""
    adders = filter(None, (ref() for ref in _ADDER))
    groups = [req.beam_group for adder in adders for req in adder.can_run_list if req.beam_group is not None]
    promised: int = sum(group.beam_width - 1 for group in groups)
    return int(original(scheduler, *args, **kwargs)) - promised


def searches_are_not_preempted(original: Any, adder: Any, *args: Any, **kwargs: Any) -> bool:
    """A request of a higher priority waits for beam searches, which cannot be retracted."""
    if any(req.beam_group is not None for req in adder.running_batch.reqs):
        return False
    return bool(original(adder, *args, **kwargs))


_ADDER: list[weakref.ref[Any]] = []
"""The engine's latest PrefillAdder, which is not kept: it holds requests."""


def searches_stay(original: Any, scheduler: Any, message: Any) -> None:
    """A pause with retraction leaves beam searches, which cannot be retracted, in the running batch."""
    last, running = scheduler.last_batch, scheduler.running_batch
    batches = [running] if last is None else [running, last]
    if message.mode != "retract" or all(req.beam_group is None for batch in batches for req in batch.reqs):
        original(scheduler, message)
        return
    if scheduler.enable_overlap and last is not None:
        scheduler.process_batch_result(*scheduler.result_queue.popleft())
    if last is not None and last is not running:
        last.filter_batch(reqs_to_exclude=[scheduler.chunked_req])
        if running.is_empty():
            running = last
        elif not last.is_empty():
            running.merge_batch(last)
    others = copy.copy(running)
    others.reqs = [req for req in running.reqs if req.beam_group is None]
    scheduler.last_batch, scheduler.running_batch = None, others
    original(scheduler, message)
    running.filter_batch(keep_indices=[n for n, req in enumerate(running.reqs) if req.beam_group is not None])
    running.batch_is_full = False
    scheduler.running_batch = running


def searches_are_not_gathered(original: Any, coordinator: Any, *args: Any) -> Any:
    """A search is refused wherever a forward is padded by its number of requests, as it is with attention DP."""
    from sglang.srt.utils.common import require_mlp_sync

    return "not where forwards are padded to be gathered" if require_mlp_sync() else original(coordinator, *args)


def chunks_are_kept(original: Any, coordinator: Any, req: Any, *args: Any) -> Any:
    """What a search has computed of its prompt goes where everybody's goes."""
    refused = original(coordinator, req, *args)
    req.skip_radix_cache_insert = False
    return refused


def a_turn_takes_over(original: Any, sessions: Any, req: Any) -> None:
    """On a decode server a turn's cache comes whole: what the turn before it left is released first."""
    if (session := req.session) is not None and session.streaming and sessions.borrowed_slot(req) is None:
        sessions.release_session(session.session_id)
    original(sessions, req)


def a_failed_turn_is_over(original: Any, req: Any, *args: Any, **kwargs: Any) -> None:
    """On a decode server a turn whose cache never came is its session's turn in flight no more."""
    original(req, *args, **kwargs)
    if req.session is not None and req.session.streaming:
        req.session.abort_req()


def one_stage(original: Any, worker: Any, *args: Any, pp_proxy_tensors: Any = None, **kwargs: Any) -> Any:
    """A worker that knows of no pipeline's stages is told of none."""
    return original(worker, *args, **kwargs)


def the_reader_grows(original: Any, embedding: Any, positions: Any, *args: Any, **kwargs: Any) -> Any:
    """The rotary embedding prepares as many positions as the table asks for."""
    if positions.numel():
        embedding._ensure_cos_sin_cache_length(int(positions.max()))
    return original(embedding, positions, *args, **kwargs)


def by_the_map(original: Any, embedding: Any, positions: Any, *args: Any, **kwargs: Any) -> Any:
    """The tensor version deals out sections as the kernel does, by the embedding's own map of pairs."""
    if positions.ndim == 1 or not getattr(embedding, "mrope_interleaved_glm", False):
        return original(embedding, positions, *args, **kwargs)
    whole = embedding.cos_sin_cache
    turned = whole[positions]  # [3, T, 2 * pairs]
    axes = embedding.axis_map.to(turned.device).repeat(2)
    lanes = torch.arange(len(axes), device=turned.device)
    embedding.cos_sin_cache = turned[axes, :, lanes].transpose(0, 1)
    try:
        return original(embedding, torch.arange(positions.shape[-1], device=positions.device), *args, **kwargs)
    finally:
        embedding.cos_sin_cache = whole


Mend = dict[str, Callable[..., Any]]
"""A function of the engine -> what is called instead, with that function in front of its arguments."""

MEMBERS: Mend = {
    f"{place}:{name}": instead
    for place in (BEAMS, BATCH)  # the second has imported the names
    for name, instead in (("append_beam_tail", members_have_media), ("strip_beam_tail", and_leave_with_it))
}

MENDS: dict[str, Mend] = {
    "retraction-continues-from-t": {TOP_UP: text_after_the_largest},
    "retraction-tops-up-again": {NEXT_ROUND: topped_up_once},
    "retraction-grows-a-shared-table": {NEXT_ROUND: a_table_of_its_own},
    "offset-keeps-the-parents-media": {CREATE: cut_with_the_tokens},
    "a-start-of-sequence-keeps-its-column": {STRIP: its_column_leaves_too},
    "replace-all-changes-a-dict-in-a-loop": {CREATE: cleared_beforehand},
    "packed-columns-in-equal-shares": {COMPUTE: columns_by_their_owner},
    "frozen-kv-padding-is-stale": {FROZEN: rows_are_zeroed_too},
    "multi-layer-rows-are-never-copied": {MULTI_LAYER: rows_are_copied_too},
    "members-have-no-delta": MEMBERS,
    "retraction-ends-a-turn": {f"{SESSION}:Session.finish_req": a_retracted_turn_is_unfinished},
    "pause-retracts-a-search": {f"{SCHEDULER}.pause_generation": searches_stay},
    "preemption-retracts-a-search": {f"{ADDER}.preempt_to_schedule": searches_are_not_preempted},
    "rows-are-promised-twice": {
        f"{ADDER}.__init__": notes_itself,
        f"{SCHEDULER}.get_num_allocatable_reqs": rows_are_promised_at_once,
    },
    "transferred-turn-has-a-record-too-many": {
        "sglang.srt.session.streaming_session:StreamingSession.take": a_turn_takes_over
    },
    "failed-transfer-stays-in-flight": {"sglang.srt.disaggregation.decode:prepare_abort": a_failed_turn_is_over},
    "padding-counts-no-beams": {SEARCH: searches_are_not_gathered},
    "text-is-drafted-from": {COMPUTE: drafts_read_the_table},
    "worker-knows-no-stages": {
        f"{SPECULATIVE}frozen_kv_mtp_worker_v2:FrozenKVMTPWorkerV2.forward_batch_generation": one_stage
    },
    "positions-pass-the-reader": {READER: the_reader_grows},
    "glm-sections-in-tensors-as-qwens": {READER: by_the_map},
    "refused-turn-goes-on": {CREATE: refused_turns_leave},
    "close-drops-the-media": {f"{SESSION}:SessionController._close": a_close_waits},
    "abort-drops-the-media": {
        f"{BATCH}:Req.release_mm_inputs_on_abort": media_stay_until_the_close,
        f"{SCHEDULER}._release_aborted_request": also_of_one_that_waits,
    },
    "offset-zero-is-none": {CREATE: nothing_is_kept},
    "too-long-a-turn-stays": {f"{BATCH}:Req.set_finish_with_abort": a_refused_turn_is_none},
    "embeddings-are-no-turn": {CREATE: embeddings_have_ids},
}
"""Cause -> what ends it. Causes of scenarios and of scripts may be ended alike."""

JOIN = f"{BATCH}:Req.extend_image_inputs"
PAST: dict[str, Mend] = {
    "media-join-the-parents": {JOIN: media_stand_behind},
    "windows-end-with-the-table": {CREATE: its_table_is_whole},
    "chunks-of-a-search-are-not-kept": {SEARCH: chunks_are_kept},
    "carried-tokens-keep-placeholders": {CREATE: nothing_is_carried},
    "a-delta-put-aside-stays": {JOIN: nothing_put_aside_stays},
}
"""The same for causes that only releases before 0.5.23 have; "all" leaves them out."""


def install() -> tuple[str, ...]:
    """Mend what the environment names; what Hello says of it. Raises KeyError for an unknown name, AttributeError and
    ImportError in a release without such a function."""
    names = [name for name in os.environ.get(VARIABLE, "").split(",") if name]
    if ALL in names:
        names = list(MENDS)
    mend(names)
    return tuple(f"MENDED in memory: {name}" for name in names)


def mend(names: Iterable[str]) -> list[Change]:
    """Mend these causes; returns what takes it back, in that order."""
    return put(dict.fromkeys(pair for name in names for pair in (MENDS | PAST)[name].items()))


def put(changes: Iterable[tuple[str, Callable[..., Any]]]) -> list[Change]:
    """Call these instead of functions of the engine; returns what takes it back, in that order."""
    undo: list[Change] = []
    for place, instead in changes:
        module, _, function = place.partition(":")
        owner: Any = importlib.import_module(module)
        holder, _, name = function.rpartition(".")
        owner = getattr(owner, holder) if holder else owner
        undo.append((owner, name, inspect.getattr_static(owner, name)))
        setattr(owner, name, around(getattr(owner, name), instead))
    return undo[::-1]


def around(original: Any, instead: Callable[..., Any]) -> Any:
    """A function that calls `instead` with the original in front."""

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        return instead(original, *args, **kwargs)

    return call


@contextlib.contextmanager
def changed(changes: Mend) -> Iterator[None]:
    """These are called instead meanwhile."""
    undo = put(changes.items())
    try:
        yield
    finally:
        for owner, name, value in undo:
            setattr(owner, name, value)

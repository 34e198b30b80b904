"""Faults in functions of the real engine: for each rule on scenarios one that it must catch, and where."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch

from ropecheck.adapters.sglang.mends import (
    BATCH,
    COMPUTE,
    CREATE,
    FROZEN,
    MULTI_LAYER,
    NEXT_ROUND,
    READER,
    TOP_UP,
    Mend,
)

FORWARD = "sglang.srt.model_executor.forward_batch_info:ForwardBatch"
BUILD = f"{FORWARD}.init_new"
CACHED_DELTA = f"{FORWARD}._expand_mrope_from_input"
JOIN = f"{BATCH}:Req._extend_session_image_inputs"
REFRESH = f"{BATCH}:Req.refresh_fill_ids"
RETRACT = f"{BATCH}:Req.reset_for_retract"
MATCH = f"{BATCH}:match_kv_cache"
PAD = "sglang.srt.managers.mm_utils:MultiModalityDataPaddingPatternMultimodalTokens.pad_input_tokens"
GRAPH = "sglang.srt.model_executor.runner.decode_cuda_graph_runner:DecodeCudaGraphRunner"
DRAFT = "sglang.srt.speculative.eagle_worker_v2:EagleDraftWorker.draft_forward"
ROTARY = "sglang.srt.layers.rotary_embedding.mrope"

Batch = Callable[[Any, Any], None]
"""(the forward batch that was built, the batch that it was built from) -> changes it."""


def built(mode: str, change: Batch) -> Mend:
    """Forwards of this mode, or of all (""), come out changed."""

    def instead(original: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        made = original(batch, *args, **kwargs)
        if made.forward_mode.name == mode or not mode:
            change(made, batch)
        return made

    return {BUILD: instead}


def rows(mode: str, value: Callable[[Any, Any], Any]) -> Mend:
    """The three rows are other ones. value: of the rows, and of the batch."""

    def change(made: Any, batch: Any) -> None:
        if made.mrope_positions is not None:
            made.mrope_positions = value(made.mrope_positions, batch)

    return built(mode, change)


def shifted(mode: str, when: Callable[[Any], bool] = lambda batch: True) -> Mend:
    """The three rows of some batches are one too large."""
    return rows(mode, lambda table, batch: table + int(when(batch)))


def every_second() -> Mend:
    """Every second forward comes out shifted."""
    seen = [0]

    def value(table: Any, _: Any) -> Any:
        seen[0] += 1
        return table + seen[0] % 2

    return rows("", value)


def indices(mode: str) -> Mend:
    """The 1-D table is one too large."""

    def change(made: Any, _: Any) -> None:
        made.positions = made.positions + 1

    return built(mode, change)


def unset(mode: str) -> Mend:
    """There are no three rows."""

    def change(made: Any, _: Any) -> None:
        made.mrope_positions = None

    return built(mode, change)


def tail_filled(table: Any, _: Any) -> Any:
    """The last column is stale."""
    filled = table.clone()
    filled[:, -1] = 5
    return filled


def written(made: Any, batch: Any) -> None:
    """An input is written to."""
    batch.seq_lens.add_(0)


def copied(made: Any, _: Any) -> None:
    """Three numbers more go to the device than must."""
    for _ in range(3):
        made.seq_lens.new_tensor([1], device="cpu").to(made.seq_lens.device)


def waited(_: Any, batch: Any) -> None:
    """The host reads a value of the device."""
    batch.seq_lens.sum().item()


def considered(change: Callable[[Any], None]) -> Mend:
    """A request is changed whenever the scheduler considers it."""

    def instead(original: Any, req: Any, *args: Any, **kwargs: Any) -> None:
        original(req, *args, **kwargs)
        change(req)

    return {NEXT_ROUND: instead}


def of_media(change: Callable[[Any], None]) -> Callable[[Any], None]:
    """The same of a request's media inputs, where it has any."""

    def on(req: Any) -> None:
        if req.multimodal_inputs is not None:
            change(req.multimodal_inputs)

    return on


def aborted(req: Any) -> None:
    """It is given up."""
    from sglang.srt.managers.schedule_batch import FINISH_ABORT

    req.to_finish = FINISH_ABORT("planted")


def another_delta(inputs: Any) -> None:
    """The delta is one too large."""
    inputs.mrope_position_delta = inputs.mrope_position_delta + 1


def another_table(inputs: Any) -> None:
    """Every column is one too large."""
    inputs.mrope_positions = inputs.mrope_positions + 1


def moved_items(inputs: Any) -> None:
    """Items claim tokens beside their own."""
    for item in inputs.mm_items:
        item.offsets = [(start + 1, last + 1) for start, last in item.offsets]


def fewer_outputs(req: Any) -> None:
    """The newest output is lost."""
    if req.output_ids:
        req.output_ids = req.output_ids[:-1]


def another_pad(req: Any) -> None:
    """A placeholder's pad value changes."""
    if req.multimodal_inputs is not None:
        req.origin_input_ids[req.multimodal_inputs.mm_items[0].offsets[0][0]] += 1


def another_word(req: Any) -> None:
    """The client's first token is another one."""
    req.origin_input_ids_unpadded = req.origin_input_ids_unpadded[:]
    req.origin_input_ids_unpadded[0] += 1


def the_one_before() -> Callable[[Any], None]:
    """The table of the request that was considered before is written to."""
    seen: list[Any] = []

    def change(req: Any) -> None:
        if seen and seen[-1] is not req and seen[-1].multimodal_inputs is not None:
            seen[-1].multimodal_inputs.mrope_positions.add_(1)
        seen.append(req)

    return change


def retracted(change: Callable[[Any], None]) -> Callable[[Any], None]:
    """Only of a request that was retracted."""
    return lambda req: change(req) if req.is_retracted else None


def afterwards(place: str, change: Callable[..., None]) -> Mend:
    """Something is changed when the function has run. change: of its first argument."""

    def instead(original: Any, first: Any, *args: Any, **kwargs: Any) -> Any:
        answer = original(first, *args, **kwargs)
        change(first)
        return answer

    return {place: instead}


def cache_left(original: Any, made: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
    """What is cached of a delta is another delta's."""
    answer = original(made, inputs, *args, **kwargs)
    if inputs.mrope_position_delta_repeated_cache is not None:
        inputs.mrope_position_delta_repeated_cache = inputs.mrope_position_delta_repeated_cache + 1
    return answer


def fewer_to_fill(req: Any) -> None:
    """The last token is not prefilled."""
    req.full_untruncated_fill_ids = req.full_untruncated_fill_ids[:-1]


def no_outputs(req: Any) -> None:
    """A retracted request forgets its outputs."""
    req.output_ids = req.output_ids[:0]


def fewer_found(req: Any) -> None:
    """The prefix cache is said to hold a token less."""
    req.prefix_len = max(req.prefix_len - 1, 0)


def not_padded(original: Any, pattern: Any, ids: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
    """Placeholders stay as they came."""
    return ids


def topped_up_late(original: Any, table: Any, outputs: int) -> Any:
    """Columns for outputs are one too large."""
    answer = original(table, outputs)
    return answer if outputs <= 0 else torch.cat([answer[:, :-outputs], answer[:, -outputs:] + 1], dim=1)


def created(change: Callable[[Any, Any, Any], None]) -> Mend:
    """A session's new request comes out changed. change: of the session, of what arrived and of the request."""

    def instead(original: Any, session: Any, turn: Any, *args: Any, **kwargs: Any) -> Any:
        made = original(session, turn, *args, **kwargs)
        if made.to_finish is None:
            change(session, turn, made)
        return made

    return {CREATE: instead}


def a_token_lost(_: Any, turn: Any, made: Any) -> None:
    """Of a turn's whole prompt the last token is missing."""
    made.origin_input_ids_unpadded = made.origin_input_ids_unpadded[:-1]


def refused(_: Any, turn: Any, made: Any) -> None:
    """Every turn is refused."""
    made.set_finish_with_abort("planted")


def parent_written(session: Any, turn: Any, made: Any) -> None:
    """The saved parent's delta is written to."""
    node = session.req_nodes.get(turn.session_params.rid)
    if node is not None and node.req.multimodal_inputs is not None:
        node.req.multimodal_inputs.mrope_position_delta.add_(1)


def whole_reply(original: Any, session: Any, turn: Any, *args: Any, **kwargs: Any) -> Any:
    """A turn goes on from all that was generated, whatever was asked for."""
    for node in session.req_nodes.values():
        node.req.sampling_params.max_new_tokens = 1 << 20
    return original(session, turn, *args, **kwargs)


def graph_buffers(change: Callable[[Any, int], None]) -> Mend:
    """The rows of a decode graph's buffer are changed after loading. change: of the rows, and of how many are live."""

    def instead(original: Any, runner: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        answer = original(runner, batch, *args, **kwargs)
        change(runner.buffers.mrope_positions, batch.positions.shape[0])
        return answer

    return {f"{GRAPH}.load_batch": instead}


def first_column(table: Any, _: int) -> None:
    """The first live column is another one."""
    table[:, 0] += 1


def behind(table: Any, live: int) -> None:
    """What stands behind the live columns is not emptied."""
    table[:, live:] = 7


def larger_graph(original: Any, runner: Any, **sizes: int) -> int:
    """A graph of one request more is replayed."""
    return int(original(runner, **sizes)) + 1


def each_forward_twice(original: Any, worker: Any, batch: Any) -> Any:
    """The draft loop runs every forward twice."""
    runner, once = worker.draft_runner, worker.draft_runner.forward

    def twice(*args: Any, **kwargs: Any) -> Any:
        once(*args, **kwargs)
        return once(*args, **kwargs)

    runner.forward = twice
    try:
        return original(worker, batch)
    finally:
        runner.forward = once


def read(value: Callable[[Any], Any], place: str = READER) -> Mend:
    """The rotary embedding reads another table."""

    def instead(original: Any, embedding: Any, positions: Any, *args: Any, **kwargs: Any) -> Any:
        return original(embedding, value(positions), *args, **kwargs)

    return {place: instead}


def turned(value: Callable[[Any], Any], place: str = READER) -> Mend:
    """What the rotary embedding answers for the queries is another thing."""

    def instead(original: Any, *args: Any, **kwargs: Any) -> Any:
        query, key = original(*args, **kwargs)
        return value(query), key

    return {place: instead}


def table_written(original: Any, embedding: Any, positions: Any, *args: Any, **kwargs: Any) -> Any:
    """The table is not what it was afterwards."""
    answer = original(embedding, positions, *args, **kwargs)
    positions.add_(1)
    return answer


def ends_early(original: Any, embedding: Any, *args: Any, **kwargs: Any) -> Any:
    """Few positions are prepared."""
    embedding.cos_sin_cache = embedding.cos_sin_cache[:2]
    return original(embedding, *args, **kwargs)


def as_if_packed(table: Any) -> Any:
    """A view of a wider buffer is read as if its rows followed one another."""
    return table if table.ndim == 1 else torch.as_strided(table, table.shape, (table.shape[1], 1))


FAULTS: dict[str, Mend] = {
    "table.present": unset("DECODE"),
    "table.dtype": rows("EXTEND", lambda table, _: table.to(torch.int32)),
    "table.three_rows": rows("DECODE", lambda table, _: table[:2]),
    "table.width": rows("DECODE", lambda table, _: torch.cat([table, table[:, -1:]], dim=1)),
    "table.index": indices("EXTEND"),
    "table.text_only": shifted("DECODE"),
    "table.inside_table": rows("EXTEND", lambda table, _: table[[0, 1, 1]]),
    "table.past_table": shifted("DECODE"),
    "table.forwards": {DRAFT: each_forward_twice},
    "padding.live_columns": graph_buffers(first_column),
    "padding.harmless_fill": graph_buffers(behind),
    "padding.width": {f"{GRAPH}._capture_graph_size": larger_graph},
    "padding.tail": rows("TARGET_VERIFY", tail_filled),
    "ownership.batch_is_read_only": built("DECODE", written),
    "ownership.others_unchanged": considered(the_one_before()),
    "ownership.parent_unchanged": created(parent_written),
    "cost.device_values": built("DECODE", waited),
    "cost.host_lengths": built("", copied),
    "cost.media": built("DECODE", copied),
    "cost.text_only": built("DECODE", copied),
    "laws.same_step_twice": every_second(),
    "laws.chunked_prefill_is_one_prefill": shifted("EXTEND", lambda batch: any(batch.prefix_lens)),
    "laws.extend_composes": rows("EXTEND", lambda table, batch: table + batch.prefix_lens[0]),
    "laws.verify_chain_is_decodes": shifted("TARGET_VERIFY"),
    "laws.speculation_places_the_same": shifted("TARGET_VERIFY"),
    "laws.one_token_one_column": shifted("TARGET_VERIFY"),
    "laws.draft_extend_is_verify_chain": shifted("DRAFT_EXTEND_V2"),
    "laws.draft_step_is_a_decode": shifted("DECODE", lambda batch: batch.spec_info is not None),
    "laws.append_is_a_fresh_request": shifted("EXTEND", lambda batch: batch.reqs[0].session is not None),
    "laws.branch_is_its_own_history": shifted("EXTEND", lambda batch: batch.reqs[0].session is not None),
    "laws.retract_and_resume": shifted("EXTEND", lambda batch: bool(batch.reqs[0].output_ids)),
    "laws.batch_order": rows("", lambda table, _: table + torch.arange(table.shape[1])),
    "laws.batch_split": rows("", lambda table, batch: table + len(batch.reqs) - 1),
    "laws.text_rows_are_the_index": shifted("EXTEND"),
    "freshness.delta_cache": {CACHED_DELTA: cache_left},
    "freshness.fill_ids": afterwards(REFRESH, fewer_to_fill),
    "freshness.padded_media": {PAD: not_padded},
    "request.aborted": considered(aborted),
    "request.delta": considered(of_media(another_delta)),
    "request.media_spans": considered(of_media(moved_items)),
    "request.outputs": considered(fewer_outputs),
    "request.pad_values": considered(another_pad),
    "request.prefix_len": afterwards(MATCH, fewer_found),
    "request.prompt": considered(another_word),
    "request.table": considered(of_media(another_table)),
    "retraction.same_history": afterwards(RETRACT, no_outputs),
    "retraction.table": {TOP_UP: topped_up_late},
    "retraction.refused_attempts": considered(retracted(of_media(another_table))),
    "session.append": created(a_token_lost),
    "session.branch": created(a_token_lost),
    "session.streaming_append": created(a_token_lost),
    "session.replace_with_parent": created(a_token_lost),
    "session.replace_all": created(a_token_lost),
    "session.offset": created(a_token_lost),
    "session.drop_previous_output": created(a_token_lost),
    "session.abort_and_retry": created(a_token_lost),
    "session.reply_that_counts": {CREATE: whole_reply},
    "session.refused": created(refused),
    "session.table": afterwards(JOIN, of_media(another_table)),
    "session.delta": afterwards(JOIN, of_media(another_delta)),
    "session.media_spans": afterwards(JOIN, of_media(moved_items)),
    "rotary.rotation": turned(lambda query: query + 1),
    "rotary.contiguous_sections": read(lambda table: table.flip(0)),
    "rotary.interleaved_sections": read(lambda table: table.flip(0)),
    "rotary.alternating_sections": read(
        lambda table: table.flip(0), f"{ROTARY}:Ernie4_5_VLRotaryEmbedding.forward_native"
    ),
    "rotary.every_row_counts": read(lambda table: table[:1].expand(table.shape)),
    "rotary.scaling": turned(lambda query: query * 1.1),
    "rotary.table_is_read_only": {READER: table_written},
    "rotary.view_is_a_copy": read(as_if_packed),
    "rotary.readers_bound": {READER: ends_early},
}
"""Rule -> what is called instead of which function of the engine."""


def joined_as_text(req: Any) -> None:
    """Every picture that a session is given stands as text."""
    held = req.multimodal_inputs
    held.mrope_positions = torch.arange(held.mrope_positions.shape[1]).repeat(3, 1)


def raises_in_its_own_words(original: Any, made: Any, runner: Any, batch: Any, seq_positions: Any = None) -> None:
    """The packed positions do not fit, whatever their number."""
    original(made, runner, batch, torch.zeros(len(batch.reqs) * 2 + 1, dtype=torch.int64))


def held(change: Callable[[Any], None]) -> Mend:
    """Media inputs of a request are changed, whenever it is considered and when it comes to a session."""
    on = of_media(change)
    return {**considered(on), **created(lambda session, turn, made: on(made))}


class Odd(dict[Any, Any]):
    """Turns that cannot be walked through."""

    def items(self) -> Any:
        raise RuntimeError("planted")


def turns_that_raise(original: Any, session: Any, *args: Any, **kwargs: Any) -> Any:
    """Walking through a session's turns raises, with an error of the same kind as a known one's."""
    session.req_nodes = Odd(session.req_nodes)
    return original(session, *args, **kwargs)


OTHERS: dict[str, Mend] = {
    "every table further": rows("", lambda table, _: table + 7),
    "every index further": indices(""),
    "no table": unset(""),
    "no packed forward": {COMPUTE: raises_in_its_own_words},
    "media appended as text": afterwards(JOIN, joined_as_text),
    "held tables further": held(another_table),
    "held deltas further": held(another_delta),
    "items moved": held(moved_items),
    "a token lost": created(a_token_lost),
    "turns refused": created(refused),
    "another error in a turn": {CREATE: turns_that_raise},
    "rows of the reader in another order": read(lambda table: table.flip(0)),
    "other heads": turned(lambda query: query + 1),
    "a reader that ends early": {READER: ends_early},
}
"""Faults that must not hide behind an entry of the known-failure list."""


def in_retraction(start: Callable[[Any], Any], more: int = 0) -> Mend:
    """A retracted request's columns for outputs begin elsewhere, or are more. start: of its table."""

    def instead(original: Any, table: Any, outputs: int) -> Any:
        if outputs <= 0:
            return table
        return torch.cat([table, (start(table) + torch.arange(outputs + more)).expand(3, -1)], dim=1)

    return {TOP_UP: instead}


def of_another(inputs: Any) -> None:
    """A delta is another request's."""
    inputs.mrope_position_delta = torch.full((1, 1), 5)


def again(change: Callable[[Any], None]) -> Mend:
    """The media inputs of a retracted request are changed whenever it is considered."""
    return considered(retracted(of_media(change)))


def parents_columns(inputs: Any) -> None:
    """What a turn appends has the columns that the history begins with."""
    table = inputs.mrope_positions
    half = table.shape[1] // 2
    inputs.mrope_positions = torch.cat([table[:, :half], table[:, : table.shape[1] - half]], dim=1)


def after_offset(_: Any, turn: Any, made: Any) -> None:
    """A turn with an offset has a delta that is smaller by it."""
    if turn.session_params.offset and made.multimodal_inputs is not None:
        made.multimodal_inputs = copy.copy(made.multimodal_inputs)
        made.multimodal_inputs.mrope_position_delta = (
            made.multimodal_inputs.mrope_position_delta - turn.session_params.offset
        )


def one_column(inputs: Any) -> None:
    """A column of the table that was there before changes."""
    inputs.mrope_positions[:, 0] += 1


def dealt_backwards(original: Any, made: Any, runner: Any, batch: Any, seq_positions: Any = None) -> None:
    """Columns are dealt out to the requests from the last to the first."""
    held, batch.multimodal_inputs = batch.multimodal_inputs, batch.multimodal_inputs[::-1]
    try:
        original(made, runner, batch, seq_positions)
    finally:
        batch.multimodal_inputs = held


def one_on(original: Any, made: Any, *args: Any, **kwargs: Any) -> None:
    """The last column is one too large."""
    original(made, *args, **kwargs)
    made.mrope_positions[:, -1] += 1


def last_of_buffer(runner: Any) -> None:
    """The last column of the buffer is another one."""
    runner.buffers.mrope_positions[:, -1] += 1


def second_row(original: Any, runner: Any, batch: Any, **kwargs: Any) -> Any:
    """One row of three is filled, with its index."""
    answer = original(runner, batch, **kwargs)
    runner.buffers.mrope_positions[1] = torch.arange(runner.buffers.mrope_positions.shape[1]) + 1
    return answer


def looks_elsewhere(original: Any, embedding: Any, positions: Any, *args: Any, **kwargs: Any) -> Any:
    """A lookup past the end, where the table ends before."""
    return original(embedding, positions + embedding.cos_sin_cache.shape[0], *args, **kwargs)


def rows_swapped(original: Any, embedding: Any, positions: Any, *args: Any, **kwargs: Any) -> Any:
    """h and w change places."""
    return original(embedding, positions[[0, 2, 1]] if positions.ndim == 2 else positions, *args, **kwargs)


MASKS: dict[str, tuple[str, Mend]] = {
    "continues from h": ("retraction-continues-from-t", in_retraction(lambda table: table[1, -1] + 5)),
    "continues from twice the width": ("retraction-continues-from-t", in_retraction(lambda table: 2 * table.shape[1])),
    "a column more at a retraction": (
        "retraction-tops-up-again",
        in_retraction(lambda table: table[0, -1] + 1, more=1),
    ),
    "a retracted request has a neighbour's delta": (
        "retraction-continues-from-t",
        again(of_another),
    ),
    "a shared table is written to": (
        "retraction-grows-a-shared-table",
        again(one_column),
    ),
    "columns change at each attempt": ("retraction-tops-up-again", again(one_column)),
    "every append is text": ("offset-keeps-the-parents-media", afterwards(JOIN, joined_as_text)),
    "an append has the parent's columns": (
        "offset-keeps-the-parents-media",
        afterwards(JOIN, of_media(parents_columns)),
    ),
    "a delta smaller by the offset": ("offset-keeps-the-parents-media", created(after_offset)),
    "another error in create_req": ("replace-all-changes-a-dict-in-a-loop", {CREATE: turns_that_raise}),
    "a packed verify always raises": ("packed-columns-in-equal-shares", {COMPUTE: raises_in_its_own_words}),
    "packed columns dealt backwards": ("packed-columns-in-equal-shares", {COMPUTE: dealt_backwards}),
    "a drafted column one on": ("text-is-drafted-from", {COMPUTE: one_on}),
    "stale padding one on": ("frozen-kv-padding-is-stale", afterwards(FROZEN, last_of_buffer)),
    "one row copied": ("multi-layer-rows-are-never-copied", {MULTI_LAYER: second_row}),
    "a member's column one on": (
        "members-have-no-delta",
        {f"{FORWARD}._compute_mrope_positions_decode": one_on},
    ),
    "rows h and w swapped": ("glm-sections-in-tensors-as-qwens", {READER: rows_swapped}),
    "a lookup past the end of everything": ("positions-pass-the-reader", {READER: looks_elsewhere}),
}
"""Another fault of the same look -> the known bug that it must not hide under."""

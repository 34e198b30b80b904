"""Arrival, generation, the end, retraction and scheduling of requests, through the engine's own request objects.

| spec field | adapter field | engine field |
| --- | --- | --- |
| prompt tokens | SubmitStep.ids, TurnStep.ids | `Req.origin_input_ids` |
| media run | Item.spans (half-open) | `MultimodalDataItem.offsets` (last token included) |
| prompt table, delta | Media.table, Media.delta | `MultimodalInputs.mrope_positions`, `.mrope_position_delta` |
| generated tokens | Generate.ids | `Req.output_ids` |
| prefix-cache hit | Schedule.hit | `RadixCache` match in `Req.init_next_round_input` |

The order for media is the scheduler's: `from_processor_output`, `adjust_mm_offsets`, pad ids, `extend_image_inputs`.

Faked: the processor (its output is the job's Media; items carry a hash instead of pixels), the radix cache's memory
(`RadixCache.create_simulated`), the KV row of a retracted request (there was none to release).
"""

from __future__ import annotations

from typing import Any

import torch

from ropecheck.adapters.protocol import (
    Abort,
    Finish,
    Generate,
    Media,
    Observe,
    RequestState,
    Retract,
    Schedule,
    States,
    SubmitStep,
)
from ropecheck.adapters.sglang.capabilities import tokenized
from ropecheck.adapters.sglang.stand_ins import VOCABULARY
from ropecheck.adapters.sglang.state import JobState
from ropecheck.adapters.sglang.wire import between_others, pack, unpack

FAKED = (
    "multimodal processor: its output is the job's table, delta and items; an item has a hash and no pixels",
    "RadixCache.create_simulated(): a prefix cache without memory behind it",
    "media spans of a session turn are shifted by the adapter where the release has no adjust_mm_offsets",
)

PLACEHOLDERS = {"image": "im_token_id", "video": "video_token_id", "audio": "audio_token_id"}
"""Kind of media -> where the inputs name its placeholder token. Releases pad by offsets where it is set, older ones
wherever that token stands."""


EQUAL = 1 << 40
"""Hashes of items of equal pixels begin here: no job has so many items."""


def submit(state: JobState, step: SubmitStep) -> None:
    """A plain request arrives."""
    engine = state.engine
    ids = engine.tokens(step.ids)
    params = state.meter.call(engine.SamplingParams, max_new_tokens=step.max_new_tokens)
    req = state.meter.call(engine.Req, rid(step.req), "", ids, params, vocab_size=VOCABULARY)
    state.reqs[step.req] = req
    if step.media is not None:
        attach_media(state, req, processor_output(state, step.media, ids), recv_ids=ids)


def attach_media(state: JobState, req: Any, output: Any, recv_ids: Any) -> None:
    """What the scheduler does with a processor's output, in its order. recv_ids: this turn's own tokens."""
    engine = state.engine
    made = engine.MultimodalInputs
    take = made.from_dict if engine.MultimodalProcessorOutput is None else made.from_processor_output
    inputs = state.meter.call(take, output)
    if hasattr(engine.SessionController, "adjust_mm_offsets"):
        received = state.meter.call(received_input, state, req.rid, recv_ids, req.sampling_params, None)
        state.meter.call(engine.SessionController.adjust_mm_offsets, received, req, inputs)
    else:
        shift_spans(inputs, len(req.origin_input_ids) - len(recv_ids))
    padded = state.meter.call(engine.PaddingPattern().pad_input_tokens, req.origin_input_ids, inputs)
    req.origin_input_ids = engine.tokens(padded)
    state.meter.call(req.extend_image_inputs, inputs)


def shift_spans(inputs: Any, before: int) -> None:
    """Where releases before 0.5.11 do it inside a scheduler method: media spans count from the history's start."""
    for item in inputs.mm_items:
        item.offsets = [(start + before, last + before) for start, last in item.offsets]


def processor_output(state: JobState, media: Media, recv_ids: Any) -> Any:
    """What a processor hands over for one turn. recv_ids: the turn's tokens."""
    engine = state.engine
    items = []
    for item in media.items:
        state.items += 1
        modality = getattr(engine.Modality, item.kind.upper())
        # The engine's offsets name the last token, the protocol's the one after it.
        offsets = [(start, stop - 1) for start, stop in item.spans]
        content = EQUAL + item.pixels if item.pixels else state.items
        items.append(state.meter.call(engine.MultimodalDataItem, modality=modality, hash=content, offsets=offsets))
    fields = {
        "mm_items": items,
        **{PLACEHOLDERS[item.kind]: recv_ids[item.start] for item in media.items},
        "mrope_positions": between_others(unpack(media.table)) if media.view else unpack(media.table),
        "mrope_position_delta": torch.tensor([[media.delta]], dtype=torch.int64),
    }
    kind = engine.MultimodalProcessorOutput
    return fields if kind is None else state.meter.call(kind, **fields)


def received_input(state: JobState, name: str, ids: Any, params: Any, session: Any, media: Any = None) -> Any:
    """The tokenised request as it reaches the scheduler. session: SessionParams. media: a processor's output."""
    return tokenized(
        state.engine.TokenizedGenerateReqInput,
        rid=name,
        input_ids=ids,
        mm_inputs=media,
        sampling_params=params,
        session_params=session,
    )


def generate(state: JobState, step: Generate) -> None:
    """The model's tokens, as the output processor appends them."""
    state.req(step.req).output_ids.extend(step.ids)


def finish(state: JobState, step: Finish) -> None:
    """The request ends by length; a streaming session commits it."""
    req = state.req(step.req)
    req.finished_reason = state.engine.FINISH_LENGTH(len(req.output_ids))
    session: Any = getattr(req, "session", None)
    # 0.5.10 commits nothing at the end of a streaming turn: the next one reads the request as it is.
    if getattr(session, "streaming", False) and hasattr(session, "finish_req"):
        state.meter.call(session.finish_req, req)


def abort(state: JobState, step: Abort) -> None:
    """The request is aborted: the scheduler's release of a request that a user gave up. One that waits is taken out of
    the queue, and nothing is written into it."""
    req = state.req(step.req)
    if step.req in state.running:
        req.finished_reason = state.engine.FINISH_ABORT("aborted by its user")
    session: Any = getattr(req, "session", None)
    if hasattr(req, "release_mm_inputs_on_abort"):
        state.meter.call(req.release_mm_inputs_on_abort)
    if getattr(session, "streaming", False) and hasattr(session, "abort_req"):
        state.meter.call(session.abort_req)


def retract(state: JobState, step: Retract) -> None:
    """The scheduler takes the request's memory back."""
    state.considered.discard(step.req)
    state.running.discard(step.req)
    state.meter.call(state.req(step.req).reset_for_retract)


def schedule(state: JobState, step: Schedule) -> None:
    """Consider a waiting request `attempts` times, the last time for good."""
    req = state.req(step.req)
    cache = prefix_cache(state, req, step.hit) if step.hit else None
    for _ in range(step.attempts):
        state.meter.call(req.init_next_round_input, cache)
    state.considered.add(step.req)


def prefix_cache(state: JobState, req: Any, hit: int) -> Any:
    """A prefix cache that holds the first `hit` tokens of the request's history."""
    engine = state.engine
    engine.needs("RadixCache", "RadixKey")
    if not hasattr(engine.RadixCache, "create_simulated"):
        raise engine.absent("RadixCache.create_simulated", "this release has no RadixCache.create_simulated")
    cache = state.meter.call(engine.RadixCache.create_simulated)
    history = (req.origin_input_ids + req.output_ids)[:hit]
    key = engine.RadixKey(history, getattr(req, "extra_key", None))
    value = torch.zeros(hit, dtype=torch.int64)
    if engine.InsertParams is None:
        state.meter.call(cache.insert, key, value)
    else:
        state.meter.call(cache.insert, engine.InsertParams(key=key, value=value))
    return cache


def begin_window(state: JobState, number: int, req: Any) -> None:
    """What every prefill round starts with, unless a Schedule step has already done it for this window."""
    state.running.add(number)
    if number in state.considered:
        state.considered.discard(number)
    else:
        state.meter.call(req.init_next_round_input, None)


def observe(state: JobState, step: Observe) -> States:
    """Report what the engine holds for these requests, those left out that it failed to make."""
    made = (number for number in step.reqs if number in state.reqs or number in state.absent)
    return States(tuple(request_state(state, number) for number in made))


def request_state(state: JobState, number: int) -> RequestState:
    """One request as the engine holds it now."""
    req = state.req(number)
    inputs = req.multimodal_inputs
    items = inputs.mm_items if inputs is not None else []
    spans = [span for item in items for span in (item.offsets or ())]
    fill_ids = getattr(req, "full_untruncated_fill_ids", getattr(req, "fill_ids", None))
    reason = req.finished_reason or getattr(req, "to_finish", None)
    aborted = isinstance(reason, state.engine.FINISH_ABORT)
    return RequestState(
        req=number,
        ids=tuple(req.origin_input_ids),
        unpadded_ids=tuple(req.origin_input_ids_unpadded),
        fill_ids=tuple(fill_ids) if fill_ids else None,
        output_ids=tuple(req.output_ids),
        prefix_len=req.prefix_len if hasattr(req, "prefix_len") else len(req.prefix_indices),
        table=pack(inputs.mrope_positions) if inputs is not None else None,
        delta=pack(inputs.mrope_position_delta) if inputs is not None else None,
        delta_cache=pack(getattr(inputs, "mrope_position_delta_repeated_cache", None)),
        offsets=tuple((start, last + 1) for start, last in spans),
        aborted=aborted,
        note=str(getattr(reason, "message", "") or "") if aborted else "",
    )


def rid(number: int) -> str:
    """The engine's id of a request."""
    return f"r{number}"

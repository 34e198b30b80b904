"""The client's messages, as the tokenizer process sends them.

| spec field | adapter field | engine field |
| --- | --- | --- |
| prompt tokens | play.Deliver.ids | `TokenizedGenerateReqInput.input_ids` |
| table | play.PlayMedia.rows, .delta | `mrope_positions`, `mrope_position_delta` in `MultimodalProcessorOutput` |
| media run | play.PlayItem.start, .stop (half-open) | `MultimodalDataItem.offsets` (last token included) |
| session operation | events.Arrived.session, .parent, .. | `SessionParams` |

Faked: the processor; an item has a hash and one number of pixels.
"""

from __future__ import annotations

import inspect
import zlib
from array import array
from typing import Any

import torch
from sglang.srt.managers import io_struct, schedule_batch
from sglang.srt.sampling.sampling_params import SamplingParams

from ropecheck.adapters import events, play
from ropecheck.adapters.sglang.capabilities import tokenized
from ropecheck.adapters.sglang.scheduler.build import HIDDEN, PLACEHOLDERS, STOP, NoSuchArgument

SAMPLING = frozenset(inspect.signature(SamplingParams).parameters)
"""How an answer can be asked for, in this release."""


TIMEOUT = 1000.0
"""Seconds; no script takes so long."""


def message(action: play.Deliver | play.Tell, elsewhere: bool = False) -> Any:
    """The engine's own message; None for what comes without one. elsewhere: prompts are computed by another engine, as
    a router tells this one."""
    if isinstance(action, play.Deliver):
        room = {"bootstrap_host": FAKE, "bootstrap_port": 8998, "bootstrap_room": zlib.crc32(action.event.req.encode())}
        return request(action, room if elsewhere else {})
    match action.event:
        case events.Opened(session=session, streaming=streaming):
            limit = {"timeout": TIMEOUT} if action.timeout else {}
            if action.timeout and "timeout" not in inspect.signature(io_struct.OpenSessionReqInput).parameters:
                raise NoSuchArgument("this release's sessions have no timeout")
            return io_struct.OpenSessionReqInput(
                capacity_of_str_len=1 << 20, session_id=session, streaming=streaming, **limit
            )
        case events.Closed() if action.timeout:
            return None
        case events.Closed(session=session):
            return io_struct.CloseSessionReqInput(session_id=session)
        case events.Aborted(req=req):
            return io_struct.AbortReq(rid=req, abort_all=not req)
        case events.Control(what="flush"):
            return io_struct.FlushCacheReqInput()
        case events.Control(what="continue"):
            return io_struct.ContinueGenerationReqInput()
        case events.Control(what=what):
            return io_struct.PauseGenerationReqInput(mode=what.removeprefix("pause "))
    raise ValueError(f"no message for {action.event}")


FAKE = "2.2.2.2"
"""The address by which the engine knows a transfer that its own fake makes up."""


def request(action: play.Deliver, room: dict[str, Any]) -> Any:
    """A tokenised request. Fields that a release lacks are left out; those that it wants besides are empty. room: where
    its prompt is computed, if not here."""
    event = action.event
    more: dict[str, Any] = dict(action.more)
    ids: Any = array("q", action.ids)
    if event.embeds:  # the tokenizer's process knows no ids of them
        more["input_embeds"], ids = [[0.0] * HIDDEN] * len(ids), None
    sampling = {"temperature": 0.0} | {name: more.pop(name) for name in set(more) & SAMPLING}
    if event.beams > 1:
        sampling["beam_width"] = event.beams
    if event.beams > 1 and "beam_width" not in SAMPLING:
        raise NoSuchArgument("this release's scheduler has no beam search")
    params = SamplingParams(max_new_tokens=event.max_new_tokens, stop_token_ids=[STOP], **sampling)
    params.normalize(None)
    session = None
    if event.session or event.parent or event.offset is not None or event.replace or event.drop_previous_output:
        session = io_struct.SessionParams(
            id=event.session or None,
            rid=event.parent or None,
            offset=event.offset,
            replace=event.replace or None,
            drop_previous_output=event.drop_previous_output or None,
        )
    given: dict[str, Any] = {
        "rid": event.req,
        "input_ids": ids,
        "mm_inputs": None if action.media is None else inputs(action.media),
        "sampling_params": params,
        "session_params": session,
        "stream": True,
        "priority": action.priority or None,
        **room,
        **more,
    }
    return tokenized(io_struct.TokenizedGenerateReqInput, **given)


def inputs(media: play.PlayMedia) -> Any:
    """A processor's output for one prompt."""
    items = []
    for item in media.items:
        modality = getattr(schedule_batch.Modality, item.kind.upper())
        offsets = [(item.start, item.stop - 1)]  # the engine's offsets name the last token
        one = schedule_batch.MultimodalDataItem(modality=modality, hash=item.hash, offsets=offsets)
        one.feature = torch.zeros(1)
        items.append(one)
    return schedule_batch.MultimodalProcessorOutput(
        mm_items=items,
        im_token_id=PLACEHOLDERS["image"],
        video_token_id=PLACEHOLDERS["video"],
        mrope_positions=torch.tensor(media.rows, dtype=torch.int64),
        mrope_position_delta=torch.tensor([[media.delta]], dtype=torch.int64),
    )

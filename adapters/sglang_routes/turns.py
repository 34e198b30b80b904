"""One message as two turns of a session, the second appended to the first, which asked for no reply.

| spec field | adapter field | engine field |
| --- | --- | --- |
| first turn | PromptTable.parts[0] | `Session.create_req`, then the scheduler's steps |
| second turn | PromptTable.parts[1] | the same, on `SessionParams.rid` |
| table, delta | PromptTables.table, delta | `Req.multimodal_inputs` of the second turn |

The order for media is the scheduler's: `from_processor_output`, `adjust_mm_offsets`, `_try_apply_padded_mm_input_ids`,
`pad_input_ids`, `extend_image_inputs`, `_maybe_compute_mrope_positions`.

Faked: the scheduler is a stand-in with its processor alone; the tokenizer of the session (None).
"""

from __future__ import annotations

import types
from array import array
from collections.abc import Callable
from typing import Any

from ropecheck.adapters import protocol
from ropecheck.adapters.sglang.capabilities import tokenized
from ropecheck.adapters.sglang.imports import imported

FAKED = ("two turns: a scheduler with its processor alone, and no tokenizer",)

Call = Callable[..., Any]
ROOM = 1 << 20
"""More than any of these prompts has of characters, or of token ids."""


def drive(
    step: protocol.PromptTable,
    process: Callable[[protocol.PromptTable], Any],
    pad: Any,
    processor: Any,
    without: bool,
    call: Call,
) -> tuple[Any, list[int]]:
    """The scheduler's inputs of the second turn, and the tokens that it then has. without: it comes without a table."""
    batch, messages = (imported(f"sglang.srt.managers.{name}") for name in ("schedule_batch", "io_struct"))
    sessions = imported("sglang.srt.session.session_controller")
    scheduler = imported("sglang.srt.managers.scheduler")
    params = imported("sglang.srt.sampling.sampling_params").SamplingParams(max_new_tokens=0)
    session = call(sessions.Session, ROOM, "s")
    here = types.SimpleNamespace(_mm_processor=processor)
    req: Any = None
    for number, part in enumerate(step.parts):
        output = process(part)
        received = tokenized(
            messages.TokenizedGenerateReqInput,
            rid=f"r{number}",
            input_ids=array("q", output.input_ids),
            mm_inputs=output,
            sampling_params=params,
            session_params=messages.SessionParams(id="s", rid=f"r{number - 1}" if number else None),
        )
        req = call(session.create_req, received, None, ROOM)
        inputs = call(batch.MultimodalInputs.from_processor_output, output)
        if number and without:
            inputs.mrope_positions = inputs.mrope_position_delta = None
        call(sessions.SessionController.adjust_mm_offsets, received, req, inputs)
        if not call(scheduler.Scheduler._try_apply_padded_mm_input_ids, received, req, inputs):
            req.origin_input_ids = padded(req.origin_input_ids, inputs, pad, call)
        call(req.extend_image_inputs, inputs)
        call(scheduler.Scheduler._maybe_compute_mrope_positions, here, req)
        req.finished_reason = batch.FINISH_LENGTH(0)
    return req.multimodal_inputs, list(req.origin_input_ids)


def padded(ids: Any, inputs: Any, pad: Any, call: Callable[..., Any]) -> Any:
    """A prompt with hashes in the place of its placeholders, as this release's scheduler makes it. pad: the model's."""
    duplicating = getattr(imported("sglang.srt.managers.mm_utils"), "duplicate_pad_mm_input_ids", None)
    return call(duplicating, ids, inputs, pad) if duplicating else array("q", call(pad, ids, inputs))

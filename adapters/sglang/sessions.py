"""Sessions, through the engine's own `Session.create_req`.

| spec field | adapter field | engine field |
| --- | --- | --- |
| session | Open | `Session(capacity, id, streaming)` |
| append to | TurnStep.parent | `SessionParams.rid` |
| replace, offset, drop_previous_output | the same | `SessionParams` |

Faked: the tokenizer (None, or a stand-in that knows its start of sequence).
"""

from __future__ import annotations

from typing import Any

from ropecheck.adapters.protocol import Open, TurnStep
from ropecheck.adapters.sglang.capabilities import Absent
from ropecheck.adapters.sglang.requests import attach_media, processor_output, received_input, rid
from ropecheck.adapters.sglang.stand_ins import VOCABULARY, StandIn
from ropecheck.adapters.sglang.state import JobState

FAKED = ("tokenizer: None (or a stand-in with vocab_size where create_req reads it)",)

CAPACITY = 1 << 30
"""Characters that a session may hold; no job comes near."""


def open_session(state: JobState, step: Open) -> None:
    """Open a session. Streaming where this release has it."""
    engine = state.engine
    if engine.Session is None:
        raise engine.absent("Session", "this release has no Session")
    if "streaming" in engine.session_takes:
        session = state.meter.call(engine.Session, CAPACITY, f"s{step.session}", streaming=step.streaming)
    elif step.streaming:
        raise engine.absent("streaming_sessions", "this release has no streaming sessions")
    else:
        session = state.meter.call(engine.Session, CAPACITY, f"s{step.session}")
    state.sessions[step.session] = session


def turn(state: JobState, step: TurnStep) -> None:
    """A request arrives in a session. One that the engine refuses is kept as the engine made it: aborted."""
    engine = state.engine
    if step.session not in state.sessions:
        state.absent[step.req] = "its session could not be opened"
        raise Absent(state.absent[step.req])
    session = state.sessions[step.session]
    params = state.meter.call(
        engine.SessionParams,
        id=f"s{step.session}",
        rid=None if step.parent is None else rid(step.parent),
        offset=step.offset or None,  # 0: the scenario gives none
        replace=step.replace,
        drop_previous_output=step.drop_previous_output,
    )
    sampling = state.meter.call(engine.SamplingParams, max_new_tokens=step.max_new_tokens)
    ids = engine.tokens(step.ids)
    output = None if step.media is None else processor_output(state, step.media, ids)
    received = state.meter.call(received_input, state, rid(step.req), ids, sampling, params, output)
    req = state.meter.call(session.create_req, received, *create_arguments(state, step.ids[0] if step.bos else None))
    state.reqs[step.req] = req
    refused = isinstance(req.finished_reason or getattr(req, "to_finish", None), engine.FINISH_ABORT)
    if output is not None and not refused:
        attach_media(state, req, output, recv_ids=received.input_ids)


def create_arguments(state: JobState, bos: int | None) -> tuple[Any, ...]:
    """Tokenizer and, where the release takes it, the vocabulary size. bos: the tokenizer's start of sequence."""
    if "vocab_size" in state.engine.create_req_takes:
        return (None if bos is None else StandIn(bos_token_id=bos), VOCABULARY)
    return (StandIn(vocab_size=VOCABULARY, bos_token_id=bos),)

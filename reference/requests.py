"""The state that scenarios move through: requests, sessions, and how token ids are handed out."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import msgspec
from msgspec.structs import replace

from ropecheck.reference.timeline import Timeline, run_lengths, timeline
from ropecheck.spec.history import History, OutOfDomain

BOS = 1
"""A tokenizer's start of sequence."""

FIRST_TEXT_ID = 1000
"""Text and output tokens count up from here, so that no two tokens of a scenario are alike."""

MEDIA_IDS = MappingProxyType({"image": 11, "video": 12, "audio": 13})
"""Placeholder ids before padding."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request.

    prompt: its whole prompt, earlier turns of its session included. ids: the prompt's tokens, placeholders raw.
    turn: runs and tokens that it brought itself. ahead: runs that it will write, and that its table has already.
    doubtful: the engine may have refused it, or a turn that it continues; what it is here, it is where both were taken.
    tabulated_runs: leading runs of the prompt up to the last turn that brought media. computed: tokens of the prompt
    that prefills have computed. line: the columns of its prompt, and by delta of all that it generates. status:
    "waiting", "retracted", "running", "finished", "aborted", "refused".
    """

    req: int
    prompt: History
    ids: tuple[int, ...]
    turn: History
    turn_ids: tuple[int, ...]
    tabulated_runs: int
    max_new_tokens: int
    line: Timeline
    ahead: History = ()
    session: int | None = None
    parent: int | None = None
    output_ids: tuple[int, ...] = ()
    computed: int = 0
    admitted: bool = False
    doubtful: bool = False
    status: str = "waiting"

    @property
    def outputs(self) -> int:
        return len(self.output_ids)

    @property
    def brings_media(self) -> bool:
        return any(not run.is_text for run in self.turn)

    @property
    def has_media(self) -> bool:
        return any(not run.is_text for run in self.prompt)


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """One session. known: requests that a turn may name as its parent. last: a streaming session's last finished turn.
    in_flight: a streaming session's unfinished turn."""

    session: int
    streaming: bool = False
    known: tuple[int, ...] = ()
    last: int | None = None
    in_flight: int | None = None


class State(msgspec.Struct, frozen=True, kw_only=True):
    """Everything between two operations."""

    family: str
    requests: Mapping[int, Request] = msgspec.field(default_factory=dict)
    sessions: Mapping[int, Session] = msgspec.field(default_factory=dict)
    next_id: int = FIRST_TEXT_ID


def of(state: State, req: int, *statuses: str) -> Request:
    """The request, in one of the given states. Raises OutOfDomain otherwise."""
    request = state.requests.get(req)
    if request is None:
        raise OutOfDomain(f"request {req} does not exist")
    if statuses and request.status not in statuses:
        raise OutOfDomain(f"request {req} is {request.status}, not {' or '.join(statuses)}")
    return request


def updated(state: State, request: Request) -> State:
    """The state with this request in it."""
    return replace(state, requests={**state.requests, request.req: request})


def with_session(state: State, session: Session) -> State:
    """The state with this session in it."""
    return replace(state, sessions={**state.sessions, session.session: session})


def fresh_ids(state: State, runs: History) -> tuple[State, tuple[int, ...]]:
    """Token ids for new runs: text counts up, media hold their placeholder's id."""
    ids: list[int] = []
    next_id = state.next_id
    for run, count in zip(runs, run_lengths(state.family, runs), strict=True):
        if run.is_text:
            ids.extend(range(next_id, next_id + count))
            next_id += count
        else:
            ids.extend([MEDIA_IDS[run.kind]] * count)
    return replace(state, next_id=next_id), tuple(ids)


def arrived(state: State, request: Request) -> State:
    """A new request joins. Raises OutOfDomain for a second one of the same number or an empty prompt."""
    if request.req in state.requests:
        raise OutOfDomain(f"request {request.req} exists already")
    if request.status == "waiting" and not request.ids:
        raise OutOfDomain(f"request {request.req} has an empty prompt")
    return updated(state, request)


def emit(state: State, request: Request, count: int) -> tuple[State, tuple[int, ...]]:
    """The request's model emits `count` tokens. Raises OutOfDomain two behind what a table knows ahead: the last one is
    read by no forward."""
    if request.ahead and request.outputs + count > sum(run_lengths(state.family, request.ahead)) + 1:
        raise OutOfDomain(f"request {request.req} writes more than it said")
    ids = tuple(range(state.next_id, state.next_id + count))
    after = replace(request, output_ids=request.output_ids + ids)
    return updated(replace(state, next_id=state.next_id + count), after), ids


def tokens_of(request: Request) -> int:
    """Prompt and outputs."""
    return len(request.ids) + request.outputs


def turn_line(state: State, request: Request, before: History = ()) -> Timeline:
    """The columns of the request's own turn alone, as a processor that sees only this turn would build them. before:
    what stands before it there and is no part of it."""
    turn = (*before, *request.turn)
    return timeline(state.family, turn, len(turn), request.ahead)

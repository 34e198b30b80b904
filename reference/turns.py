"""Arrivals and ends: plain requests, and the turns of sessions."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from ropecheck.reference.requests import Request, Session, State, arrived, fresh_ids, updated, with_session
from ropecheck.reference.timeline import timeline
from ropecheck.spec import session as rules
from ropecheck.spec.families import family as find_family
from ropecheck.spec.families.glm_image import GLM_IMAGE
from ropecheck.spec.history import History, OutOfDomain, cut, length, text

ENDED = ("finished", "aborted")


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRequest:
    """A turn as its client asks for it: the session parameters of the public interface."""

    session: int
    req: int
    prompt: History
    parent: int | None = None
    replace: bool = False
    offset: int = 0
    drop_previous_output: bool = False
    max_new_tokens: int


def submit(state: State, req: int, prompt: History, max_new_tokens: int, ahead: History = ()) -> State:
    """A plain request arrives. ahead: runs that it will write and that its table knows."""
    if ahead and state.family != GLM_IMAGE.name:
        raise OutOfDomain(f"{state.family} writes no images")
    state, ids = fresh_ids(state, prompt)
    return arrived(
        state,
        Request(
            req=req,
            prompt=prompt,
            ids=ids,
            turn=prompt,
            turn_ids=ids,
            tabulated_runs=len(prompt),
            max_new_tokens=max_new_tokens,
            line=timeline(state.family, prompt, len(prompt), ahead),
            ahead=ahead,
        ),
    )


def open_session(state: State, session: int, streaming: bool) -> State:
    """A session is opened."""
    if session in state.sessions:
        raise OutOfDomain(f"session {session} is open already")
    return with_session(state, Session(session=session, streaming=streaming))


def turn(state: State, op: TurnRequest) -> State:
    """A request arrives in a session; refused turns join as such and change nothing else.

    One that may be refused is taken, and the running turn that it replaces has ended.
    """
    session = state.sessions.get(op.session)
    if session is None:
        raise OutOfDomain(f"session {op.session} is not open")
    state, new_ids = fresh_ids(state, op.prompt)
    parent = _parent(state, session, op)
    if _is_refused(state, session, op):
        return arrived(
            state,
            Request(
                req=op.req,
                prompt=op.prompt,
                ids=new_ids,
                turn=op.prompt,
                turn_ids=new_ids,
                tabulated_runs=len(op.prompt),
                max_new_tokens=op.max_new_tokens,
                line=timeline(state.family, op.prompt, len(op.prompt)),
                session=op.session,
                status="refused",
            ),
        )
    prompt, kept_ids = _history(state, parent, op)
    tabulated = _tabulated(state, parent, op.prompt, prompt, len(kept_ids))
    request = Request(
        req=op.req,
        prompt=prompt,
        ids=kept_ids + new_ids,
        turn=op.prompt,
        turn_ids=new_ids,
        tabulated_runs=tabulated,
        max_new_tokens=op.max_new_tokens,
        line=timeline(state.family, prompt, tabulated),
        session=op.session,
        parent=None if parent is None else parent.req,
        doubtful=parent is not None and (parent.doubtful or may_be_refused(state, op.session, op.parent, op.replace)),
    )
    state = arrived(state, request)
    if parent is not None and op.replace and parent.status not in ENDED:
        state = updated(state, replace(parent, status="aborted"))
    known = session.known
    if op.replace:
        known = () if op.parent is None else _without_children(state, known, op.parent)
    if session.streaming:
        return with_session(state, replace(session, in_flight=op.req))
    return with_session(state, replace(session, known=(*known, op.req)))


def finish(state: State, request: Request) -> State:
    """The request ends normally; in a streaming session it becomes the turn that the next one appends to."""
    state = updated(state, replace(request, status="finished"))
    return _leave(state, request, finished=True)


def abort(state: State, request: Request) -> State:
    """The request is aborted."""
    state = updated(state, replace(request, status="aborted"))
    return _leave(state, request, finished=False)


def _leave(state: State, request: Request, finished: bool) -> State:
    if request.session is None:
        return state
    session = state.sessions[request.session]
    if not session.streaming:
        return state
    last = request.req if finished else session.last
    return with_session(state, replace(session, in_flight=None, last=last))


def _parent(state: State, session: Session, op: TurnRequest) -> Request | None:
    if session.streaming:
        return None if session.last is None else state.requests[session.last]
    if op.parent is None or op.parent not in session.known:
        return None
    return state.requests[op.parent]


def _is_refused(state: State, session: Session, op: TurnRequest) -> bool:
    if session.streaming:
        rewrites = op.replace or bool(op.offset) or op.drop_previous_output
        return rules.must_refuse(True, session.in_flight is not None, True, True, rewrites)
    if op.parent is None:
        return False
    known = op.parent in session.known
    finished = known and (op.replace or state.requests[op.parent].status in ENDED)
    return rules.must_refuse(False, False, finished, known, False)


def may_be_refused(state: State, session: int, parent: int | None, replaces: bool) -> bool:
    """Whether the engine may take such a turn or refuse it (`may_refuse` in spec/session.py)."""
    asked = state.sessions[session]
    if asked.streaming or parent is None or parent not in asked.known:
        return False
    status = state.requests[parent].status
    return rules.may_refuse(status in ENDED, status == "aborted", replaces)


def _history(state: State, parent: Request | None, op: TurnRequest) -> tuple[History, tuple[int, ...]]:
    """The new request's whole prompt, and the token ids that it keeps from its parent."""
    if parent is None:
        return rules.afresh(op.prompt), ()
    count = 0 if op.drop_previous_output else rules.reply_tokens(parent.outputs, parent.max_new_tokens)
    reply = (text(count),) if count else ()
    kept = rules.continued(parent.ids, parent.output_ids[:count], ())
    if op.offset:
        family = find_family(state.family)
        whole = rules.continued(parent.prompt, reply, ())
        return cut(family, whole, min(op.offset, length(family, whole))) + op.prompt, kept[: op.offset]
    if op.drop_previous_output:
        return rules.without_reply(parent.prompt, op.prompt), kept
    return rules.continued(parent.prompt, reply, op.prompt), kept


def _tabulated(state: State, parent: Request | None, own: History, prompt: History, kept: int) -> int:
    """Leading runs of the prompt that the request's media table covers: all of it if its own turn brings media."""
    if parent is None or any(not run.is_text for run in own):
        return len(prompt)
    family = find_family(state.family)
    limit = min(kept, length(family, parent.prompt[: parent.tabulated_runs]))
    covered = 0
    for runs in range(len(prompt) + 1):
        if length(family, prompt[:runs]) <= limit:
            covered = runs
    return covered


def _without_children(state: State, known: tuple[int, ...], parent: int) -> tuple[int, ...]:
    gone: set[int] = set()
    for req in known:
        if state.requests[req].parent == parent or state.requests[req].parent in gone:
            gone.add(req)
    return tuple(req for req in known if req not in gone)

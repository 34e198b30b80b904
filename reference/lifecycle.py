"""The lifecycle of requests and sessions as explicit steps: state -> state, and the forwards that each step runs.

States are immutable. A step that no public request could lead to raises OutOfDomain. Histories come from
spec/session.py and spec/retraction.py, tables from reference/tables.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from ropecheck.reference import forwards, rotary, turns
from ropecheck.reference.batches import Expected
from ropecheck.reference.operations import (
    Abort,
    Accept,
    Block,
    Decode,
    Draft,
    DraftExtend,
    Extend,
    Finish,
    Idle,
    MeasureCost,
    Mixed,
    Open,
    Operation,
    Reschedule,
    Retract,
    Rotate,
    Submit,
    Turn,
    Verify,
)
from ropecheck.reference.requests import Request, Session, State, emit, of, tokens_of, updated
from ropecheck.spec.history import OutOfDomain

__all__ = ["Request", "Session", "State", "Transition", "apply"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """One step: the state after it, the forwards that it ran, and the tokens that requests emitted after them."""

    state: State
    forwards: tuple[Expected, ...] = ()
    emitted: Mapping[int, tuple[int, ...]] = field(default_factory=dict)


def apply(state: State, op: Operation, build: bool = True) -> Transition:
    """One operation. Raises OutOfDomain, with a reason, where the operation is not legal in this state.

    Without `build` the forwards' tables are left out, for searches that only want to know where an operation leads;
    legality that only a forward's own batch decides is then not checked.
    """
    match op:
        case Submit():
            return Transition(state=turns.submit(state, op))
        case Open():
            return Transition(state=turns.open_session(state, op))
        case Turn():
            return Transition(state=turns.turn(state, op))
        case Extend() | Mixed():
            return _prefill(state, op, build)
        case Decode():
            return _decode(state, op, build)
        case Draft() | Verify() | DraftExtend() | Idle() | Block():
            return Transition(state=state, forwards=(forwards.of_op(state, op),) if build else ())
        case Accept():
            return _emit_all(state, {op.req: op.tokens})
        case Retract():
            request = of(state, op.req, "running")
            return Transition(state=updated(state, replace(request, status="retracted", computed=0, admitted=False)))
        case Reschedule():
            request = of(state, op.req, "waiting", "retracted")
            if request.computed or request.admitted or op.refusals < 1:
                raise OutOfDomain(f"request {op.req} is being prefilled already")
            return Transition(state=state)
        case Finish():
            return Transition(state=turns.finish(state, of(state, op.req, "running")))
        case Abort():
            return Transition(state=turns.abort(state, of(state, op.req, "waiting", "running", "retracted")))
        case MeasureCost():
            return Transition(state=state, forwards=(forwards.of_op(state, op.of),))
        case Rotate():
            rotary.table_of(state, op)
            return Transition(state=state)


def _prefill(state: State, op: Extend | Mixed, build: bool) -> Transition:
    run = (forwards.of_op(state, op),) if build else ()
    finished = {}
    cut_short = 0
    for window in op.windows:
        request = of(state, window.req, "waiting", "retracted")
        prefix, extend = forwards.window_of(request, window)
        done = prefix + extend == tokens_of(request)
        cut_short += not done
        status = "running" if done else request.status
        state = updated(state, replace(request, computed=prefix + extend, admitted=True, status=status))
        if done:
            finished[window.req] = 1
    if cut_short > 1:
        raise OutOfDomain("two requests are cut short in one forward; a scheduler chunks one at a time")
    if isinstance(op, Mixed):
        finished |= dict.fromkeys(op.decodes, 1)
    moved = _emit_all(state, finished)
    return Transition(state=moved.state, forwards=run, emitted=moved.emitted)


def _decode(state: State, op: Decode, build: bool) -> Transition:
    run = (forwards.of_op(state, op),) if build else ()
    moved = _emit_all(state, dict.fromkeys(op.reqs, 1))
    return Transition(state=moved.state, forwards=run, emitted=moved.emitted)


def _emit_all(state: State, counts: Mapping[int, int]) -> Transition:
    emitted = {}
    for req, count in counts.items():
        request = of(state, req, "running")
        if count < 1:
            raise OutOfDomain(f"request {req} emits {count} tokens")
        state, emitted[req] = emit(state, request, count)
    return Transition(state=state, emitted=emitted)

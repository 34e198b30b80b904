"""Operations as steps of the lifecycle: state -> state, and the forwards that each step runs.

States are immutable. A step that no public request could lead to raises OutOfDomain.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from ropecheck.conformance.scenario.forward import ExpectedTables, expected_of
from ropecheck.conformance.scenario.operations import (
    Abort,
    Accept,
    Build,
    Finish,
    MeasureCost,
    Open,
    Operation,
    Reschedule,
    Retract,
    Rotate,
    Submit,
    Turn,
)
from ropecheck.reference import resolve, rotary, turns
from ropecheck.reference.requests import State, emit, of, tokens_of, updated
from ropecheck.spec.history import OutOfDomain
from ropecheck.spec.modes import mode_of
from ropecheck.spec.modes.declaration import PREFILLING


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """One step: the state after it, the forward that it ran, and the tokens that requests emitted after it."""

    state: State
    forward: ExpectedTables | None = None
    emitted: Mapping[int, tuple[int, ...]] = field(default_factory=dict)


def apply(state: State, op: Operation, build: bool = True) -> Transition:
    """One operation. Raises OutOfDomain, with a reason, where the operation is not legal in this state.

    Without `build` the forwards' tables are left out, for searches that only want to know where an operation leads;
    legality that only a forward's own batch decides is then not checked.
    """
    match op:
        case Submit():
            return Transition(state=turns.submit(state, op.req, op.prompt, op.max_new_tokens, op.ahead))
        case Open():
            return Transition(state=turns.open_session(state, op.session, op.streaming))
        case Turn():
            after = turns.turn(state, _asked(op))
            if op.bos and after.requests[op.req].parent is None:
                raise OutOfDomain("a turn that continues nothing keeps its start of sequence")
            return Transition(state=after)
        case Build():
            return _forward(state, op, build)
        case Accept():
            return _emit_all(state, {op.req: op.tokens})
        case Retract():
            request = of(state, op.req, "running")
            if request.ahead:
                raise OutOfDomain(f"request {op.req} writes an image; what it holds ahead is no prompt's")
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
            return Transition(state=state, forward=expected_of(state, op.of))
        case Rotate():
            rotary.table_of(state, op.req, op.layout, op.method)
            return Transition(state=state)


def _asked(op: Turn) -> turns.TurnRequest:
    return turns.TurnRequest(**{name: getattr(op, name) for name in turns.TurnRequest.__dataclass_fields__})


def _forward(state: State, op: Build, build: bool) -> Transition:
    """The forward, and what its rows' requests emit after it, as their modes say."""
    expected = expected_of(state, op) if build else None
    mode = mode_of(op.batch.mode)
    finished: dict[int, int] = {}
    cut_short = 0
    for row_mode, part in zip(mode.parts, (op.batch if expected is None else expected.batch).parts, strict=True):
        if row_mode.reads == PREFILLING:
            rows = resolve.requests_for(state, row_mode, part.reqs)
            fields: Mapping[str, Any] = part.fields
            if expected is None:
                fields = resolve.resolved(row_mode, rows, part.fields)
            for request, prefix, extend in zip(rows, fields["prefix_len"], fields["extend_len"], strict=True):
                done = prefix + extend == tokens_of(request)
                cut_short += not done
                status = "running" if done else request.status
                after = replace(request, computed=prefix + extend, admitted=True, status=status)
                state = updated(state, after)
                if done:
                    finished[request.req] = 1
        elif row_mode.emits:
            finished |= dict.fromkeys(part.reqs, row_mode.emits)
    if cut_short > 1:
        raise OutOfDomain("two requests are cut short in one forward; a scheduler chunks one at a time")
    moved = _emit_all(state, finished)
    return Transition(state=moved.state, forward=expected, emitted=moved.emitted)


def _emit_all(state: State, counts: Mapping[int, int]) -> Transition:
    emitted = {}
    for req, count in counts.items():
        request = of(state, req, "running")
        if count < 1:
            raise OutOfDomain(f"request {req} emits {count} tokens")
        state, emitted[req] = emit(state, request, count)
    return Transition(state=state, emitted=emitted)

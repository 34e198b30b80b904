"""Session and retraction vectors out of a scenario that has been walked through."""

from collections.abc import Iterator, Sequence

import numpy as np

from ropecheck.conformance.scenario import operations as ops
from ropecheck.conformance.vectors import types as v
from ropecheck.conformance.vectors.runs import media_spans
from ropecheck.conformance.vectors.wire import request_of, rows_of, runs_of
from ropecheck.reference.requests import Request, State, turn_line
from ropecheck.spec.families import family as find_family

Found = tuple[int, v.Input, tuple[v.ExpectedTable, ...]]
"""Operation, input, expected tables."""


def histories(scenario: ops.Scenario, states: Sequence[State]) -> Iterator[Found]:
    """The scenario's session script, if it has one, and one vector per request that was retracted. states[n]: before
    operation n."""
    if any(isinstance(op, ops.Turn) for op in scenario.ops):
        yield _session(scenario, states)
    retracted = dict.fromkeys(op.req for op in scenario.ops if isinstance(op, ops.Retract))
    for req in retracted:
        yield _retraction(scenario, states, req)


def _session(scenario: ops.Scenario, states: Sequence[State]) -> Found:
    events: list[v.Event] = []
    expected = []
    last = max(number for number, op in enumerate(scenario.ops) if isinstance(op, ops.Turn))
    for number, op in enumerate(scenario.ops[: last + 1]):
        after = states[number + 1]
        match op:
            case ops.Open():
                events.append(v.OpenEvent(session=op.session, streaming=op.streaming))
            case ops.Turn():
                request = after.requests[op.req]
                events.append(_turn(after, request, op))
                expected.append(_held(after, request))
            case ops.Finish() | ops.Abort() | ops.Retract() if after.requests[op.req].session is not None:
                events.append(_ended(op))
            case _:
                _replies(events, states[number], after)
    return last, v.SessionInput(family=scenario.family, events=tuple(events)), tuple(expected)


def _ended(op: ops.Finish | ops.Abort | ops.Retract) -> v.Event:
    match op:
        case ops.Finish():
            return v.FinishEvent(request=op.req)
        case ops.Abort():
            return v.AbortEvent(request=op.req)
        case ops.Retract():
            return v.RetractEvent(request=op.req)


def _turn(state: State, request: Request, op: ops.Turn) -> v.TurnEvent:
    line = turn_line(state, request)
    return v.TurnEvent(
        session=op.session,
        request=op.req,
        runs=runs_of(op.prompt),
        table=rows_of(line.table),
        delta=line.delta,
        parent=op.parent,
        replace=op.replace,
        offset=op.offset,
        drop_previous_output=op.drop_previous_output,
        max_new_tokens=None if op.max_new_tokens == ops.UNLIMITED else op.max_new_tokens,
    )


def _held(state: State, request: Request) -> v.ExpectedTable:
    """What the turn's request must hold right after it arrived."""
    label = f"turn {request.req}"
    if request.status == "refused":
        return v.ExpectedTable(label=label, refused=True)
    line = request.line
    needed = line.width if request.brings_media else _needed(state, request)
    return v.ExpectedTable(
        label=label,
        rows=rows_of(line.table),
        tokens=len(request.ids),
        delta=line.delta,
        refused=False,
        media_spans=media_spans(find_family(state.family), request.prompt),
        optional_from=needed if needed < line.width else None,
    )


def _needed(state: State, request: Request) -> int:
    """Columns up to the last turn that brought media, as far as this turn's history keeps them."""
    if request.parent is None or not request.has_media:
        return 0
    parent = state.requests[request.parent]
    held = parent.line.width if parent.brings_media else _needed(state, parent)
    return min(held, len(request.ids) - len(request.turn_ids))


def _replies(events: list[v.Event], before: State, after: State) -> None:
    """One event for what each request has emitted; several in a row become one."""
    for req, request in after.requests.items():
        if request.session is None or request.outputs == before.requests[req].outputs:
            continue
        new = request.outputs - before.requests[req].outputs
        last = events[-1]
        if isinstance(last, v.ReplyEvent) and last.request == req:
            events[-1] = v.ReplyEvent(request=req, tokens=last.tokens + new)
        else:
            events.append(v.ReplyEvent(request=req, tokens=new))


def _retraction(scenario: ops.Scenario, states: Sequence[State], req: int) -> Found:
    """One entry per retraction: what had been emitted by then, and the refusals before it is admitted again."""
    outputs: list[int] = []
    refusals: list[int] = []
    last = 0
    for number, op in enumerate(scenario.ops):
        if isinstance(op, ops.Retract) and op.req == req:
            outputs.append(states[number].requests[req].outputs)
            refusals.append(0)
            last = number
        elif isinstance(op, ops.Reschedule) and op.req == req and outputs:
            refusals[-1] += op.refusals
    state = states[-1]
    request = state.requests[req]
    line = request.line
    needed = line.tabulated if line.has_media else 0
    tables = []
    for number, count in enumerate(outputs):
        width = line.width + count
        tables.append(
            v.ExpectedTable(
                label=f"retraction {number}",
                rows=rows_of(line.take(np.arange(width, dtype=np.int64))),
                tokens=width,
                optional_from=needed if needed < width else None,
            )
        )
    retractions = tuple(
        v.Retraction(outputs=count, refusals=refused) for count, refused in zip(outputs, refusals, strict=True)
    )
    value = v.RetractionInput(family=scenario.family, request=request_of(state, request), retractions=retractions)
    return last, value, tuple(tables)

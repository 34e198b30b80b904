"""Verdicts on what the engine holds for each request between forwards: session, ownership and freshness rules."""

from __future__ import annotations

import numpy as np

from ropecheck.adapters import protocol
from ropecheck.conformance.judge.outcome import Difference, Failure, Unrun
from ropecheck.conformance.judge.tally import Tally
from ropecheck.conformance.plan.planner import ExpectedState, StateCheck, decoded
from ropecheck.reference.timeline import IntArray
from ropecheck.spec import ownership
from ropecheck.spec.history import Delta

MEDIA_FIELDS = ("table", "delta", "items", "offsets", "delta_cache")
"""What belongs to a request's media state."""

STATE_RULES = frozenset(
    {
        "session.table",
        "session.delta",
        "session.media_spans",
        "retraction.table",
        "retraction.refused_attempts",
        "ownership.parent_unchanged",
        "ownership.others_unchanged",
    }
)
"""Rules on what a request holds: where one is broken, later wrong tables of that request follow from it."""

LAZY_FIELD = "delta_cache"
"""Building a forward may fill it in; that alone is no change of state."""


def judge_states(tally: Tally, check: StateCheck, result: protocol.States, before: protocol.States | None) -> None:
    """Judge one observation, beside the one before it."""
    seen = {state.req: state for state in result.states}
    for one in result.states:
        if one.table is not None and one.delta is not None:
            tally.held[one.req] = (one.table, one.delta)
    earlier = {state.req: state for state in before.states} if before is not None else {}
    for expected in check.expected:
        req = expected.request.req
        state = seen.get(req)
        if state is None:
            tally.unrun.append(Unrun(stage="decode", message=f"no state of request {req} was answered", step=check.op))
            continue
        if req in earlier and req not in check.subject:
            _unchanged(tally, check, earlier[req], state)
        if expected.request.status == "refused":
            _refused(tally, check, state, True)
            continue
        if check.kind == "turn" and req in check.subject:
            _refused(tally, check, state, False)
            if state.aborted:
                continue
            if check.parent in tally.tainted:
                tally.taint(req, tally.tainted[check.parent])
        if req in check.subject and expected.request.session is not None and check.kind == "turn":
            _turn(tally, check, expected, state)
        if expected.request.status != "finished":
            _fresh(tally, check, expected, state)
        if req in check.subject and check.kind != "turn":
            _scheduled(tally, check, expected, state, earlier.get(req))


def _unchanged(tally: Tally, check: StateCheck, old: protocol.RequestState, new: protocol.RequestState) -> None:
    rule = "ownership.parent_unchanged" if old.req == check.parent else "ownership.others_unchanged"
    tally.check(rule)
    for field in MEDIA_FIELDS:
        was, now = getattr(old, field), getattr(new, field)
        if was == now or (field == LAZY_FIELD and was is None and check.kind not in ("turn", "abort")):
            continue
        what = "parent" if rule == "ownership.parent_unchanged" else "another request"
        how = "grew" if field == "table" and _grew(was, now) else "changed"
        _fail(
            tally,
            check,
            rule,
            f"{what}'s {field} {how} by {_happening(check)}",
            old.req,
            field,
            f"request {old.req}'s {field} was {_show(was)} and is {_show(now)}",
            _show(was),
            _show(now),
        )


def _grew(was: protocol.Tensor | None, now: protocol.Tensor | None) -> bool:
    """Whether a table only gained columns: those that it had are as they were."""
    if was is None or now is None:
        return False
    old, new = decoded(was), decoded(now)
    if old.ndim != 2 or new.ndim != 2 or old.shape[0] != new.shape[0] or old.shape[1] > new.shape[1]:
        return False
    return bool((new[:, : old.shape[1]] == old).all())


def _happening(check: StateCheck) -> str:
    """What happened between the two observations, for people."""
    again = any(e.request.req in check.subject and e.request.status == "retracted" for e in check.expected)
    if again and check.kind != "retract":
        return "a re-prefill"
    return f"{'an' if check.kind[0] in 'aeo' else 'a'} {check.kind}"


def _refused(tally: Tally, check: StateCheck, state: protocol.RequestState, must: bool) -> None:
    tally.check("session.refused")
    if state.aborted != must:
        verb = "accepted" if must else "refused"
        _fail(
            tally,
            check,
            "session.refused",
            verb,
            state.req,
            "aborted",
            f"the turn of request {state.req} was {verb}{': ' + state.note if state.note else ''}",
            str(must),
            str(state.aborted),
        )


def _turn(tally: Tally, check: StateCheck, expected: ExpectedState, state: protocol.RequestState) -> None:
    """Right after a session's turn arrived: tokens, table, delta and items are those of its whole history."""
    tally.check(*check.history_rules)
    if state.unpadded_ids != expected.request.ids:
        _fail(
            tally,
            check,
            check.history_rules[-1],
            _ids_signature(expected.request.ids, state.unpadded_ids),
            state.req,
            "ids",
            f"{len(state.unpadded_ids)} tokens, the history has {len(expected.request.ids)}",
            _ids(expected.request.ids),
            _ids(state.unpadded_ids),
        )
    _padded(tally, check, expected, state)
    _table(tally, check, expected, state, "session.table")
    _delta(tally, check, expected, state)
    tally.check("session.media_spans")
    if state.offsets != expected.spans:
        shape = (
            "items missing"
            if len(state.offsets) < len(expected.spans)
            else ("items left over" if len(state.offsets) > len(expected.spans) else "items misplaced")
        )
        _fail(
            tally,
            check,
            "session.media_spans",
            f"{shape} ({check.history_rules[-1].split('.', 1)[1]})",
            state.req,
            "offsets",
            f"media items at {list(state.offsets)}, the history has them at {list(expected.spans)}",
            str(list(expected.spans)),
            str(list(state.offsets)),
        )


def _fresh(tally: Tally, check: StateCheck, expected: ExpectedState, state: protocol.RequestState) -> None:
    if state.delta_cache is None:
        return
    tally.check("freshness.delta_cache")
    want = set(ownership.delta_cache(expected.line.delta))  # type: ignore[arg-type]
    got = set(decoded(state.delta_cache).ravel().tolist())
    if got != want:
        held = [] if state.delta is None else decoded(state.delta).ravel().tolist()
        fits = len(held) == 1 and got == set(ownership.delta_cache(Delta(held[0])))
        _fail(
            tally,
            check,
            "freshness.delta_cache",
            "stale cache",
            state.req,
            "delta_cache",
            f"request {state.req} caches {sorted(got)}, its delta is {expected.line.delta}",
            str(sorted(want)),
            str(sorted(got)),
            # A wrong delta, seen before, makes a wrong cache: what is cached is still what is held.
            follows=tally.tainted.get(state.req, "") if fits else "",
        )


def _scheduled(
    tally: Tally,
    check: StateCheck,
    expected: ExpectedState,
    state: protocol.RequestState,
    old: protocol.RequestState | None,
) -> None:
    """After the scheduler considered or admitted a request: what the next prefill will read."""
    if expected.request.status == "retracted":
        _table(tally, check, expected, state, "retraction.table")
        if old is not None and old.table is not None and state.table is not None:
            _attempts(tally, check, state.req, decoded(old.table), decoded(state.table))
    if not expected.scheduled or state.fill_ids is None:
        return
    rule = "retraction.same_history" if expected.request.status == "retracted" else "freshness.fill_ids"
    tally.check(rule)
    want = ownership.fill_ids(state.ids, state.output_ids)
    if state.fill_ids != want:
        _fail(
            tally,
            check,
            rule,
            _ids_signature(want, state.fill_ids),
            state.req,
            "fill_ids",
            f"{len(state.fill_ids)} fill ids differ from the padded prompt and outputs ({len(want)})",
            _ids(want),
            _ids(state.fill_ids),
        )
    _padded(tally, check, expected, state)


def _attempts(tally: Tally, check: StateCheck, req: int, was: IntArray, now: IntArray) -> None:
    tally.check("retraction.refused_attempts")
    width = min(was.shape[-1], now.shape[-1])
    if was.ndim != now.ndim or now.shape[-1] < was.shape[-1] or (was[..., :width] != now[..., :width]).any():
        _fail(
            tally,
            check,
            "retraction.refused_attempts",
            "columns changed",
            req,
            "table",
            f"the table of request {req} had {was.shape[-1]} columns; considered again, they are not the same",
            str(was[..., :6].tolist()),
            str(now[..., :6].tolist()),
        )


def _padded(tally: Tally, check: StateCheck, expected: ExpectedState, state: protocol.RequestState) -> None:
    tally.check("freshness.padded_media")
    if len(state.ids) != len(expected.request.ids):
        _fail(
            tally,
            check,
            "freshness.padded_media",
            "wrong length",
            state.req,
            "ids",
            f"{len(state.ids)} padded tokens for {len(expected.request.ids)}",
            str(len(expected.request.ids)),
            str(len(state.ids)),
        )
        return
    for index, (media, raw, held) in enumerate(zip(expected.media_mask, expected.request.ids, state.ids, strict=True)):
        if not ownership.padded(media, raw, held):
            shape = "raw placeholder left" if media else "text token changed"
            _fail(
                tally,
                check,
                "freshness.padded_media",
                shape,
                state.req,
                "ids",
                f"token {index} holds {held}, raw {raw}",
                "pad value" if media else str(raw),
                str(held),
                index,
            )
            return


def _table(tally: Tally, check: StateCheck, expected: ExpectedState, state: protocol.RequestState, rule: str) -> None:
    """Every column that the request's table has is the ideal one; a turn with media covers its whole prompt."""
    if state.table is None and not expected.line.has_media:
        return
    tally.check(rule)
    if state.table is None:
        _fail(
            tally,
            check,
            rule,
            "table missing",
            state.req,
            "table",
            "the request has media but no table",
            str(expected.line.width),
            "None",
        )
        return
    table = decoded(state.table)
    axes = expected.line.table.shape[0]
    if table.ndim != 2 or table.shape[0] != axes:
        _fail(
            tally,
            check,
            rule,
            "wrong number of rows",
            state.req,
            "table",
            f"table of shape {list(table.shape)}",
            str(axes),
            str(list(table.shape)),
        )
        return
    needed = expected.line.width if expected.request.brings_media else 0
    want = expected.line.take(np.arange(table.shape[1], dtype=np.int64))
    if table.shape[1] < needed:
        _fail(
            tally,
            check,
            rule,
            "too few columns",
            state.req,
            "table",
            f"{table.shape[1]} columns for a prompt of {needed} tokens",
            str(needed),
            str(table.shape[1]),
        )
    elif (want != table).any():
        column = int((want != table).any(axis=0).argmax())
        _fail(
            tally,
            check,
            rule,
            _table_signature(expected, want, table, column),
            state.req,
            "table",
            f"column {column}: {_column(table, column)}, must be {_column(want, column)}",
            _column(want, column),
            _column(table, column),
            column,
        )


def _table_signature(expected: ExpectedState, want: IntArray, table: IntArray, column: int) -> str:
    parent = expected.parent_line
    if parent is not None and (parent.take(np.arange(table.shape[1], dtype=np.int64)) == table).all():
        return "columns of the parent"
    shift = table[:, column:] - want[:, column:]
    if (shift == shift.flat[0]).all():
        before = table[:, column - 1] if column else table[:, :0]
        return "continues from one row" if (before + 1 == table[0, column]).any() else "shifted by a constant"
    return "other values"


def _delta(tally: Tally, check: StateCheck, expected: ExpectedState, state: protocol.RequestState) -> None:
    if state.delta is None and not expected.line.has_media:
        return
    tally.check("session.delta")
    if state.delta is None:
        _fail(
            tally,
            check,
            "session.delta",
            "delta missing",
            state.req,
            "delta",
            "the request has media but no delta",
            str(expected.line.delta),
            "None",
        )
        return
    value = decoded(state.delta)
    if value.shape != (1, 1):
        _fail(
            tally,
            check,
            "session.delta",
            "wrong shape",
            state.req,
            "delta",
            f"delta of shape {list(value.shape)}",
            "[1, 1]",
            str(list(value.shape)),
        )
    elif int(value[0, 0]) != expected.line.delta:
        _fail(
            tally,
            check,
            "session.delta",
            "stale delta",
            state.req,
            "delta",
            f"delta {int(value[0, 0])}, the history has {expected.line.delta}",
            str(expected.line.delta),
            str(int(value[0, 0])),
        )


def _fail(
    tally: Tally,
    check: StateCheck,
    rule: str,
    signature: str,
    req: int,
    field: str,
    message: str,
    expected: str,
    observed: str,
    column: int | None = None,
    follows: str = "",
) -> None:
    if rule in STATE_RULES and " grew by " not in signature:
        follows = tally.tainted.get(req, "")
        tally.taint(req, rule)
    tally.fail(
        Failure(
            rule=rule,
            mode=rule.split(".", 1)[0],
            signature=f"follows from {follows}" if follows else signature,
            step=check.op,
            label="",
            message=message,
            difference=Difference(field, column, req, expected, observed),
            follows=follows,
        )
    )


def _column(table: IntArray, column: int) -> str:
    return "(" + ", ".join(str(value) for value in table[:, column].tolist()) + ")"


def _ids_signature(want: tuple[int, ...], got: tuple[int, ...]) -> str:
    if len(got) != len(want):
        return "too few tokens" if len(got) < len(want) else "too many tokens"
    return "other tokens"


def _ids(ids: tuple[int, ...], most: int = 12) -> str:
    shown = ", ".join(map(str, ids[:most]))
    return f"[{shown}{', ..' if len(ids) > most else ''}]"


def _show(value: object) -> str:
    if isinstance(value, protocol.Tensor):
        array = decoded(value)
        shape = "[" + ", ".join(map(str, array.shape)) + "]"
        return f"{shape} {array.ravel()[:6].tolist()}{'..' if array.size > 6 else ''}"
    return str(value)

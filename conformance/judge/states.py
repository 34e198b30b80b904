"""Verdicts on what the engine holds for each request between forwards: session, ownership and freshness rules."""

from collections.abc import Mapping
from dataclasses import replace

from ropecheck.adapters import protocol
from ropecheck.conformance.judge.ask import Settled, as_bytes, ask
from ropecheck.conformance.judge.outcome import TableView, Unrun, failure_of
from ropecheck.conformance.judge.signature import held_signature
from ropecheck.conformance.judge.tables import seen
from ropecheck.conformance.judge.tally import ScenarioTally
from ropecheck.conformance.plan.planner import ExpectedState, StateCheck, decoded
from ropecheck.spec.history import Delta
from ropecheck.spec.ownership import cached_deltas
from ropecheck.spec.rules import Violation
from ropecheck.spec.views import Bystander, HeldState, Standing

MEDIA_FIELDS = ("table", "delta", "offsets", "delta_cache")
"""What belongs to a request's media state."""

STATE_RULES = frozenset(
    {
        "session.table",
        "session.delta",
        "session.media_spans",
        "request.table",
        "request.delta",
        "request.media_spans",
        "retraction.table",
        "retraction.refused_attempts",
        "ownership.parent_unchanged",
        "ownership.others_unchanged",
    }
)
"""Rules on what a request holds: where one is broken, later wrong tables of that request follow from it."""

LAZY_FIELD = "delta_cache"
"""Building a forward may fill it in; that alone is no change of state."""


_settled = Settled()


def judge_states(
    tally: ScenarioTally, check: StateCheck, result: protocol.States, before: protocol.States | None
) -> None:
    """Judge one observation, beside the one before it."""
    answered = {state.req: state for state in result.states}
    if len(answered) != len(result.states):
        tally.unrun.append(Unrun(stage="decode", message="two states of one request were answered", step=check.op))
        return
    for one in result.states:
        if one.table is not None and one.delta is not None:
            tally.held[one.req] = (one.table, one.delta)
    if tally.failures or not all(one.small for one in check.expected):  # what was wrong has a say in what is wrong now
        _states(tally, check, answered, before)
        return
    happened = (check.kind, check.subject, check.own, check.parent, *check.hits.items(), check.replaced, check.turn)
    asked = (*check.expected, *happened, as_bytes((result, before)))
    _settled.once(tally, asked, lambda: _states(tally, check, answered, before))


def _states(
    tally: ScenarioTally,
    check: StateCheck,
    answered: Mapping[int, protocol.RequestState],
    before: protocol.States | None,
) -> None:
    earlier = {state.req: state for state in before.states} if before is not None else {}
    for expected in check.expected:
        req = expected.request.req
        state = answered.get(req)
        if state is None:
            tally.unrun.append(Unrun(stage="decode", message=f"no state of request {req} was answered", step=check.op))
            continue
        if req in earlier and req not in check.subject and req not in check.own:
            _bystander(tally, check, earlier[req], state)
        arrived = check.kind == "turn" and req in check.subject
        if not arrived:
            standing = Standing(
                refused=expected.request.status == "refused",
                replaced=req in check.replaced,
                aborted=state.aborted,
                note=state.note,
            )
            for rule, found in ask(tally, "request", standing):
                message = f"request {req} {found.message}"
                _fail(tally, check, rule.id, req, replace(found, message=message))
        if arrived:
            telling = _arrived(tally, check, state)
            if state.aborted or expected.request.status == "refused":
                continue
            if check.parent in tally.grown:
                tally.taint(req, "ownership.others_unchanged")
            if check.parent in tally.tainted:
                tally.taint(req, tally.tainted[check.parent])
            _held(tally, check, expected, state, "turn", earlier.get(req), telling)
        elif expected.request.status == "refused":
            continue
        elif req in check.subject or (req in check.own and expected.request.status == "retracted"):
            _held(tally, check, expected, state, "scheduled", earlier.get(req))
        elif req in check.own:
            _held(tally, check, expected, state, "computed", earlier.get(req))
        elif expected.request.status != "finished":
            _held(tally, check, expected, state, "later", earlier.get(req))


def _bystander(tally: ScenarioTally, check: StateCheck, old: protocol.RequestState, new: protocol.RequestState) -> None:
    """A request that the operation must not touch: every field of its media state is a view of its own."""
    parent = old.req == check.parent
    for field in MEDIA_FIELDS:
        was, now = getattr(old, field), getattr(new, field)
        filled = field == LAZY_FIELD and was is None and check.kind not in ("turn", "abort")
        for rule, _ in ask(tally, "ownership", Bystander(parent=parent, field=field, was=was, now=now, filled=filled)):
            whose = "parent" if parent else "another request"
            how = "grew" if field == "table" and _grew(was, now) else "changed"
            found = Violation(
                axis=field,
                expected=_show(was),
                observed=_show(now),
                shape=f"{whose}'s {field} {how} by {_happening(check)}",
                message=f"request {old.req}'s {field} was {_show(was)} and is {_show(now)}",
            )
            if how == "grew":
                tally.grown.add(old.req)
            _fail(tally, check, rule.id, old.req, found)


def _arrived(tally: ScenarioTally, check: StateCheck, state: protocol.RequestState) -> str:
    """The session's rules on the turn that arrived; returns the most telling one that spoke of it."""
    assert check.turn is not None
    ids = None if state.aborted else state.unpadded_ids
    turn = replace(check.turn, ids=ids, refused=state.aborted, note=state.note)
    asked = tally.asked["session"]
    before = len(asked)
    for rule, found in ask(tally, "session", turn):
        message = f"request {state.req}: {found.message}"
        _fail(tally, check, rule.id, state.req, replace(found, message=message))
        if found.axis == "ids":
            tally.strayed.setdefault(state.req, rule.id)
    new = {*asked[before:]} - {"session.refused"}
    spoke = [rule for rule in dict.fromkeys(asked) if rule in new]
    return spoke[-1].split(".", 1)[1] if spoke else ""


def _held(
    tally: ScenarioTally,
    check: StateCheck,
    expected: ExpectedState,
    state: protocol.RequestState,
    moment: str,
    old: protocol.RequestState | None,
    telling: str = "",
) -> None:
    """What the engine holds for one request, by every rule that speaks of this moment."""
    request = expected.request
    held = HeldState(
        moment=moment,
        place=expected.line.place,
        covers=expected.line.width if request.brings_media else 0,
        spans=expected.spans,
        media=expected.media_mask,
        raw=request.ids,
        outputs=request.output_ids,
        retracted=request.status == "retracted",
        admitted=expected.scheduled,
        table=seen(state.table),
        delta=seen(state.delta),
        delta_cache=seen(state.delta_cache),
        offsets=state.offsets,
        ids=state.ids,
        fill_ids=state.fill_ids,
        unpadded_ids=state.unpadded_ids,
        output_ids=state.output_ids,
        prefix_len=state.prefix_len,
        hit=check.hits.get(state.req) if moment == "scheduled" else None,
        ids_before=None if old is None else old.ids,
        parent=None if expected.parent_line is None else expected.parent_line.place,
        table_before=None if old is None else seen(old.table),
    )
    # What is held wrongly comes before what follows from it.
    for rule, found in sorted(ask(tally, rule_topic(moment), held), key=lambda pair: pair[0].id not in STATE_RULES):
        shape = found.shape or held_signature(held, found)
        if rule.id == "session.media_spans":
            shape = f"{shape} ({telling})"
        follows = ""
        if rule.id == "freshness.delta_cache" and _fits(held):
            # A wrong delta, seen before, makes a wrong cache: what is cached is still what is held.
            follows = tally.tainted.get(state.req, "")
        elif found.axis in ("ids", "unpadded_ids"):
            follows = tally.strayed.get(state.req, "")
        message = f"request {state.req}: {found.message}" if found.message else f"request {state.req}"
        views = _views(held) if found.axis == "table" else (None, None)
        _fail(tally, check, rule.id, state.req, replace(found, shape=shape, message=message), follows, views)


def rule_topic(moment: str) -> str:
    """What reports file a moment's checks under."""
    return {"turn": "session", "scheduled": "retraction", "computed": "freshness", "later": "freshness"}[moment]


def _fits(held: HeldState) -> bool:
    if held.delta is None or held.delta_cache is None or len(held.delta.values) != 1 or len(held.delta.values[0]) != 1:
        return False
    found = {value for row in held.delta_cache.values for value in row}
    return found == cached_deltas(Delta(held.delta.values[0][0]))


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
    touched = check.subject | check.own
    again = any(e.request.req in touched and e.request.status == "retracted" for e in check.expected)
    if again and check.kind != "retract":
        return "a re-prefill"
    return f"{'an' if check.kind[0] in 'aeo' else 'a'} {check.kind}"


def _views(held: HeldState) -> tuple[TableView | None, TableView | None]:
    """The request's table as it must be, and as it is."""
    table = held.table
    if table is None or len(table.shape) != 2:
        return None, None
    right = tuple(zip(*(held.place.column(at) for at in range(table.shape[1])), strict=True))
    return TableView(None, right), TableView(None, tuple(map(tuple, table.values)))


def _fail(
    tally: ScenarioTally,
    check: StateCheck,
    rule: str,
    req: int,
    found: Violation,
    follows: str = "",
    views: tuple[TableView | None, TableView | None] = (None, None),
) -> None:
    if rule in STATE_RULES and " grew by " not in found.shape:
        follows = tally.tainted.get(req, "")
        tally.taint(req, rule)
    topic, (expected, observed) = rule.partition(".")[0], views
    tally.fail(
        failure_of(rule, topic, found, req, step=check.op, expected=expected, observed=observed, follows=follows)
    )


def _show(value: object) -> str:
    if isinstance(value, protocol.Tensor):
        array = decoded(value)
        shape = "[" + ", ".join(map(str, array.shape)) + "]"
        return f"{shape} {array.ravel()[:6].tolist()}{'..' if array.size > 6 else ''}"
    return str(value)

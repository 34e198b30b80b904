"""A scenario's outcome: steps that raise, are not offered or may be refused; costs; laws; what is counted and kept."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from ropecheck.adapters import protocol
from ropecheck.conformance.judge.ask import Settled, as_bytes, no_tables
from ropecheck.conformance.judge.laws import _fail, _read
from ropecheck.conformance.judge.outcome import Difference, Failure, Unrun, failure_of
from ropecheck.conformance.judge.tally import RulesAsked, ScenarioTally, times
from ropecheck.conformance.judge.verdict import protocol_tag
from ropecheck.conformance.plan.planner import LawCheck, Plan, Reading, plan
from ropecheck.conformance.scenario.operations import Law, MeasureCost, Open, Pick, Rotate, Scenario, Submit, Turn
from ropecheck.conformance.scenario.words import decode, draft, extend, window
from ropecheck.spec.history import text
from ropecheck.spec.rules import Violation, replaced
from tests.judge.support import (
    Change,
    answered,
    cell,
    fields,
    instead,
    judged,
    planned,
    result_of,
    state,
    state_of,
    table,
)
from tests.judge.test_states import SESSION, held
from tests.judge.test_tables import AT, DECODED, PICTURE, TWO

THEIRS = protocol.Raised("engine", "KeyError", "no\nmore", "sglang/a.py:3 f")
OURS = protocol.Raised("adapter", "OSError", "no", "")
ABSENT = protocol.NotOfferedAnswer("no such thing")
TOLD = "KeyError: no at sglang/a.py:3 f"


def steps_of(one: Plan, kind: type[object]) -> list[int]:
    return [number for number, step in enumerate(one.job.steps) if isinstance(step, kind)]


def keys(one: Plan, changes: dict[int, Change]) -> list[tuple[str, str, str, int]]:
    return [(*failure.key, failure.step) for failure in judged(one, changes).failures]


def test_a_forward_that_raises_gave_no_table() -> None:
    (failure,) = judged(DECODED, {AT: instead(THEIRS)}).failures
    assert failure == Failure(
        rule="table.present",
        mode="decode",
        signature="raises KeyError in f",
        step=3,
        label="",
        message=TOLD,
        where="sglang/a.py:3 f",
    )


def test_a_forward_of_ours_that_raises_could_not_run() -> None:
    found = judged(DECODED, {AT: instead(OURS)})
    assert found.unrun == (Unrun("adapter", "decode: OSError: no", 3),) and not found.failures


def test_a_forward_that_is_not_offered() -> None:
    found = judged(DECODED, {AT: instead(ABSENT)})
    assert found.not_offered == (("decode", "no such thing"),) and not found.failures and not found.unrun
    assert found.modes == {"extend": 1}


def test_an_observation_that_raises_could_not_run() -> None:
    at = state_of(SESSION, 6)
    for raised, stage in ((THEIRS, "engine"), (OURS, "adapter")):
        found = judged(SESSION, {at: instead(raised)})
        assert [(one.stage, one.step) for one in found.unrun] == [(stage, 6)] and not found.failures
    assert judged(SESSION, {at: instead(ABSENT)}).not_offered == (("state", "no such thing"),)
    assert judged(SESSION, {at: instead(protocol.Done())}).unrun == (Unrun("decode", "answered with Done", 6),)


def test_outside_a_check_what_raises_breaks_its_request() -> None:
    """A request that never came to be: what runs on it says nothing, and what runs after that neither."""
    first, second = steps_of(DECODED, protocol.SubmitStep)
    found = judged(DECODED, {second: instead(THEIRS)})
    assert [(*one.key, one.step) for one in found.failures] == [("table.present", "submit", "raises KeyError in f", 2)]
    assert (found.failures[0].message, found.modes) == (TOLD, {})
    ours = judged(DECODED, {second: instead(OURS)})
    assert ours.unrun == (Unrun("adapter", "submit: OSError: no"),) and ours.modes == {"extend": 1, "decode": 1}
    absent = judged(DECODED, {first: instead(ABSENT)})
    assert absent.not_offered == (("state", "no such thing"),) and absent.modes == {"extend": 1, "decode": 1}
    # of the last step, which no check follows
    last = len(DECODED.job.steps) - 1
    assert keys(DECODED, {last: instead(THEIRS)}) == [("table.present", "generate", "raises KeyError in f", 3)]
    assert judged(DECODED, {last: instead(THEIRS)}).modes == {"extend": 1, "decode": 1}


def test_what_is_before_a_request_broke_is_judged() -> None:
    between = steps_of(DECODED, protocol.Generate)[1]  # of request 7, behind the prefill
    assert DECODED.job.steps[between].req == 7  # type: ignore[union-attr]
    found = judged(DECODED, {between: instead(THEIRS), AT: instead(THEIRS)})
    assert [(*one.key, one.step) for one in found.failures] == [
        ("table.present", "generate", "raises KeyError in f", 3)
    ]
    assert found.modes == {"extend": 1}
    twice = judged(DECODED, {between: instead(THEIRS), len(DECODED.job.steps) - 1: instead(OURS)})
    assert len(twice.failures) == 1 and twice.unrun in ((), (Unrun("adapter", "generate: OSError: no"),))


SEPARATE = planned(*TWO, decode((0,)), decode((7,)))


def test_requests_of_other_batches_are_judged_up_to_the_first_broken_one() -> None:
    of_7 = steps_of(SEPARATE, protocol.Generate)[1]
    wrong = {result_of(SEPARATE, 3): table(cell(0, 0, value=99))}
    found = keys(SEPARATE, {of_7: instead(THEIRS), **wrong})
    assert found == [
        ("table.present", "generate", "raises KeyError in f", 3),
        ("table.past_table", "decode", "row t wrong", 3),
    ]
    later = {result_of(SEPARATE, 4): table(cell(0, 0, value=99))}
    assert keys(SEPARATE, {of_7: instead(THEIRS), **later}) == found[:1]


def test_a_turn_that_raises_breaks_the_most_telling_rule_on_its_history_and_its_children() -> None:
    ops = SESSION.scenario.ops
    branch = planned(*ops[:7], Turn(0, 2, (text(1),), parent=0), decode((5,)))
    turns = steps_of(branch, protocol.TurnStep)
    found = keys(branch, {turns[1]: instead(THEIRS)})
    assert found == [("session.append", "session", "raises KeyError in f", 6)]
    assert keys(branch, {turns[2]: instead(THEIRS)}) == [("session.branch", "session", "raises KeyError in f", 7)]
    first = judged(branch, {turns[0]: instead(THEIRS)})
    assert [one.rule for one in first.failures] == ["session.replace_all"]
    assert "extend" not in first.modes


def test_a_turn_on_one_that_never_was_has_no_state_either() -> None:
    one = planned(Open(0), Turn(0, 0, PICTURE), Turn(0, 1, (text(2),), parent=0, replace=True), extend((window(1),)))
    first, *_ = steps_of(one, protocol.TurnStep)
    gone: dict[int, Change] = {number: instead(protocol.States(())) for number in steps_of(one, protocol.Observe)}
    found = judged(one, {first: instead(THEIRS), **gone})
    assert [failure.rule for failure in found.failures] == ["session.replace_all"] and not found.unrun


OPTIONAL = planned(
    Open(0),
    Turn(0, 0, PICTURE),
    extend((window(0),)),
    Turn(0, 1, (text(2),), parent=0, replace=True),
    extend((window(1),)),
    decode((1,)),
)


def test_what_comes_after_a_turn_that_was_refused_is_not_judged() -> None:
    at = state_of(OPTIONAL, 3)
    assert [check.result for check in OPTIONAL.optional] == [at]

    def refused(right: protocol.States) -> protocol.States:
        return protocol.States(
            tuple(msgspec.structs.replace(one, aborted=True) if one.req == 1 else one for one in right.states)
        )

    wrong: dict[int, Change] = {result_of(OPTIONAL, 4): table(cell(0, 0, value=99))}
    assert [one.step for one in judged(OPTIONAL, wrong).failures] == [4]
    found = judged(OPTIONAL, {at: refused, **wrong})
    assert not found.failures and found.modes == {"extend": 1}
    early: dict[int, Change] = {result_of(OPTIONAL, 2): table(cell(0, 0, value=99))}
    assert [one.step for one in judged(OPTIONAL, {at: refused, **early}).failures] == [2]
    last = len(OPTIONAL.job.steps) - 2
    assert not judged(OPTIONAL, {at: refused, last: instead(THEIRS)}).failures

    def both(right: protocol.States) -> protocol.Result:
        return state(5, ids=(1,))(refused(right))

    ops = OPTIONAL.scenario.ops
    beside = planned(*ops[:2], Submit(5, (text(3),)), *ops[2:])
    assert [one.rule for one in judged(beside, {state_of(beside, 4): both}).failures] == ["freshness.padded_media"]


def test_a_request_that_never_was_has_no_state() -> None:
    five = steps_of(SESSION, protocol.SubmitStep)[0]
    gone: dict[int, Change] = {
        number: lambda right: protocol.States(tuple(one for one in right.states if one.req != 5))
        for number in steps_of(SESSION, protocol.Observe)
    }
    found = judged(SESSION, {five: instead(THEIRS), **gone})
    assert [one.mode for one in found.failures] == ["submit"] and not found.unrun


def test_a_cost_of_a_request_that_never_was_is_not_counted() -> None:
    second = steps_of(COST, protocol.Generate)[-1]
    found = judged(COST, {second: instead(THEIRS), COUNTED: instead(protocol.Counted(99, ("a",)))})
    assert [one.mode for one in found.failures] == ["generate"]


COST = planned(*TWO, MeasureCost(decode((7, 0))))
COUNTED = COST.checks[-1].result


@pytest.mark.parametrize(
    ("counted", "rule", "message", "where"),
    [
        (protocol.Counted(99, ("a", "b")), "cost.media", "99 host-to-device copies, at most 1: a, b", "a, b"),
        (
            protocol.Counted(0, ("a",), 1, ("h",)),
            "cost.device_values",
            "reads a value of the device on the host: h",
            "h",
        ),
        (
            protocol.Counted(0, ("a",), syncs=2, sync_lines=("w", "v"), method="cuda"),
            "cost.synchronisations",
            "waits 2 times for the device, at most 1: w, v",
            "w, v",
        ),
    ],
)
def test_a_cost_is_told_with_its_lines(counted: protocol.Counted, rule: str, message: str, where: str) -> None:
    found = judged(COST, {COUNTED: instead(msgspec.structs.replace(counted, ran=("k",)))})
    (failure,) = found.failures
    assert (failure.rule, failure.mode, failure.step) == (rule, "decode", 3)
    assert (failure.message, failure.where) == (message, where)
    assert found.modes == {"extend": 1, "decode": 1} and found.ran["decode"] == {"k": 1}


def test_what_is_not_counted_is_not_asked() -> None:
    meta = judged(COST, {COUNTED: instead(protocol.Counted(0, (), syncs=99))})
    cuda = judged(COST, {COUNTED: instead(protocol.Counted(0, (), to_host=99, method="cuda"))})
    assert not meta.failures and not cuda.failures
    assert "cost.synchronisations" not in meta.checked and "cost.device_values" not in cuda.checked
    both = judged(COST, {COUNTED: instead(protocol.Counted(99, ("a",), syncs=9, sync_lines=("w",), method="cuda"))})
    assert [one.rule for one in both.failures] == ["cost.media", "cost.synchronisations"]


def test_a_cost_that_raises_or_needs_a_request_that_never_was() -> None:
    assert keys(COST, {COUNTED: instead(THEIRS)}) == [("table.present", "decode", "raises KeyError in f", 3)]
    second = steps_of(COST, protocol.Generate)[-1]
    found = judged(COST, {second: instead(THEIRS), COUNTED: instead(THEIRS)})
    assert [one.mode for one in found.failures] == ["generate"]


TURNED = planned(*TWO, Rotate(0), decode((0,)))


def test_a_rotation_is_a_step_that_a_check_looks_at() -> None:
    first = steps_of(TURNED, protocol.Rotary)[0]
    (failure,) = judged(TURNED, {first: instead(THEIRS)}).failures
    assert failure.key == ("rotary.rotation", "rotary", "raises KeyError in f")
    assert (failure.message, failure.difference) == (f"contiguous, native: {TOLD}", None)
    (moved,) = judged(TURNED, {first + 1: instead(THEIRS)}).failures
    assert moved.rule == "rotary.every_row_counts"
    other = judged(TURNED, {first: instead(protocol.Done())})
    assert other.unrun == (Unrun("decode", "answered with Done", 3),)
    of_7 = steps_of(TURNED, protocol.Generate)[1]
    assert judged(TURNED, {of_7: instead(THEIRS)}).modes == {"extend": 1, "rotary": 5, "decode": 1}
    of_0 = steps_of(TURNED, protocol.Generate)[0]
    assert judged(TURNED, {of_0: instead(THEIRS)}).modes == {"extend": 1, "rotary": 5}


LAW = "laws.chunked_prefill_is_one_prefill"
CHUNKS = (
    Submit(0, PICTURE),
    Submit(1, PICTURE),
    extend((window(0),)),
    extend((window(1, 3),)),
    extend((window(1),)),
)


def law(*more: object, op: str = LAW) -> Plan:
    ops = (*CHUNKS, *more)
    return plan(Scenario("x", ops, "qwen2_vl", laws=(Law(op, Pick(1, (3, 4)), Pick(0, (2,))),)))  # type: ignore[arg-type]


def test_two_readings_are_laid_beside_each_other() -> None:
    both = law()
    (check,) = (one for one in both.checks if isinstance(one, LawCheck))
    right = judged(both, {})
    assert right.checked[LAW] == 1 and not right.failures
    at = result_of(both, 4)
    found = judged(both, {at: table(cell(0, 1, value=99))}).failures
    assert [(one.rule, one.mode, one.step, one.follows) for one in found] == [
        ("table.inside_table", "extend", 4, ""),
        (LAW, "laws", check.op, "table.inside_table"),
    ]
    assert found[1].signature == "follows from table.inside_table"
    assert found[1].difference is not None and found[1].difference.request == 1
    whole = judged(both, {result_of(both, 2): table(cell(0, 4, value=99))}).failures
    assert [(one.rule, one.follows) for one in whole] == [("table.inside_table", ""), (LAW, "table.inside_table")]


@pytest.mark.parametrize(
    "change",
    [
        fields(mrope=None),
        fields(positions=None),
        table(lambda rows: rows[:, :2]),
        table(lambda rows: rows[0]),
        table(lambda rows: rows[0][:2]),
        instead(protocol.Done()),
        instead(protocol.TablesAnswer(())),
    ],
)
def test_a_law_says_nothing_where_a_table_is_missing(change: Change) -> None:
    both = law()
    for op in (2, 3, 4):
        found = judged(both, {result_of(both, op): change})
        assert LAW not in found.checked and all(one.rule != LAW for one in found.failures)
        assert found.failures or found.unrun


def test_a_reading_goes_through_all_forwards_and_their_tables() -> None:
    loop = planned(*TWO, draft((7, 0), 3), decode((0,)))
    drafts, later = (result_of(loop, op) for op in (3, 4))
    parts = (Reading(3, 0, drafts, ("", "step 1"), 1, 2), Reading(4, 0, later, ("",), 0, 1))
    assert list(_read(parts[:1], answered(loop, {})) or ()) == [8, 9]
    assert _read(parts, answered(loop, {})) == {8: (5, 5, 5), 9: (6, 6, 6)}


def test_a_law_reads_each_token_once_and_all_of_them() -> None:
    both = law()
    swapped = judged(both, {result_of(both, 4): table(lambda rows: rows[:, [1, 0, 2, 3, 4]])}).failures
    assert [one.rule for one in swapped] == ["table.inside_table", LAW]
    short = {result_of(both, 4): fields(mrope=held(np.zeros((3, 4))), positions=held(np.zeros(4)))}
    assert LAW not in judged(both, short).checked


@pytest.mark.parametrize(
    ("tainted", "failed", "follows"),
    [
        ({}, [], ""),
        ({0: "session.table"}, [], "session.table"),
        ({1: "session.delta", 0: "request.delta"}, [], "request.delta"),
        ({5: "session.delta"}, [], ""),
        ({}, [(9, 0, "")], ""),
        ({}, [(4, 5, "")], ""),
        ({}, [(4, 1, "")], "table.index"),
        ({0: "session.table"}, [(2, 0, "")], "table.index"),
        ({}, [(3, None, "session.table")], "session.table"),
        ({}, [(3, 1, "session.table"), (4, 1, "")], "session.table"),
    ],
)
def test_what_a_laws_failure_follows_from(
    tainted: dict[int, str], failed: list[tuple[int, int | None, str]], follows: str
) -> None:
    """tainted: requests whose state was seen to be wrong. failed: step, request and cause of earlier failures."""
    tally = ScenarioTally()
    tally.tainted = tainted
    for step, request, cause in failed:
        where = None if request is None else Difference("t", 0, request)
        tally.fail(Failure("table.index", "extend", "x", step, "", "", where, follows=cause))
    (check,) = (one for one in law().checks if isinstance(one, LawCheck))
    _fail(tally, check, Violation(axis="t", at=1, expected=1, observed=2, shape="differs", message="differs"))
    assert tally.failures[-1].follows == follows and tally.failures[-1].step == check.op


# ---------------------------------------------------------------- what is counted and kept


def test_what_was_asked_is_counted_by_mode() -> None:
    tally = RulesAsked()
    tally.asked["a"] += ["one", "two", "one"]
    tally.asked["b"] += ["two"]
    assert tally.by_mode == {"one": {"a": 2}, "two": {"a": 1, "b": 1}}
    assert tally.checked == {"one": 2, "two": 2}
    tally.forget(["one", "three"])
    assert tally.by_mode == {"two": {"a": 1, "b": 1}}
    tally.forget(["two"])
    assert tally.checked == {}
    assert times(["x", "y", "x"]) == {"x": 2, "y": 1} and times([]) == {}


def test_a_failure_is_recorded_once_for_a_table_and_request() -> None:
    tally = ScenarioTally()
    first = Failure("r", "m", "s", 1, "", "", Difference("t", 0, 4))
    others = [
        msgspec.structs.replace(first, step=2),
        msgspec.structs.replace(first, label="again"),
        msgspec.structs.replace(first, signature="t"),
        msgspec.structs.replace(first, difference=Difference("t", 0, 5)),
    ]
    for one in (first, msgspec.structs.replace(first, message="more"), *others, first):
        tally.fail(one)
    assert tally.failures == [first, *others] and tally.found == 7
    assert tally.taint(3, "one") == tally.taint(3, "two") == "one" and tally.tainted == {3: "one"}
    tally.note("m", ("k", "l"))
    tally.note("m", ("k",))
    assert tally.forwards == ["m", "m"] and tally.called == {"m": ["k", "l", "k"]}


def test_a_failure_of_what_a_rule_found() -> None:
    found = Violation(axis="t", at=2, expected=3, observed=4, shape="off", message="says")
    plain = failure_of("r", "m", found)
    assert plain == Failure("r", "m", "off", 0, "", "says", Difference("t", 2, None, 3, 4))
    told = failure_of("r", "m", found, 7, step=5, follows="q", label="x")
    assert (told.signature, told.follows, told.step, told.label) == ("follows from q", "q", 5, "x")
    assert told.difference == Difference("t", 2, 7, 3, 4)


def test_where_there_is_no_table_one_rule_speaks() -> None:
    tally = ScenarioTally()
    ((rule, found),) = no_tables(tally, "decode")
    assert (rule.id, found.axis, tally.asked) == ("table.present", "1d", {"decode": ["table.present"]})


def test_what_was_right_is_counted_again_and_not_asked() -> None:
    kept, ran = Settled(), []

    def once(key: object, *asked: tuple[str, str], wrong: str = "") -> ScenarioTally:
        tally = ScenarioTally()
        tally.asked["a"].append("before")

        def judge() -> None:
            ran.append(key)
            for mode, rule in asked:
                tally.asked[mode].append(rule)
            if wrong == "failure":
                tally.fail(Failure("r", "m", "s", 1, "", ""))
            if wrong == "unrun":
                tally.unrun.append(Unrun("decode", "no"))

        kept.once(tally, key, judge)
        return tally

    asked = (("a", "one"), ("b", "two"), ("a", "one"))
    right = {"a": ["before", "one", "one"], "b": ["two"]}
    assert once(1, *asked).asked == once(1, *asked).asked == right and ran == [1]
    assert once(2, *asked).asked == right and ran == [1, 2]
    for wrong in ("failure", "unrun"):
        assert once(wrong, *asked, wrong=wrong).asked == once(wrong, *asked, wrong=wrong).asked == right
        assert ran[-2:] == [wrong, wrong]
    back = replaced("table.index", lambda view: None)
    try:
        once(1, *asked)
        once(1, *asked)
    finally:
        back()
    assert ran == [1, 2, "failure", "failure", "unrun", "unrun", 1]
    once(1, *asked)
    assert ran[-1:] == [1] and len(ran) == 8
    kept.MOST = 2
    for key in (2, 3, 3, 2, 1):
        once(key)
    once(4)
    once(1)
    assert ran[8:] == [2, 3, 2, 1, 4]
    assert as_bytes((1, None)) != as_bytes((1, 2))


def test_steps_go_by_their_tags() -> None:
    assert [protocol_tag(step) for step in DECODED.job.steps[:3]] == ["submit", "submit", "schedule"]

"""The rule that is named is the code that judged: with nonsense in its place, for every rule, the suite sees it.

For each rule there is a planted fault and a scenario in which the rule names it. With a body that says nothing the
finding is gone; with a body that always finds something the reference itself is caught.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import msgspec
import pytest

from ropecheck.adapters import protocol
from ropecheck.conformance.judge.ask import ask
from ropecheck.conformance.judge.tally import Tally
from ropecheck.conformance.plan.planner import Plan, plan
from ropecheck.conformance.scenarios.chosen import costs
from ropecheck.conformance.selftest.mutants import MUTANTS
from ropecheck.conformance.selftest.mutants.generic import planted
from ropecheck.spec.live import Replayed
from ropecheck.spec.rules import Labelled, Violation, all_rules, replaced
from ropecheck.spec.scheduling import AtRest, Counted, LoopEnd, Member, Newest, Reply, Window
from tests.core.caught import CAUGHT
from tests.meta.support import answered, asking, broken

LAWS = {
    "laws.chunked_prefill_is_one_prefill": "extend reads from the table's start",
    "laws.extend_composes": "extend reads from the table's start",
    "laws.verify_chain_is_decodes": "decode delta missing",
    "laws.draft_extend_is_verify_chain": "verify delta missing",
    "laws.draft_step_is_a_decode": "decode delta missing",
    "laws.append_is_a_fresh_request": "extend tail without delta",
    "laws.branch_is_its_own_history": "extend tail without delta",
    "laws.retract_and_resume": "extend tail without delta",
    "laws.batch_order": "decode delta of the first request",
    "laws.batch_split": "extend text gets a neighbour's delta",
    "laws.text_rows_are_the_index": "extend h row of another stride",
    "laws.speculation_places_the_same": "decode delta missing",
    "laws.one_token_one_column": "decode delta missing",
}
"""A law -> a fault that its instances show."""

VIEWS: dict[str, tuple[object, object | None]] = {
    "schedule.window": (
        Window(mode="extend", start=4, count=2, computed=3, total=9, free=False),
        Window(mode="extend", start=3, count=6, computed=3, total=9, free=False),
    ),
    "schedule.newest": (Newest(mode="decode", computed=3, total=9), Newest(mode="decode", computed=8, total=9)),
    "schedule.members": (
        Member(mode="decode", req="1", state="gone"),
        Member(mode="decode", req="1", state="live"),
    ),
    "schedule.counts": (Counted(mode="decode", seq_len=8, right=9), Counted(mode="decode", seq_len=9, right=9)),
    "schedule.reply": (
        Reply(got=(7, 9), before=1, answered=(6, 7, 8), limit=9),
        Reply(got=(7, 8), before=1, answered=(6, 7, 8), limit=9),
    ),
    "schedule.at_rest": (
        AtRest(retained=(), leak="", unanswered=("1",)),
        AtRest(retained=(), leak="", unanswered=()),
    ),
    "schedule.survives": (LoopEnd(error="KeyError in run", message="the loop ended"), None),
    "live.same_answer": (
        Replayed(got=(7, 8), right=(7, 9), margins=(1.0, 1.0), tolerance=0.01),
        Replayed(got=(7, 8), right=(7, 8), margins=(1.0, 1.0), tolerance=0.01),
    ),
}
"""Rules on a scheduler's own steps: what a trace would have to show for the rule to find something, and what is right.
Real schedulers with planted faults are in tests/scheduler; an engine's loop that goes on gives no view to be right."""

JUDGED = tuple(rule.id for rule in all_rules().values() if rule.view is not Labelled and rule.id not in VIEWS)

PENDING = ("families.", "rotary.", "prefix.")
"""Topics whose rules are still called by their own names. One that gets a view is asked here by that alone."""


@dataclass(frozen=True, slots=True)
class Observation:
    """A scenario, its right answer, and one that the rule says is wrong."""

    plan: Plan
    right: protocol.Answer
    wrong: protocol.Answer


@cache
def observation(rule: str) -> Observation:
    """Fails, naming the rule, where no planted fault shows it."""
    if "cpu" not in all_rules()[rule].devices:
        return waiting()
    names = [name for name, (named, _) in CAUGHT.items() if named == rule] or [LAWS.get(rule, "")]
    makes = [one.mutant.make for one in planted().values() if one.rules == (rule,)][:1]
    makes += [MUTANTS[name].make for name in names if name in MUTANTS]
    for make in makes:
        for candidate in asking(rule):
            wrong = answered(candidate, make)
            if rule in broken(candidate, wrong):
                return Observation(candidate, answered(candidate), wrong)
    pytest.fail(f"rule {rule} has no planted fault that it alone can name: add one to conformance/selftest/mutants")


def waiting() -> Observation:
    """What only a device shows: building a forward waits for it."""
    planned = plan(costs.scenarios()[0], "cuda")
    given = answered(planned)

    def counted(syncs: int) -> protocol.Answer:
        results = tuple(
            msgspec.structs.replace(result, method="cuda", syncs=syncs)
            if isinstance(result, protocol.Counted)
            else result
            for result in given.results
        )
        return msgspec.structs.replace(given, results=results)

    return Observation(planned, counted(0), counted(9))


def nothing(_view: object) -> None:
    """A body that never finds anything."""


def something(_view: object) -> Violation:
    """A body that always does."""
    return Violation(axis="1d", at=0, expected=0, observed=1, shape="nonsense", message="nonsense")


@pytest.mark.parametrize("rule", JUDGED)
def test_a_rules_body_is_what_decides(rule: str) -> None:
    seen = observation(rule)
    assert rule in broken(seen.plan, seen.wrong)
    assert not broken(seen.plan, seen.right)
    back = replaced(rule, nothing)
    try:
        assert rule not in broken(seen.plan, seen.wrong)
    finally:
        back()


@pytest.mark.parametrize("rule", JUDGED)
def test_a_body_that_always_finds_something_catches_the_reference(rule: str) -> None:
    where = observation(rule).plan if "cpu" not in all_rules()[rule].devices else next(asking(rule))
    right = observation(rule).right if "cpu" not in all_rules()[rule].devices else answered(where)
    back = replaced(rule, something)
    try:
        assert rule in broken(where, right)
    finally:
        back()


@pytest.mark.parametrize("rule", VIEWS)
def test_a_rule_on_steps_decides_by_its_body(rule: str) -> None:
    wrong, right = VIEWS[rule]
    assert [found.id for found, _ in ask(Tally(), "trace", wrong)] == [rule]
    assert right is None or not ask(Tally(), "trace", right)
    back = replaced(rule, nothing)
    try:
        assert not ask(Tally(), "trace", wrong)
    finally:
        back()


def test_what_is_not_asked_yet_is_known() -> None:
    left = [rule for rule in all_rules() if rule not in JUDGED and rule not in VIEWS]
    assert all(rule.startswith(PENDING) for rule in left), left

"""The rule that is named is the code that judged: with nonsense in its place, for every rule, the suite sees it.

For each rule there is a planted fault and a scenario, a prompt or a stream of events in which the rule names it. With a
body that says nothing the finding is gone; with a body that always finds something the reference itself is caught.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial

import msgspec
import pytest

from ropecheck.adapters import protocol
from ropecheck.conformance.families.case import Case
from ropecheck.conformance.judge.outcome import Failure
from ropecheck.conformance.plan.planner import Plan, plan
from ropecheck.conformance.routes.verdict import judge as judge_prompt
from ropecheck.conformance.scenarios.chosen import costs
from ropecheck.conformance.selftest import builder, stream
from ropecheck.conformance.selftest.mutant_score import touches
from ropecheck.conformance.selftest.mutants import MUTANTS
from ropecheck.conformance.selftest.mutants.generic import planted
from ropecheck.spec.rules import Violation, all_rules, replaced
from tests.core.caught import CAUGHT
from tests.meta.support import answered, asking, broken, cases

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


@dataclass(frozen=True, slots=True)
class Observation:
    """What the suite says of a right answer that the rule is asked about, and of one that the rule says is wrong."""

    right: Callable[[], set[str]]
    wrong: Callable[[], set[str]]


@cache
def observation(rule: str) -> Observation:
    """Fails, naming the rule, where no planted fault shows it."""
    if "cpu" not in all_rules()[rule].devices:
        return waiting()
    for found in (*_shown(rule), *_prompts(rule), *_forwards(rule)):
        if rule in found.wrong():
            return found
    pytest.fail(f"rule {rule} has no planted fault that it alone can name: add one to conformance/selftest")


def _shown(rule: str) -> Iterator[Observation]:
    def said(show: Callable[[], Sequence[Failure]]) -> set[str]:
        return {failure.rule for failure in show()}

    for slip in stream.SLIPS:
        if slip.rule == rule:
            yield Observation(partial(said, slip.right), partial(said, slip.wrong))


def _prompts(rule: str) -> Iterator[Observation]:
    def said(case: Case, answer: protocol.Result) -> set[str]:
        return {failure.rule for failure in judge_prompt(case, answer).failures}

    for slip in builder.SLIPS:
        if slip.rule == rule:
            for case in cases():
                if (wrong := slip.answer(case)) is not None:
                    yield Observation(partial(said, case, builder.right(case)), partial(said, case, wrong))


def _forwards(rule: str) -> Iterator[Observation]:
    names = [name for name, (named, _) in CAUGHT.items() if named == rule] or [LAWS.get(rule, "")]
    mutants = [one.mutant for one in planted().values() if one.rules == (rule,)][:1]
    mutants += [MUTANTS[name] for name in names if name in MUTANTS]
    for mutant in mutants:
        for planned in asking(rule):
            if touches(mutant, planned):
                wrong = answered(planned, mutant.make)
                yield Observation(partial(_said, planned), partial(broken, planned, wrong))


def _said(planned: Plan) -> set[str]:
    return broken(planned, answered(planned))


def waiting() -> Observation:
    """What only a device shows: building a forward waits for it."""
    planned = plan(costs.scenarios()[0], "cuda")
    given = answered(planned)

    def counted(syncs: int) -> protocol.JobAnswer:
        results = tuple(
            msgspec.structs.replace(result, method="cuda", syncs=syncs)
            if isinstance(result, protocol.Counted)
            else result
            for result in given.results
        )
        return msgspec.structs.replace(given, results=results)

    return Observation(partial(broken, planned, counted(0)), partial(broken, planned, counted(9)))


def nothing(_view: object) -> None:
    """A body that never finds anything."""


def something(_view: object) -> Violation:
    """A body that always does."""
    return Violation(axis="1d", at=0, expected=0, observed=1, shape="nonsense", message="nonsense")


@pytest.mark.parametrize("rule", all_rules())
def test_a_rules_body_is_what_decides(rule: str) -> None:
    seen = observation(rule)
    assert rule in seen.wrong()
    assert not seen.right()
    back = replaced(rule, nothing)
    try:
        assert rule not in seen.wrong()
    finally:
        back()


@pytest.mark.parametrize("rule", all_rules())
def test_a_body_that_always_finds_something_catches_the_reference(rule: str) -> None:
    seen = observation(rule)
    back = replaced(rule, something)
    try:
        assert rule in seen.right() or any(rule in _said(planned) for planned in asking(rule))
    finally:
        back()

"""The suite can fail: every planted fault is caught, by the rule and signature that it deserves."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest

from ropecheck.conformance.judge.outcome import Failure
from ropecheck.conformance.judge.verdict import judge
from ropecheck.conformance.plan.planner import Plan, plan
from ropecheck.conformance.scenarios.chosen import chosen
from ropecheck.conformance.scenarios.chosen.laws import scenarios as laws
from ropecheck.conformance.selftest.mutants import MUTANTS
from ropecheck.conformance.selftest.reference_worker import answer
from ropecheck.spec.rules import all_rules
from tests.core.caught import CAUGHT
from tests.core.support import outcome

ELSEWHERE = ("families.", "schedule.", "cost.synchronisations")
"""Rules of another phase, and of a device that is not here."""


@cache
def plans() -> tuple[Plan, ...]:
    return tuple(plan(scenario) for scenario in chosen())


def failures(name: str) -> Iterator[Failure]:
    for planned in plans():
        yield from judge(planned, answer(planned.job, MUTANTS[name].make())).failures


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_fault_is_named(name: str) -> None:
    assert any((failure.rule, failure.signature) == CAUGHT[name] for failure in failures(name))


def test_the_reference_is_caught_by_nothing() -> None:
    for scenario in (*chosen(), *laws()):
        found = outcome(scenario)
        assert not found.failures and not found.unrun, scenario.name
        assert found.checked


def test_every_mode_has_planted_faults() -> None:
    caught = {rule.split(".")[0] for rule, _signature in CAUGHT.values()}
    modes = {rule.topic for rule in all_rules().values() if rule.stated.startswith("ropecheck.spec.modes")}
    assert modes <= caught | {"table"}


def test_no_rule_is_vacuous() -> None:
    """Every rule that forwards and sessions are checked by is broken by some planted fault, in a chosen scenario or
    an instance of a law."""
    tripped = {rule for rule, _signature in CAUGHT.values()}
    for name in MUTANTS:
        if len(tripped) == len(all_rules()):
            break
        tripped |= {failure.rule for failure in failures(name)}
        for scenario in laws():
            tripped |= {failure.rule for failure in outcome(scenario, MUTANTS[name].make).failures}
    assert {rule for rule in all_rules() if rule not in tripped and not rule.startswith(ELSEWHERE)} == set()

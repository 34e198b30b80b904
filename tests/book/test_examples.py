"""Worked examples of the rule book show what they are there for."""

from __future__ import annotations

import pytest

from ropecheck.conformance.book.examples import load, shown
from ropecheck.conformance.book.slips import planted
from ropecheck.conformance.selftest.mutants import MUTANTS
from ropecheck.spec.rules import all_rules

WITHOUT = {"cost.device_values", "cost.synchronisations"}
"""Rules whose faults are planted in an engine on a device, or in its code."""

NEW = 3
"""Rules that have just been added may wait for the next search."""

AGAIN = "python -m ropecheck.conformance.book.examples RULE"


@pytest.mark.parametrize("rule", load().examples)
def test_an_example_breaks_its_rule(rule: str) -> None:
    failure = shown(load().examples[rule])
    assert failure is not None, f"{AGAIN} finds another"
    assert failure.rule == rule


def test_examples_are_of_rules_and_faults_that_are_there() -> None:
    kept = load()
    assert set(kept.examples) | set(kept.faults) <= set(all_rules()), AGAIN
    assert {fault for faults in kept.faults.values() for fault in faults} <= set(MUTANTS), AGAIN
    assert len(kept.examples) > 50


def test_every_rule_has_a_worked_example() -> None:
    without = {rule for rule in all_rules() if rule not in load().examples and planted(rule) is None}
    assert without >= WITHOUT
    assert len(without - WITHOUT) <= NEW, (
        f"{sorted(without)}: {AGAIN} finds one, or plant a slip in conformance/selftest"
    )

"""No rule is idle: each is asked, with a verdict, in every mode that it speaks of."""

from __future__ import annotations

from ropecheck.conformance.run.speaking import speaking
from ropecheck.conformance.selftest.mutant_score import ELSEWHERE
from ropecheck.spec.modes import all_modes
from ropecheck.spec.rules import Labelled, all_rules
from tests.meta.support import references


def test_every_rule_is_asked_in_every_mode_that_it_speaks_of() -> None:
    asked = {(rule, mode) for outcome in references() for rule, modes in outcome.by_mode.items() for mode in modes}
    assert speaking("cpu") - asked == set()


def test_every_rule_is_asked_at_all() -> None:
    asked = {rule for outcome in references() for rule in outcome.checked}
    here = {rule.id for rule in all_rules().values() if "cpu" in rule.devices and rule.view is not Labelled}
    assert {rule for rule in here - asked if not rule.startswith(ELSEWHERE)} == set()


def test_what_speaks_follows_from_the_declaration() -> None:
    pairs = speaking("cpu")
    assert {mode for _, mode in pairs} >= set(all_modes())
    assert ("table.inside_table", "extend") in pairs and ("table.inside_table", "decode") not in pairs
    assert ("table.text_only", "dllm_extend") not in pairs and ("padding.tail", "ragged_verify") in pairs
    assert ("cost.synchronisations", "decode") in speaking("cuda") - pairs


def test_the_reference_breaks_no_rule() -> None:
    assert not [outcome.name for outcome in references() if outcome.failures or outcome.unrun]

"""No rule is idle: each is asked, with a verdict, in every mode that it speaks of."""

from __future__ import annotations

from ropecheck.conformance.routes.verdict import judge as judge_prompt
from ropecheck.conformance.run.speaking import speaking
from ropecheck.conformance.selftest import builder, stream
from ropecheck.spec.modes import all_modes
from ropecheck.spec.rules import all_rules
from tests.meta.support import cases, references


def test_every_rule_is_asked_in_every_mode_that_it_speaks_of() -> None:
    asked = {(rule, mode) for outcome in references() for rule, modes in outcome.by_mode.items() for mode in modes}
    assert speaking("cpu") - asked == set()


def test_every_rule_is_asked_of_the_reference_and_says_that_it_is_right() -> None:
    outcomes = (*references(), *(judge_prompt(case, builder.right(case)) for case in cases()))
    told = stream.checked(stream.RIGHT)
    assert not [outcome.name for outcome in outcomes if outcome.failures or outcome.unrun]
    assert not told.failures
    asked = {rule for outcome in outcomes for rule in outcome.checked} | set(told.judge.checked)
    assert {rule.id for rule in all_rules().values() if "cpu" in rule.devices} - asked == {"live.same_answer"}
    assert not stream.replayed(50, 51)


def test_what_speaks_follows_from_the_declaration() -> None:
    pairs = speaking("cpu")
    assert {mode for _, mode in pairs} >= set(all_modes())
    assert ("table.inside_table", "extend") in pairs and ("table.inside_table", "decode") not in pairs
    assert ("table.text_only", "dllm_extend") not in pairs and ("padding.tail", "ragged_verify") in pairs
    assert ("cost.synchronisations", "decode") in speaking("cuda") - pairs

"""What was found right is counted again without being asked again; what was found wrong, or by another rule, is not."""

from __future__ import annotations

from ropecheck.conformance.judge.verdict import judge
from ropecheck.conformance.selftest.mutants import MUTANTS
from ropecheck.spec.rules import Violation, replaced
from tests.meta.support import answered, broken, plans

RULE = "table.index"


def test_the_second_verdict_counts_what_the_first_one_asked() -> None:
    for planned in plans()[:40]:
        answer = answered(planned)
        assert judge(planned, answer) == judge(planned, answer)


def test_a_rule_that_changes_is_asked_again() -> None:
    planned = next(one for one in plans() if RULE in judge(one, answered(one)).checked)
    answer = answered(planned)
    asked: list[object] = []

    def always(view: object) -> Violation:
        asked.append(view)
        return Violation(axis="1d", at=0, expected=0, observed=1)

    assert RULE not in broken(planned, answer)
    back = replaced(RULE, always)
    try:
        assert RULE in broken(planned, answer) and asked
    finally:
        back()
    assert RULE not in broken(planned, answer)


def test_a_wrong_answer_stays_wrong() -> None:
    for mutant in [*MUTANTS.values()][::40]:
        for planned in plans()[:60]:
            first = broken(planned, answered(planned, mutant.make))
            if first:
                assert broken(planned, answered(planned, mutant.make)) == first
                break

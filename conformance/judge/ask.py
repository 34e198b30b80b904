"""Asking the rules: the only place where a rule's verdict is taken and counted."""

from __future__ import annotations

from typing import Any

from ropecheck.conformance.judge.tally import Tally
from ropecheck.spec.rules import Rule, Violation, rules_of
from ropecheck.spec.views import Tables


def no_tables(tally: Tally, mode: str) -> list[tuple[Rule, Violation]]:
    """The rules are asked of a forward that gave no table at all: it raised, or left one out."""
    return ask(tally, mode, Tables(mode=mode, tokens=0, positions=None, rows=None))


def ask(tally: Tally, mode: str, view: object) -> list[tuple[Rule, Violation]]:
    """Every rule that speaks of this view is asked; those that it breaks, with how."""
    broken = []
    for rule in rules_of(type(view)):
        speaks: Any = rule.when
        if speaks is not None and not speaks(view):
            continue
        tally.check(rule.id, mode)
        found = rule.check(view)
        if found is not None:
            broken.append((rule, found))
    return broken

"""Asking the rules: where a rule's verdict is taken and counted (of a stream of events: `trace/judge.py`)."""

from collections.abc import Callable, Hashable, Mapping
from typing import Any

import msgspec

from ropecheck.conformance.judge.tally import RulesAsked, ScenarioTally
from ropecheck.spec.rules import Rule, Violation, changes, rules_of
from ropecheck.spec.views import Tables


def no_tables(tally: ScenarioTally, mode: str) -> list[tuple[Rule, Violation]]:
    """The rules are asked of a forward that gave no table at all: it raised, or left one out."""
    return ask(tally, mode, Tables(mode=mode, tokens=0, positions=None, rows=None))


def ask(tally: RulesAsked, mode: str, view: object) -> list[tuple[Rule, Violation]]:
    """Every rule that speaks of this view is asked; those that it breaks, with how."""
    broken = []
    asked = tally.asked[mode]
    for rule in rules_of(type(view)):
        speaks: Any = rule.when
        if speaks is not None and not speaks(view):
            continue
        asked.append(rule.id)
        found = rule.check(view)
        if found is not None:
            broken.append((rule, found))
    return broken


as_bytes = msgspec.msgpack.Encoder().encode
"""An answer as a key of `Settled`: small, and quick to compare."""


class Settled:
    """What was asked of answers in which no rule found anything wrong.

    Rules are functions of what they look at. An answer that stands beside the same script again is not put to them
    again: what they said of it is counted again. A rule that is added or replaced makes all of it forgotten.
    """

    MOST = 4096
    """Answers that are kept."""

    def __init__(self) -> None:
        self._asked: dict[Hashable, Mapping[str, list[str]]] = {}
        self._changes = 0

    def once(self, tally: ScenarioTally, key: Hashable, judge: Callable[[], None]) -> None:
        """`judge`, unless it found nothing wrong before. key: all that its verdict depends on."""
        if self._changes != changes():
            self._asked.clear()
            self._changes = changes()
        known = self._asked.get(key)
        if known is not None:
            for mode, rules in known.items():
                tally.asked[mode] += rules
            return
        before = {mode: len(rules) for mode, rules in tally.asked.items()}
        found = (tally.found, len(tally.unrun))
        judge()
        if (tally.found, len(tally.unrun)) == found:
            if len(self._asked) >= self.MOST:
                self._asked.clear()
            self._asked[key] = {
                mode: new for mode, rules in tally.asked.items() if (new := rules[before.get(mode, 0) :])
            }

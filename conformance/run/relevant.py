"""Scenarios that run a changed function: one of each kind is traced, the others are taken to run what it ran."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ropecheck.conformance.run.choice import modes_of
from ropecheck.conformance.run.subject import Subject
from ropecheck.conformance.scenario.operations import Scenario

Kind = frozenset[str]
"""A scenario's operations and forward modes, each once."""


def kind_of(scenario: Subject) -> Kind:
    """What sorts of things the scenario does."""
    verbs = {str(op.__struct_config__.tag) for op in scenario.ops} if isinstance(scenario, Scenario) else set()
    return frozenset(verbs | modes_of(scenario))


@dataclass(frozen=True, slots=True)
class Relevant:
    """Kinds that were traced, and those of them that run a changed function."""

    traced: frozenset[Kind]
    touched: frozenset[Kind]

    def __call__(self, scenario: Subject) -> bool:
        """Whether to run it. A kind that was not traced is run when it shares a mode with a touched one."""
        kind = kind_of(scenario)
        if kind in self.traced:
            return kind in self.touched
        return any(modes_of(scenario) & touched for touched in self.touched)


def relevant(scenarios: Iterable[Scenario], ran: Callable[[Scenario], bool]) -> Relevant:
    """Trace the first scenario of each kind; `ran` says whether it runs a changed function."""
    firsts: dict[Kind, Scenario] = {}
    for scenario in scenarios:
        firsts.setdefault(kind_of(scenario), scenario)
    touched = frozenset(kind for kind, scenario in firsts.items() if ran(scenario))
    return Relevant(frozenset(firsts), touched)

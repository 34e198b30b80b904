"""A search that follows what it sees: scenarios that reached something new are grown further, the rest is forgotten.

Works in generations, each learned from as a whole, so that the search is the same however many workers run it.
"""

from collections.abc import Iterable

from ropecheck.conformance.scenario.operations import Build, Scenario
from ropecheck.conformance.scenarios.random import random_scenarios, stateful_scenarios
from ropecheck.conformance.scenarios.random.collect import Chance
from ropecheck.conformance.scenarios.random.grow import grown
from ropecheck.conformance.subject import Subject

GENERATION = 48
"""Scenarios between two looks at what they reached."""

FRESH = 3
"""One in so many scenarios is drawn anew."""


class Guided:
    """The search. Without anything to follow it is the blind one."""

    def __init__(self, seed: int, start: Iterable[Scenario] = (), seen: Iterable[str] = ()) -> None:
        """start: what to grow at first; seen: names that are reached already."""
        self._seed = seed
        self._parents: list[Scenario] = list(start)
        self._seen = set(seen)
        self._tried: set[str] = set()
        self._generation = 0
        self.kept: list[tuple[Scenario, frozenset[str]]] = []
        """Scenarios that reached something new, and all that they reached."""

    def generation(self) -> list[Scenario]:
        """The next scenarios to run."""
        self._generation += 1
        seed = self._seed * 1_000_003 + self._generation
        fresh = GENERATION if not self._parents else GENERATION // FRESH
        found = [*random_scenarios(seed, fresh - fresh // 3), *stateful_scenarios(seed, fresh // 3)]
        draw = Chance(f"parents {seed}")
        for number in range(GENERATION - len(found)):
            # The newest half as often as all others together: what was reached last is least explored.
            half = len(self._parents) // 2 if draw.flag() else 0
            parent = self._parents[draw.number(half, len(self._parents) - 1)]
            found.append(grown(parent, f"grown {seed} {number}"))
        new = [
            one
            for one in {one.id: one for one in found}.values()
            if one.id not in self._tried and any(isinstance(op, Build) for op in one.ops)
        ]
        self._tried.update(one.id for one in new)
        return [
            Scenario(name=f"guided {self._seed}.{self._generation}.{number}", ops=one.ops, family=one.family)
            for number, one in enumerate(new, start=1)
        ]

    def learn(self, reached: Iterable[tuple[Subject, frozenset[str]]]) -> None:
        """What the last generation reached, in its own order."""
        for scenario, names in reached:
            if isinstance(scenario, Scenario) and not names <= self._seen:
                self._seen |= names
                self._parents.append(scenario)
                self.kept.append((scenario, names))

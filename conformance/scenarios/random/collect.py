"""Scenarios by chance as a plain iterable: the same ones for the same seed, on every machine.

Hypothesis draws from constants that it finds in the modules that happen to be imported, so the same seed gives other
values in another process. Here every number comes from `random.Random.random`, which Python promises not to change.
"""

import random
from collections.abc import Callable, Iterator

from ropecheck.conformance.scenario.operations import Build, Operation, Scenario
from ropecheck.conformance.scenarios.random.draws import Draw, draws, possible
from ropecheck.conformance.scenarios.random.strategies import FAMILIES, drawn, moved
from ropecheck.reference.requests import State

MOVES = 14
STEPS = 30
"""Moves of one run of the state machine."""


class Chance(Draw):
    """Draws by a seed."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed).random

    def number(self, low: int, high: int) -> int:
        return low + int(self._random() * (max(low, high) - low + 1))


def random_scenarios(seed: int, count: int) -> Iterator[Scenario]:
    """`count` different scenarios of up to 14 moves, each of which runs a forward."""
    return _distinct(lambda draw: drawn(draw, MOVES), "random", seed, count)


def stateful_scenarios(seed: int, count: int) -> Iterator[Scenario]:
    """`count` different runs of the state machine: a request and a session to begin with, then 30 moves."""
    return _distinct(_run, "stateful", seed, count)


def _run(draw: Draw) -> Scenario:
    state, known = State(family=draw.one(FAMILIES)), draws()
    ops: list[Operation] = []
    for kind in ("submit", "open"):
        state = moved(state, ops, known[kind].draw(draw, state))
    for _ in range(STEPS):
        state = moved(state, ops, known[draw.one(possible(state, tuple(known)))].draw(draw, state))
    return Scenario(name="stateful", ops=tuple(ops), family=state.family)


def _distinct(make: Callable[[Draw], Scenario], kind: str, seed: int, count: int) -> Iterator[Scenario]:
    """Each try has a seed of its own, so that a scenario does not depend on those before it."""
    seen: set[str] = set()
    tries = 0
    while len(seen) < count:
        tries += 1
        scenario = make(Chance(f"{kind} {seed} {tries}"))
        if scenario.id not in seen and any(isinstance(op, Build) for op in scenario.ops):
            seen.add(scenario.id)
            yield Scenario(name=f"{kind} {seed}.{len(seen)}", ops=scenario.ops, family=scenario.family)

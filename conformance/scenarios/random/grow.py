"""A scenario like another one: some of it, and other moves. What a search does with scenarios worth following."""

from ropecheck.conformance.scenario.operations import Operation, Scenario
from ropecheck.conformance.scenarios.random.collect import Chance
from ropecheck.conformance.scenarios.random.draws import draws, possible
from ropecheck.conformance.scenarios.random.strategies import moved
from ropecheck.reference.requests import State

MOST_OPERATIONS = 60
"""A scenario that has grown longer is cut before it grows on."""


def grown(parent: Scenario, seed: str) -> Scenario:
    """The parent's beginning, or the parent without a few operations, with up to eight moves at one place. What is no
    longer legal after that is left out."""
    draw = Chance(seed)
    ops = list(parent.ops[:MOST_OPERATIONS])
    place = draw.number(1, len(ops))
    rest = ops[place:] if draw.flag() else []
    rest = rest[draw.number(0, 2) :]
    state, made = State(family=parent.family), list[Operation]()
    for op in ops[:place]:
        state = moved(state, made, (op,))
    known = draws()
    for _ in range(draw.number(1, 8)):
        state = moved(state, made, known[draw.one(possible(state, tuple(known)))].draw(draw, state))
    for op in rest:
        state = moved(state, made, (op,))
    return Scenario(name="grown", ops=tuple(made), family=parent.family)

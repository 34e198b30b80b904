"""Strategies: histories with odd media, and scenarios drawn move by move so that each one is legal."""

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from ropecheck.conformance.scenario.lifecycle import apply
from ropecheck.conformance.scenario.operations import Build, Operation, Scenario
from ropecheck.conformance.scenarios.random.draws import Draw, draws, possible
from ropecheck.reference.requests import State
from ropecheck.spec.history import History, OutOfDomain

FAMILIES = ("qwen2_vl", "qwen2_5_vl")
"""Families that every engine adapter can be given; the others have a phase of their own."""


@st.composite
def histories(draw: Callable[[Any], Any], most: int = 4, largest: int = 6) -> History:
    """A prompt of 1 .. most runs, grids of up to 2 x largest patches a side: see Draw.history."""
    return Draw(draw).history(most, largest)


@st.composite
def scenarios(draw: Callable[[Any], Any], moves: int = 14, kinds: tuple[str, ...] = ()) -> Scenario:
    """A scenario of up to `moves` legal moves of the given kinds (none given: of all). It may run no forward."""
    return drawn(Draw(draw), moves, kinds)


def drawn(draw: Draw, moves: int, kinds: tuple[str, ...] = ()) -> Scenario:
    """The same, of draws from anywhere."""
    state, known = State(family=draw.one(FAMILIES)), draws()
    ops: list[Operation] = []
    for _ in range(moves):
        kind = draw.one(possible(state, kinds or tuple(known)))
        state = moved(state, ops, known[kind].draw(draw, state))
    return Scenario(name="random", ops=tuple(ops), family=state.family)


def moved(state: State, ops: list[Operation], move: tuple[Operation, ...]) -> State:
    """The state after a move; a move that turns out not to be legal is left out whole."""
    if len(move) == 1 and isinstance(move[0], Build) and not move[0].batch.reqs and move[0] in ops[-1:]:
        return state  # an idle forward twice in a row says nothing new
    after = state
    try:
        for op in move:
            after = apply(after, op).state
    except OutOfDomain:
        return state
    ops.extend(move)
    return after

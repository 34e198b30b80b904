"""The state machine: several requests and sessions at once, one rule per kind of move.

Each run of the machine is one scenario. Its steps are checked where all others are: the worker answers what it holds
after every step, and the verdicts compare every table and every object that should not have changed.
"""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from ropecheck.conformance.scenario.operations import Operation, Scenario
from ropecheck.conformance.scenarios.random.draws import Draw, Kind, draws
from ropecheck.conformance.scenarios.random.strategies import FAMILIES, moved
from ropecheck.reference.requests import State


class EngineMachine(RuleBasedStateMachine):
    """Base of the machine; `sink` gets the finished scenario."""

    sink: Callable[[Scenario], None]

    def __init__(self) -> None:
        super().__init__()
        self.state = State(family=FAMILIES[0])
        self.ops: list[Operation] = []

    @initialize(family=st.sampled_from(FAMILIES), data=st.data())
    def start(self, family: str, data: st.DataObject) -> None:
        self.state = State(family=family)
        draw = Draw(data.draw)
        for kind in ("submit", "open"):
            self.state = moved(self.state, self.ops, draws()[kind].draw(draw, self.state))

    def teardown(self) -> None:
        if self.ops:
            type(self).sink(Scenario(name="stateful", ops=tuple(self.ops), family=self.state.family))


def _rule(name: str, kind: Kind) -> object:
    def step(self: EngineMachine, data: st.DataObject) -> None:
        self.state = moved(self.state, self.ops, kind.draw(Draw(data.draw), self.state))

    step.__name__ = name
    return precondition(lambda self: kind.possible(self.state))(rule(data=st.data())(step))


def machine(sink: Callable[[Scenario], None]) -> type[EngineMachine]:
    """A machine whose finished scenarios go to `sink`. Every kind of move is a rule, or several by its weight."""
    body: dict[str, object] = {}
    for name, kind in draws().items():
        body |= {f"{name}_{again}": _rule(name, kind) for again in range(1, kind.weight + 1)}
    body["sink"] = staticmethod(sink)
    return type("Engine", (EngineMachine,), body)

"""Scenarios that vectors are made of: those that somebody chose, and small batches of every declared mode.

A new mode has vectors because it is declared; nobody lists it.
"""

from collections.abc import Iterator

from ropecheck.conformance.scenario.operations import Scenario
from ropecheck.conformance.scenarios.chosen import chosen
from ropecheck.conformance.scenarios.exhaustive.modes import ModeScope, batches
from ropecheck.spec.history import image, text
from ropecheck.spec.modes import all_modes

SCOPE = ModeScope(name="declared", prompts=((text(5),), (text(2), image(1, 4, 6), text(3))), rows=2, bound=2)
"""Rows of text and of media, alone and side by side, with a few values of every field."""


def sources() -> Iterator[Scenario]:
    """Every scenario, in a fixed order."""
    for scenario in chosen():
        if not any(getattr(op, "ahead", ()) for op in scenario.ops):  # a vector's table is that of its runs
            yield scenario
    for mode in all_modes().values():
        note = f"What the declaration of {mode.name} gives: {mode.title}"
        for ops in batches(SCOPE, mode):
            yield Scenario(name=f"declared: {mode.name}", ops=ops, note=note)

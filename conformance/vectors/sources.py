"""Scenarios that vectors are made of: those that somebody chose, and what every mode's declaration gives.

A new mode has vectors because it is declared; nobody lists it.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from ropecheck.adapters.batch import Batch, BatchPart
from ropecheck.conformance.scenario.operations import Build, Scenario
from ropecheck.conformance.scenarios.chosen import chosen
from ropecheck.conformance.scenarios.exhaustive.modes import ModeScope, batches
from ropecheck.spec.history import image, text
from ropecheck.spec.modes import all_modes
from ropecheck.spec.modes.declaration import PREFILLING, Mode

SCOPE = ModeScope(name="declared", prompts=((text(5),), (text(2), image(1, 4, 6), text(3))), rows=2, bound=2)
"""Rows of text and of media, alone and side by side, with a few values of every field."""

ROWS, TIER = 3, 16
"""Rows of a wider buffer, and columns of a tier: more than a batch of the scope has."""


def sources() -> Iterator[Scenario]:
    """Every scenario, in a fixed order."""
    yield from chosen()
    for mode in all_modes().values():
        note = f"What the declaration of {mode.name} gives: {mode.title}"
        for ops in batches(SCOPE, mode):
            yield Scenario(name=f"declared: {mode.name}", ops=ops, note=note)
            build = ops[-1]
            assert isinstance(build, Build)
            full = bool(build.batch.reqs) and all(len(part.reqs) == SCOPE.rows for part in build.batch.parts)
            for buffer in mode.buffers if full else ():
                loads = (*ops[:-1], *(_loaded(one, buffer) for one in (build.batch, *_fewer(mode, build.batch))))
                yield Scenario(name=f"declared: {mode.name} in {buffer}", ops=loads, note=f"{note} In a wider buffer.")


def _loaded(batch: Batch, buffer: str) -> Build:
    if buffer == "tier":
        return Build(batch, path="direct", buffer=buffer, buffer_tokens=TIER)
    return Build(batch, path="direct", buffer=buffer, buffer_rows=ROWS)


def _fewer(mode: Mode, batch: Batch) -> tuple[Batch, ...]:
    """The batch of its parts' first rows, where there is such a one and its requests can be read again."""
    if any(part.reads == PREFILLING for part in mode.parts) or all(len(part.reqs) < 2 for part in batch.parts):
        return ()
    return (replace(batch, parts=tuple(map(_first_row, batch.parts))),)


def _first_row(part: BatchPart) -> BatchPart:
    fields = {name: value[:1] if isinstance(value, tuple) else value for name, value in part.fields.items()}
    return replace(part, reqs=part.reqs[:1], fields=fields)

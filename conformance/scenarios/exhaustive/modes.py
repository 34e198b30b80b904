"""Every forward mode that is declared, with every value of its fields up to a bound.

A new mode is here because it is declared; nobody lists it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations_with_replacement, product
from typing import Any

from ropecheck.adapters.batch import Batch, BatchPart
from ropecheck.conformance.scenario.domains import assignments
from ropecheck.conformance.scenario.operations import Build, Operation, Scenario, Submit
from ropecheck.conformance.scenario.words import extend, window
from ropecheck.reference.timeline import token_count
from ropecheck.spec.history import History
from ropecheck.spec.modes import all_modes
from ropecheck.spec.modes.declaration import NOBODY, PREFILLING, TEXT, Mode

FAMILY = "qwen2_vl"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeScope:
    """Batches of each mode: up to `rows` rows of a part, each a prompt of the list, every field up to `bound`."""

    name: str
    prompts: tuple[History, ...]
    rows: int
    bound: int

    def describe(self) -> str:
        """The bound in one line."""
        modes = all_modes()
        return (
            f"{self.name} ({len(modes)} modes, prompts {len(self.prompts)}, rows {self.rows} a part, fields to "
            f"{self.bound} above their least)"
        )


def walk_modes(scope: ModeScope) -> Iterator[Scenario]:
    """Every scenario of the scope: requests arrive, those that must run are prefilled, one forward is built."""
    for mode in all_modes().values():
        for number, batch in enumerate(batches(scope, mode), start=1):
            yield Scenario(name=f"{scope.name}: {mode.name} #{number}", ops=batch)


def batches(scope: ModeScope, mode: Mode) -> Iterator[tuple[Operation, ...]]:
    """Every batch of one mode."""
    if mode.reads == NOBODY:
        yield from ((Build(Batch(mode.name)), *padded) for padded in _idle_buffers(mode))
        return
    per_part = [list(_rows(scope, part)) for part in mode.parts]
    for chosen in product(*per_part):
        prompts = [prompt for rows, _ in chosen for prompt in rows]
        ops: list[Operation] = [Submit(req, prompt) for req, prompt in enumerate(prompts)]
        parts, first = [], 0
        running: list[int] = []
        for part, (rows, fields) in zip(mode.parts, chosen, strict=True):
            reqs = tuple(range(first, first + len(rows)))
            first += len(rows)
            if part.reads not in (PREFILLING, TEXT):
                running += reqs
            parts.append(BatchPart(reqs=reqs, fields=dict(fields), mode="" if part is mode else part.name))
        if running:
            ops.append(extend([window(req) for req in running]))
        yield (*ops, Build(Batch(mode.name, tuple(parts)), path="direct"))


def _idle_buffers(mode: Mode) -> Iterator[tuple[Operation, ...]]:
    yield ()
    for buffer in mode.buffers:
        yield (Build(Batch(mode.name), buffer=buffer, buffer_rows=2),)


def _rows(scope: ModeScope, mode: Mode) -> Iterator[tuple[tuple[History, ...], dict[str, Any]]]:
    """Prompts of a part's rows, and the fields of those rows."""
    prompts = [one for one in scope.prompts if mode.reads != TEXT or all(run.is_text for run in one)]
    for count in range(1, scope.rows + 1):
        for rows in combinations_with_replacement(prompts, count):
            if mode.reads == PREFILLING:
                yield rows, {}
                for cut in range(1, token_count(FAMILY, rows[0])):
                    yield rows, {"extend_len": (cut, *(0,) * (count - 1))}
                continue
            for fields in assignments(mode, count, scope.bound):
                yield rows, fields

"""Every forward mode that is declared, with every value of its fields up to a bound.

A new mode is here because it is declared; nobody lists it.
"""

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
    """Batches of each mode: up to `rows` rows, one of each part where rows of several modes share a batch; each row a
    prompt of the list, every field up to `bound`."""

    name: str
    prompts: tuple[History, ...]
    rows: int
    bound: int

    def describe(self) -> str:
        """The bound in one line."""
        modes = all_modes()
        return (
            f"{self.name} ({len(modes)} modes, prompts {len(self.prompts)}, rows {self.rows}, fields to "
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
    most = 1 if mode.composite else scope.rows
    per_part = [list(_rows(scope, part, most)) for part in mode.parts]
    for chosen in product(*per_part):
        prompts = [
            prompt for part, (rows, _) in zip(mode.parts, chosen, strict=True) for prompt in part_prompts(part, rows)
        ]
        ops: list[Operation] = [Submit(req, prompt) for req, prompt in enumerate(prompts)]
        parts, first = [], 0
        running: list[int] = []
        for part, (rows, fields) in zip(mode.parts, chosen, strict=True):
            # Rows that follow others are the first of those requests'.
            reqs = tuple(range(len(rows))) if part.follows else tuple(range(first, first + len(rows)))
            first += 0 if part.follows else len(rows)
            if part.reads not in (PREFILLING, TEXT) and not part.follows:
                running += reqs
            parts.append(BatchPart(reqs=reqs, fields=dict(fields), mode="" if part is mode else part.name))
        if running:
            ops.append(extend([window(req) for req in running]))
        yield (*ops, Build(Batch(mode.name, tuple(parts)), path="direct"))


def _idle_buffers(mode: Mode) -> Iterator[tuple[Operation, ...]]:
    yield ()
    for buffer in mode.buffers:
        yield (Build(Batch(mode.name), buffer=buffer, buffer_rows=2),)


def part_prompts(part: Mode, rows: tuple[History, ...]) -> tuple[History, ...]:
    """The prompts that a part's rows bring; none where they follow others."""
    return () if part.follows else rows


def _rows(scope: ModeScope, mode: Mode, most: int) -> Iterator[tuple[tuple[History, ...], dict[str, Any]]]:
    """Prompts of a part's rows, and the fields of those rows."""
    if mode.follows:
        yield from (((scope.prompts[0],), fields) for fields in assignments(mode, 1, scope.bound))
        return
    prompts = [one for one in scope.prompts if mode.reads != TEXT or all(run.is_text for run in one)]
    for count in range(1, most + 1):
        for rows in combinations_with_replacement(prompts, count):
            if mode.reads == PREFILLING:
                yield rows, {}
                for cut in range(1, token_count(FAMILY, rows[0])):
                    yield rows, {"extend_len": (cut, *(0,) * (count - 1))}
                continue
            for fields in assignments(mode, count, scope.bound):
                yield rows, fields

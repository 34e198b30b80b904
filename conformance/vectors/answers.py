"""What an answer may leave open: columns that are free, and columns past which a table may end."""

from __future__ import annotations

import re

from ropecheck.conformance.vectors import types as v
from ropecheck.conformance.vectors.derive import Derived

_STEP = re.compile(r"step [1-9][0-9]*")


def spread(vector: v.Vector, answer: tuple[v.Answer, ...]) -> dict[str, v.Answer]:
    """The tables by label. Raises ValueError for two tables of one label, or a label that the vector does not ask
    for. Surplus draft forwards are left to the judge: they are wrong, not meaningless."""
    asked = {table.label for table in vector.expected}
    out: dict[str, v.Answer] = {}
    for number, table in enumerate(answer):
        surplus = v.folder_of(vector.input) == "draft_decode" and _STEP.fullmatch(table.label)
        if table.label not in asked and not surplus:
            raise ValueError(f"unknown label {table.label!r} - at `$[{number}].label`")
        if table.label in out:
            raise ValueError(f"label {table.label!r} twice - at `$[{number}].label`")
        out[table.label] = table
    return out


def filled_in(one: Derived, answer: v.Answer) -> tuple[tuple[int, ...] | None, v.Rows | None]:
    """The 1-D table and the rows, cut to the columns that the specification speaks of, and completed where an answer
    may end early. A table that is not specified counts as right."""
    width = len(one.cells)
    want = tuple(cell.index for cell in one.cells)
    rows = tuple(
        _row(one, row, tuple(cell.column[min(axis, one.axes - 1)] for cell in one.cells), width)
        for axis, row in enumerate(answer.rows or ())
    )
    if one.optional_from == 0 and not rows:
        rows = tuple(tuple(cell.column[axis] for cell in one.cells) for axis in range(one.axes))
    if not one.has_positions:
        return want, rows if answer.rows is not None or one.optional_from == 0 else None
    positions = None if answer.positions is None else _row(one, answer.positions, want, width)
    return positions, rows if answer.rows is not None else None


def _row(one: Derived, row: tuple[int, ...], want: tuple[int, ...], width: int) -> tuple[int, ...]:
    """One row: free columns at its end do not count, optional ones that are missing do not either."""
    if one.capacity and width < len(row) <= one.capacity:
        return row[:width]
    if not one.capacity and one.optional_from is not None and one.optional_from <= len(row) < width:
        return (*row, *want[len(row) :])
    return row

"""Two tables, expected over observed: one line per axis, requests set apart, wrong cells marked."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from markupsafe import Markup

from ropecheck.conformance.figures.draw import rendered, stretches

AXES = ("t", "h", "w", "x")
COLUMNS = 24
"""Columns drawn at once; wider tables show the stretch around the first wrong cell, with what surrounds it."""
BEFORE = 4
"""Columns drawn before the first wrong one."""


class DrawnTable(msgspec.Struct, frozen=True, kw_only=True):
    """One forward's table: its rows by name, from the 1-D table ("1d") on. A missing row or column is None."""

    rows: dict[str, tuple[int | None, ...]]
    requests: tuple[int, ...] = ()
    """Per column, the request that it belongs to; -1: padding."""
    tokens: tuple[str, ...] = ()
    """Per column, what token it stands for, in words; () when that is not known."""

    @property
    def width(self) -> int:
        return max((len(cells) for cells in self.rows.values()), default=0)


class _Cell(msgspec.Struct, frozen=True):
    text: str
    wrong: bool
    hint: str


class _Row(msgspec.Struct, frozen=True):
    axis: str
    side: str
    cells: tuple[_Cell, ...]


class _Head(msgspec.Struct, frozen=True):
    column: int
    owner: str
    border: bool
    """A request begins here."""
    wrong: bool


def tables(
    expected: DrawnTable | None,
    observed: DrawnTable | None,
    *,
    caption: str = "",
    columns: int = COLUMNS,
    focus: int | None = None,
) -> Markup:
    """Both tables as one HTML table with a head per column, each axis's two lines together. "" when there is none.

    A table wider than `columns` shows the stretch around column `focus`, or around the first wrong one.
    """
    if expected is None and observed is None:
        return Markup("")
    axes = _axes(expected, observed)
    width = max(table.width for table in (expected, observed) if table is not None)
    compared = expected is not None and observed is not None
    wrong = [
        column
        for column in range(width)
        if compared and any(_at(expected, axis, column) != _at(observed, axis, column) for axis in axes)
    ]
    start, stop = window(width, wrong if focus is None else [focus], columns)
    shown = range(start, stop)
    owners = _per_column(expected, observed, "requests", width, -2)
    tokens = _per_column(expected, observed, "tokens", width, "")
    heads = tuple(_Head(c, _owner(owners[c]), c == start or owners[c] != owners[c - 1], c in wrong) for c in shown)
    rows = []
    for axis in axes:
        for side, table in (("expected", expected), ("observed", observed)):
            if table is None:
                continue
            cells = []
            for c in shown:
                value, other = _at(table, axis, c), _at(expected, axis, c)
                bad = compared and side == "observed" and value != other
                cells.append(_Cell(_text(value), bad, _hint(axis, c, owners[c], tokens[c], other if bad else None)))
            rows.append(_Row(axis, side, tuple(cells)))
    return rendered(
        "tables.html.jinja",
        heads=heads,
        rows=rows,
        groups=_groups(heads),
        caption=caption,
        part="" if (start, stop) == (0, width) else f"columns {start}..{stop - 1} of {width}",
        wrong=stretches(wrong),
        owned=any(head.owner for head in heads),
    )


def window(width: int, wrong: Sequence[int], columns: int) -> tuple[int, int]:
    """The stretch of at most `columns` columns that holds the first wrong one, and a few before it."""
    first = wrong[0] if wrong else 0
    start = max(0, min(first - BEFORE, width - columns))
    return start, min(width, start + columns)


def _axes(*both: DrawnTable | None) -> list[str]:
    named = list(dict.fromkeys(axis for table in both if table is not None for axis in table.rows))
    return [axis for axis in named if axis != "1d" or any(table.rows.get("1d") for table in both if table is not None)]


def _at(table: DrawnTable | None, axis: str, column: int) -> int | None:
    cells = () if table is None else table.rows.get(axis, ())
    return cells[column] if column < len(cells) else None


def _per_column(
    expected: DrawnTable | None, observed: DrawnTable | None, field: str, width: int, unknown: int | str
) -> list[int | str]:
    found: list[int | str] = [unknown] * width
    for table in (observed, expected):
        values = () if table is None else getattr(table, field)
        found[: len(values)] = values[:width]
    return found


def _owner(request: int | str) -> str:
    return "" if request == -2 else "padding" if request == -1 else f"request {request}"


def _text(value: int | None) -> str:
    return "none" if value is None else str(value)


def _hint(axis: str, column: int, owner: int | str, token: int | str, right: int | None) -> str:
    parts = [f"{axis}, column {column}", _owner(owner), str(token)]
    if right is not None:
        parts.append(f"must be {right}")
    return ", ".join(part for part in parts if part)


def _groups(heads: Sequence[_Head]) -> list[tuple[str, int]]:
    """(owner, columns) of neighbouring columns of one request."""
    groups: list[tuple[str, int]] = []
    for head in heads:
        if groups and not head.border:
            groups[-1] = (groups[-1][0], groups[-1][1] + 1)
        else:
            groups.append((head.owner, 1))
    return groups

"""Two tables side by side: expected | observed, one line per axis, wrong cells marked, requests set apart."""

from collections.abc import Sequence

from rich.text import Text

from ropecheck.conformance.judge.outcome import TableView

AXES = ("t", "h", "w", "x")
COLUMNS = 8
"""Columns shown at once; wider tables show the stretch around the first wrong cell."""
_GAP = "  |  "


def side_by_side(
    expected: TableView | None,
    observed: TableView | None,
    columns: int = COLUMNS,
    focus: int | None = None,
    heads: tuple[str, str] = ("expected", "observed"),
) -> list[Text]:
    """Lines of text; wrong cells carry a star and the style of an error. Empty when there is nothing to show.

    A wide table shows the stretch around column `focus`, or around the first wrong cell.
    """
    if expected is None and observed is None:
        return []
    left, right = _rows(expected), _rows(observed)
    names = [*left, *(name for name in right if name not in left)]
    names = [name for name in names if left.get(name) or right.get(name)]
    width = max(len(cells) for cells in (*left.values(), *right.values()))
    start, stop = _window(left, right, names, width, columns, focus)
    owners = _owners(expected, observed, width)
    shown = (text for rows in (left, right) for cells in rows.values() for text in cells[start:stop])
    cell = max(map(len, ("none", str(stop), *shown)))
    label = max(map(len, ("request", *names)))
    lines = [_heading(label, start, stop, width, cell, owners, heads)]
    above = ("column",) if all(owner is None for owner in owners) else ("request", "column")
    lines += [_line(name, label, start, stop, cell, owners, left, right) for name in above]
    lines += [_line(name, label, start, stop, cell, owners, left, right) for name in names]
    return lines


def _rows(view: TableView | None) -> dict[str, list[str]]:
    """Axis name -> cells. A table that is unset has no cells."""
    if view is None:
        return {}
    axes = view.axes or AXES
    rows = {"1d": [str(value) for value in view.positions or ()]}
    for axis, values in zip(axes, view.rows or (), strict=False):
        rows[axis] = [str(value) for value in values]
    return rows


def _at(rows: dict[str, list[str]], name: str, column: int) -> str:
    cells = rows.get(name, [])
    return cells[column] if column < len(cells) else "none"


def _window(
    left: dict[str, list[str]],
    right: dict[str, list[str]],
    names: Sequence[str],
    width: int,
    columns: int,
    focus: int | None,
) -> tuple[int, int]:
    wrong = (c for c in range(width) if any(_at(left, name, c) != _at(right, name, c) for name in names))
    first = next(wrong, 0) if focus is None else focus
    start = max(0, min(first - 2, width - columns))
    return start, min(width, start + columns)


def _owners(expected: TableView | None, observed: TableView | None, width: int) -> list[int | None]:
    """The request of each column, from whichever table says; None where neither does."""
    owners: list[int | None] = [None] * width
    for view in (observed, expected):
        for column, request in enumerate(view.requests if view else ()):
            if column < width:
                owners[column] = request
    return owners


def _heading(
    label: int, start: int, stop: int, width: int, cell: int, owners: Sequence[int | None], heads: tuple[str, str]
) -> Text:
    bars = sum(1 for c in range(start + 1, stop) if owners[c] != owners[c - 1])
    side = (stop - start) * (cell + 2) + 2 * bars
    shown = "" if (start, stop) == (0, width) else f" columns {start}..{stop - 1} of {width}"
    return Text(f"{'':{label}}  {f'{heads[0]}{shown}':<{side}}{_GAP}{heads[1]}")


def _line(
    name: str,
    label: int,
    start: int,
    stop: int,
    cell: int,
    owners: Sequence[int | None],
    left: dict[str, list[str]],
    right: dict[str, list[str]],
) -> Text:
    line = Text(f"{name:>{label}}  ")
    for side, rows in enumerate((left, right)):
        if side:
            line.append(_GAP)
        for column in range(start, stop):
            if column > start and owners[column] != owners[column - 1]:
                line.append(" |")
            if name == "request":
                owner = owners[column]
                text, wrong = "" if owner is None else "pad" if owner < 0 else str(owner), False
            elif name == "column":
                text, wrong = str(column), False
            else:
                text = _at(rows, name, column)
                wrong = _at(left, name, column) != _at(right, name, column)
            style = "" if not wrong else "bold red" if side else "bold green"
            line.append(f"{'*' if wrong and side else ''}{text}".rjust(cell + 2), style)
    return line

"""The shape of a wrong row, in words: two traces of one fault carry the same ones. Only wrong columns are looked at."""

from collections.abc import Sequence
from typing import Any

from ropecheck.conformance.judge.signature import delta_word, shift_word
from ropecheck.spec.modes import mode_of
from ropecheck.spec.rules import Violation
from ropecheck.spec.views import Place, Row

Column = tuple[int, ...]

GIVEN_UP = "media given up"
DEALT = "dealt in equal shares"
IN_THE_TABLE = "index + delta inside the table"


def shape_of(
    view: Any,
    wrong: Violation,
    deltas: Sequence[int],
    parent: Place | None = None,
    forgotten: Place | None = None,
) -> str:
    """deltas: those of the other requests in the batch. parent: the turn that the request continues. forgotten: see
    `LiveRequest`."""
    if not isinstance(view, Row) or view.columns is None:
        return "other values"
    if wrong.axis == "1d":
        return _indices(view)
    cells: list[tuple[int, Column, Column]] = []
    for index, seen in zip(view.tokens, zip(*view.columns, strict=True), strict=True):
        right = view.place.column(index)
        if seen != right:
            cells.append((index, right, seen))
    if mode_of(view.mode.rpartition(".")[2]).packed and all(
        any(set(seen) == {index + delta} for delta in deltas) for index, _, seen in cells
    ):
        return DEALT
    if forgotten is not None and all(seen == forgotten.column(index) for index, _, seen in cells):
        return GIVEN_UP
    return _explained(view.place, cells, deltas, parent)


def _explained(
    place: Place,
    cells: list[tuple[int, Column, Column]],
    deltas: Sequence[int],
    parent: Place | None,
) -> str:
    """cells: index, right column, observed column of every wrong one."""

    def by(delta: int) -> bool:
        return all(set(seen) == {index + delta} for index, _, seen in cells)

    if not any(value for _, _, seen in cells for value in seen):
        return "all zero"
    shifts = {got - want for _, right, seen in cells for got, want in zip(seen, right, strict=True)}
    if shifts == {-place.gap} and cells[0][0] >= place.tabulated and not by(0):
        return "continues from one row"
    if parent is not None and parent.has_media and _of(parent, cells):
        return "columns of the parent"
    if by(0):
        return "delta missing"
    if word := delta_word(by, place.delta, deltas):
        return word
    if place.delta and by(place.delta):
        return IN_THE_TABLE
    if len(shifts) == 1:
        return shift_word(*shifts)
    if all(set(seen) <= set(right) and len(set(seen)) == 1 for _, right, seen in cells):
        return "one row repeated"
    if all(sorted(seen) == sorted(right) for _, right, seen in cells):
        return "rows swapped"
    if len(cells) > 1 and len({seen for _, _, seen in cells}) == 1:
        return "one column repeated"
    return "other values"


def _of(parent: Place, cells: list[tuple[int, Column, Column]]) -> bool:
    """Whether the cells are the parent's: its columns, or the indices with its delta, as drafts read them."""
    return all(seen == parent.column(at) or set(seen) == {at + parent.delta} for at, _, seen in cells)


def _indices(view: Row) -> str:
    shifts = {got - want for got, want in zip(view.positions, view.tokens, strict=False)}
    if len(shifts) == 1:
        return shift_word(*shifts)
    return "other values" if any(view.positions) else "all zero"

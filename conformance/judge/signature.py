"""The shape of a wrong table, in words.

A signature names what went wrong so that two scenarios of one fault carry the same words, and two faults do not.
`column_signature` tries the explanations from the most to the least specific one; "other values" is the last.
"""

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from ropecheck.adapters import protocol
from ropecheck.conformance.scenario.forward import ExpectedTables
from ropecheck.reference.tables import Span
from ropecheck.reference.timeline import IntArray, Timeline
from ropecheck.spec.modes.declaration import Tree
from ropecheck.spec.rules import Violation
from ropecheck.spec.views import Filler, HeldState

FARTHEST_SHIFT = 256
"""Tokens. A window that was read from elsewhere in the sequence is looked for this far away."""


def index_signature(expected: IntArray, observed: IntArray) -> str:
    """For the 1-D table of one span. int64 [n] each."""
    if (shift := _constant(observed - expected)) is not None:
        return shift_word(shift)
    if not observed.any():
        return "all zero"
    if _constant(observed) is not None:
        return "one column repeated"
    if sorted(expected.tolist()) == sorted(observed.tolist()):
        return "wrong order"
    return "other values"


def column_signature(
    expected: ExpectedTables,
    span: Span,
    columns: IntArray,
    indices: IntArray,
    want: IntArray,
    got: IntArray,
    deltas: Sequence[int],
) -> str:
    """For the wrong columns of one span. columns, indices: int64 [n]; want, got: int64 [axes, n]; deltas: per request,
    as the engine holds them, which may have been seen to be wrong before."""
    if _equal_shares(expected, columns, indices, got, deltas):
        return "dealt in equal shares"
    if not got.any() and want.any():
        return "all zero"
    if name := _by_delta(expected, span, indices, got):
        return name
    if _continues_from_one_row(expected, span, want, got):
        return "continues from one row"
    if (shift := _constant(got - want)) is not None:
        return shift_word(shift)
    axis = _axis_signature(want, got)
    if axis:
        return axis
    if _parent_columns(expected, span, indices, got):
        return "columns of the parent"
    if _another_window(expected, span, indices, got):
        return "window of elsewhere"
    if want.shape[1] > 1 and (got == got[:, :1]).all():
        return "one column repeated"
    return "other values"


def _equal_shares(
    expected: ExpectedTables, columns: IntArray, indices: IntArray, got: IntArray, deltas: Sequence[int]
) -> bool:
    """Whether packed columns were given deltas as if every request owned the same number of them."""
    fields = [field for part in expected.mode.parts for field in part.fields]
    if not any(isinstance(field.domain, Tree) and not field.domain.nodes for field in fields):
        return False  # no mode of packed rows
    width, count = expected.tables[""].positions.size, len(expected.lines)
    counts = {span.stop - span.start for span in expected.tables[""].spans}
    if width % count or (len(counts) == 1 and expected.buffer != "tier"):
        return False
    shares = np.array([deltas[int(column) // (width // count)] for column in columns], dtype=np.int64)
    return bool((got == indices + shares).all())


def fill_signature(expected: ExpectedTables, filler: Filler, start: int, deltas: Sequence[int]) -> str:
    """For padding that is not zero. start: its first column; deltas: per request, as the engine holds them."""
    columns = np.arange(start, start + len(filler.positions))
    rows = np.array(filler.columns, dtype=np.int64)
    if rows.size and expected.buffer == "tier" and _equal_shares(expected, columns, 0 * columns, rows, deltas):
        return "dealt in equal shares"
    return "fill not zero"


def _constant(values: IntArray) -> int | None:
    """The one value that all of them have."""
    found = set(values.ravel().tolist())
    return found.pop() if len(found) == 1 else None


def _by_delta(expected: ExpectedTables, span: Span, indices: IntArray, got: IntArray) -> str:
    """The delta that was added to the indices, in words; "" where it was none of these."""
    line = expected.lines[span.row]
    own = line.delta
    others = {one.delta for row, one in enumerate(expected.lines) if row != span.row}

    def by(delta: int) -> bool:
        return bool((got == indices + delta).all())

    inside = bool((indices < line.tabulated).all())  # text's way, taken for a token with a column of its own
    return delta_word(by, own, others) or ("index + delta inside the table" if inside and by(own) else "")


def delta_word(by: Callable[[int], bool], own: int, others: Iterable[int]) -> str:
    """Which delta stands in the wrong columns; "" for none that has a name. by: whether they are the indices with this
    one added. others: those of other requests."""
    if own and by(0):
        return "delta missing"
    if any(delta and delta != own and by(delta) for delta in others):
        return "delta of another request"
    if own and by(2 * own):
        return "delta twice"
    return "delta negated" if own and by(-own) else ""


def shift_word(shift: int) -> str:
    """For wrong cells that are all off by the same number."""
    return "off by one" if abs(shift) == 1 else "shifted by a constant"


def _continues_from_one_row(expected: ExpectedTables, span: Span, want: IntArray, got: IntArray) -> bool:
    shift = _constant(got - want)
    return shift is not None and from_one_row(expected.lines[span.row], shift)


def from_one_row(line: Timeline, shift: int) -> bool:
    """Whether `shift` is that of text placed after the last token's t (or h, or w) instead of the largest row."""
    if not line.width:
        return False
    free = line.delta + line.width
    return any(shift == int(row) + 1 - free != 0 for row in line.table[:, line.width - 1])


def _axis_signature(want: IntArray, got: IntArray) -> str:
    if any((got == row).all() for row in want):
        return "one row repeated"
    if sorted(map(tuple, want.tolist())) == sorted(map(tuple, got.tolist())):
        return "rows swapped"
    wrong = [axis for axis in range(want.shape[0]) if not (want[axis] == got[axis]).all()]
    return f"row {'thwx'[wrong[0]]} wrong" if len(wrong) == 1 else ""


def _parent_columns(expected: ExpectedTables, span: Span, indices: IntArray, got: IntArray) -> bool:
    parent = expected.parent_lines[span.row]
    return parent is not None and bool((parent.take(indices) == got).all())


def _another_window(expected: ExpectedTables, span: Span, indices: IntArray, got: IntArray) -> bool:
    line = expected.lines[span.row]
    for shift in range(-FARTHEST_SHIFT, FARTHEST_SHIFT + 1):
        moved = indices + shift
        if shift and int(moved.min()) >= 0 and bool((line.take(moved) == got).all()):
            return True
    return False


def held_signature(held: HeldState, found: Violation) -> str:
    """For the first wrong column of a request's own table."""
    table, at = held.table, found.at
    if table is None or at is None:
        return "other values"
    seen = [tuple(row[k] for row in table.values) for k in range(table.shape[1])]
    if held.parent is not None and seen == [held.parent.column(k) for k in range(len(seen))]:
        return "columns of the parent"
    if held.parent is not None and at == len(held.parent.rows[0]) - 1 and set(seen[at]) == {free(seen[:at])}:
        return "turn begins a token early"
    shifts = {a - b for k in range(at, len(seen)) for a, b in zip(seen[k], held.place.column(k), strict=True)}
    if len(shifts) == 1:
        before = seen[at - 1] if at else ()
        return "continues from one row" if seen[at][0] - 1 in before else "shifted by a constant"
    return "other values"


def free(columns: Sequence[tuple[int, ...]]) -> int:
    """Where text goes on behind these columns."""
    return max((max(column) for column in columns), default=-1) + 1


def raise_signature(error: str, where: str) -> str:
    """ "raises TypeError in FUNCTION": the function is part of the shape, its line is not. error: its type's name.
    where: "file:line function", or ""."""
    function = where.rpartition(" ")[2]
    return f"raises {error}" + (f" in {function}" if function else "")


def raised_line(result: protocol.Raised) -> str:
    """Type, first line of the message, and where."""
    first = result.message.strip().splitlines()
    return f"{result.type}: {first[0] if first else ''}" + (f" at {result.where}" if result.where else "")

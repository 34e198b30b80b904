"""What a request's own table and delta must be, wherever they are looked at: what several rules share."""

from __future__ import annotations

from collections.abc import Sequence

from ropecheck.spec.rules import Violation
from ropecheck.spec.views import HeldState

INT64 = "int64"
"""What tables and deltas are kept in."""


def table_is(held: HeldState) -> Violation | None:
    """Every column that the request's table has is its history's, and it covers at least `held.covers` tokens."""
    table, axes = held.table, len(held.place.rows)
    if table is None:
        message = "the request has media but no table"
        return Violation(axis="table", expected=held.covers, observed="None", shape="table missing", message=message)
    if len(table.shape) != 2 or table.shape[0] != axes:
        shape = list(table.shape)
        return Violation(
            axis="table",
            expected=axes,
            observed=str(shape),
            shape="wrong number of rows",
            message=f"table of shape {shape}",
        )
    if table.dtype != INT64:
        return _dtype("table", table.dtype)
    width = table.shape[1]
    if width < held.covers:
        return Violation(
            axis="table",
            expected=held.covers,
            observed=width,
            shape="too few columns",
            message=f"{width} columns for a prompt of {held.covers} tokens",
        )
    if held.place.columns(range(width)) == table.values:
        return None
    for at in range(width):
        right, seen = held.place.column(at), tuple(row[at] for row in table.values)
        if right != seen:
            return Violation(
                axis="table",
                at=at,
                expected=column_text(right),
                observed=column_text(seen),
                message=f"column {at}: {column_text(seen)}, must be {column_text(right)}",
            )
    return None


def delta_is(held: HeldState) -> Violation | None:
    """One value of shape [1, 1], max(table) + 1 - P of its own history."""
    right, delta = held.place.delta, held.delta
    if delta is None:
        message = "the request has media but no delta"
        return Violation(axis="delta", expected=right, observed="None", shape="delta missing", message=message)
    if delta.shape != (1, 1):
        shape = list(delta.shape)
        return Violation(
            axis="delta",
            expected="[1, 1]",
            observed=str(shape),
            shape="wrong shape",
            message=f"delta of shape {shape}",
        )
    if delta.dtype != INT64:
        return _dtype("delta", delta.dtype)
    found = delta.values[0][0]
    if found == right:
        return None
    return Violation(
        axis="delta",
        expected=right,
        observed=found,
        shape="another delta",
        message=f"delta {found}, the history has {right}",
    )


def spans_are(held: HeldState) -> Violation | None:
    """Each media item points at its own placeholder tokens in the whole history, whatever order items are kept in."""
    if tuple(sorted(held.offsets)) == held.spans:
        return None
    few = len(held.offsets) < len(held.spans)
    shape = (
        "items missing" if few else ("items left over" if len(held.offsets) > len(held.spans) else "items misplaced")
    )
    right, found = str(list(held.spans)), str(list(held.offsets))
    return Violation(
        axis="offsets",
        expected=right,
        observed=found,
        shape=shape,
        message=f"media items at {found}, the history has them at {right}",
    )


def _dtype(axis: str, found: str) -> Violation:
    return Violation(
        axis=axis, expected=INT64, observed=found, shape=f"dtype {found}", message=f"{axis} of dtype {found}"
    )


def column_text(column: Sequence[int]) -> str:
    """ "(2, 3, 4)"."""
    return "(" + ", ".join(map(str, column)) + ")"

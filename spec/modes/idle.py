"""IDLE: a data-parallel rank without requests runs along with the others."""

from __future__ import annotations

from ropecheck.spec.modes.cells import Cell
from ropecheck.spec.rules import rule


@rule("idle.no_columns", source="public interface: an idle rank computes nothing, and padding may widen it")
def width() -> int:
    """An idle batch must have both tables, of width 0: a [0] and a [3, 0] table, not a missing one.

    Padding to the other ranks' size then has rows to widen.
    """
    return 0


def forward() -> tuple[Cell, ...]:
    """No cells."""
    return ()

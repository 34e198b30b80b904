"""The consumer of the three-row table: which row turns which pair of a head's dimensions, and by how much."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ropecheck.spec.rules import MROPE, label

T, H, W = 0, 1, 2

INTERLEAVED = "Qwen3-VL's configuration (mrope_interleaved): h and w take every third pair"
"""Where the second layout comes from."""


@label("rotary.contiguous_sections", source=MROPE)
def contiguous_axis(pair: int, sections: Sequence[int]) -> int:
    """With contiguous sections, a head's first sections[0] pairs must turn by row t, the next sections[1] by h, the
    rest by w."""
    if pair < sections[T]:
        return T
    return H if pair < sections[T] + sections[H] else W


@label("rotary.interleaved_sections", source=INTERLEAVED)
def interleaved_axis(pair: int, sections: Sequence[int]) -> int:
    """With interleaved sections, pair 3k + 1 must turn by row h for k below sections[1], pair 3k + 2 by w for k below
    sections[2], every other pair by t."""
    step, axis = divmod(pair, 3)
    return axis if axis != T and step < sections[axis] else T


@label("rotary.rotation", source="arXiv 2104.09864 (RoFormer) equation 34")
def turned(first: float, second: float, position: int, pair: int, pairs: int, base: float) -> tuple[float, float]:
    """Pair i of n must be turned by the angle position * base^(-i/n)."""
    angle = position * base ** (-pair / pairs)
    cos, sin = math.cos(angle), math.sin(angle)
    return first * cos - second * sin, second * cos + first * sin


@label("rotary.every_row_counts", source=MROPE)
def depends(axis_of_pair: int, changed_row: int) -> bool:
    """Changing one row of the table must change the pairs that this row turns, and must change no others."""
    return axis_of_pair == changed_row


@label("rotary.table_is_read_only", source="public interface: every layer of a model turns by the same table")
def table_after(table: Sequence[Sequence[int]]) -> Sequence[Sequence[int]]:
    """Turning heads must leave the table as it was, and must not depend on the tables that were turned by before."""
    return table


@label("rotary.view_is_a_copy", source="a graph buffer's live columns are a view of a wider table")
def same_for_a_view(width: int, buffer: int) -> bool:
    """A table that is a view of the first columns of a wider buffer must give what a copy of it gives."""
    return width <= buffer

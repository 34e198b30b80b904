"""A history's table from the tables of its turns, as an engine must do that sees one turn at a time.

The specification places whole histories; here each turn's own table, built from position 0, is moved to the first free
position. The two agree because a family's columns move with their start (a test holds them equal).
"""

from __future__ import annotations

import numpy as np

from ropecheck.reference.timeline import IntArray


def text_table(tokens: int, axes: int = 3) -> IntArray:
    """A turn of text alone. int64 [axes, tokens]."""
    return np.broadcast_to(np.arange(tokens, dtype=np.int64), (axes, tokens))


def free_position(table: IntArray) -> int:
    """The first position that a table leaves free: max + 1, 0 for an empty one."""
    return int(table.max()) + 1 if table.size else 0


def appended(table: IntArray, turn: IntArray) -> IntArray:
    """A turn's own table moved behind an existing one. int64 [axes, a], [axes, b] -> [axes, a + b]."""
    return np.concatenate([table, turn + free_position(table)], axis=1)


def delta(table: IntArray) -> int:
    """max + 1 - width."""
    return free_position(table) - int(table.shape[1])

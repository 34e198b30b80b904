"""Media inputs, which requests may share, and the columns that forwards make of them.

Up to SGLang 0.5.19 a row may bring another number of columns than it has tokens; rows' columns are put one behind the
other, whatever their number, and spread over the forward's tokens.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from ropecheck.reference import compose
from ropecheck.reference.timeline import IntArray

ENDED = "windows-end-with-the-table"
ASIDE = "a-delta-put-aside-stays"

WINDOWS = ("extend", "mixed", "split_prefill")
DRAFTS = ("frozen_kv_draft", "widened_draft_extend")
"""Modes whose draft may stand at tokens of the prompt."""
BY_DELTA = ("target_verify", "ragged_verify", "draft_decode", "draft_extend_v2", *DRAFTS)
"""Modes in which every column is index + delta, whatever the table holds."""


@dataclass(eq=False)
class Inputs:
    """One request's. table: int64 [3, width]; items: half-open token ranges."""

    table: IntArray
    delta: int
    items: tuple[tuple[int, int], ...]
    more: tuple[int, ...] = ()
    """Further deltas, of turns whose media joined."""
    aside: tuple[int, ...] = ()
    """The deltas that were put aside for decodes."""

    @property
    def width(self) -> int:
        return int(self.table.shape[1])

    @property
    def deltas(self) -> tuple[int, ...]:
        """All of them; a right request has one."""
        return self.delta, *self.more

    def put_aside(self) -> tuple[int, ...]:
        """The deltas that decodes read, from now on."""
        self.aside = self.aside or self.deltas
        return self.aside


NOTHING = Inputs(np.zeros((3, 0), dtype=np.int64), 0, ())
"""The media inputs of a request that has none."""


class Unmade(Exception):
    """The engine raises before a forward has a table: message, function."""


def may_be_odd(mode: str, rows: int, tokens: int) -> bool:
    """Whether a row of such a forward may bring another number of columns than it has tokens."""
    return rows > 0 and (mode in (*WINDOWS, "decode", "beam_decode") or (mode in BY_DELTA and tokens % rows == 0))


def brought(
    mode: str,
    rows: Sequence[Inputs],
    firsts: Sequence[int],
    counts: Sequence[int],
    places: IntArray,
    bugs: Collection[str],
) -> list[IntArray]:
    """The columns that each row brings, int64 [3, n]; those of a draft or verify are made at once, and are all the
    first row's. rows: their media inputs; firsts, counts: the tokens that they read; places: all of these, int64 [T].
    Raises Unmade."""
    if mode in BY_DELTA:
        return [_by_delta(rows, places), *[compose.text_table(0)] * (len(rows) - 1)]
    reads = list(zip(rows, firsts, counts, strict=True))
    if mode in WINDOWS:
        return [_window(*one, bugs) for one in reads]
    one_by_one = ASIDE in bugs or any(held.width > first for held, first, _ in reads)
    if not one_by_one and (odd := next((held for held in rows if held.more), None)):
        message = f"a Tensor with {len(odd.deltas)} elements cannot be converted to Scalar"
        raise Unmade(message, "_compute_mrope_positions_decode")
    return [np.repeat(_decode(held, first, one_by_one), count, axis=1) for held, first, count in reads]  # beams' rows


def _window(held: Inputs, first: int, count: int, bugs: Collection[str]) -> IntArray:
    if not held.width:
        return first + compose.text_table(count)
    piece = held.table[:, first : first + count]
    if ENDED not in bugs:
        tail = first + piece.shape[1] + compose.text_table(count - piece.shape[1])
        return np.concatenate([piece, tail + held.delta], axis=1)
    return piece if piece.shape[1] else _decode(held, first + count - 1, True)


def _decode(held: Inputs, index: int, one_by_one: bool) -> IntArray:
    if not held.width:
        return index + compose.text_table(1)
    if held.width > index:
        return held.table[:, index : index + 1]
    deltas = held.put_aside() if one_by_one else held.deltas
    return np.tile(np.array(deltas, dtype=np.int64) + index, (3, 1))


def _by_delta(rows: Sequence[Inputs], places: IntArray) -> IntArray:
    """All deltas of a request are added to all its places, at once for all requests."""
    shapes = ["1" if not held.more else f"{len(held.deltas)}, 1" for held in rows]
    if other := next((n for n, shape in enumerate(shapes) if shape != shapes[0]), 0):
        message = f"stack expects each tensor to be equal size, but got [{shapes[0]}] at entry 0"
        raise Unmade(f"{message} and [{shapes[other]}] at entry {other}", "compute_spec_mrope_positions")
    deltas = np.array([held.deltas for held in rows], dtype=np.int64)
    own = places.reshape(len(rows), -1)
    if deltas.shape[1] > 1:
        deltas = deltas[:, :, None]
        if len(rows) not in (1, deltas.shape[1]):
            sizes = f"tensor a ({len(rows)}) must match the size of tensor b ({deltas.shape[1]})"
            raise Unmade(f"The size of {sizes} at non-singleton dimension 1", "compute_spec_mrope_positions")
    return np.tile((own + deltas).flatten(), (3, 1))


def spread(columns: Sequence[IntArray], tokens: int, padded: bool) -> IntArray | None:
    """The table that the network is given, int64 [3, tokens]; None: the columns do not fit, which raises. padded: a
    forward is filled up with zeros, as among data-parallel ranks."""
    table = np.concatenate(columns, axis=1)
    if padded and table.shape[1] < tokens:
        table = np.pad(table, ((0, 0), (0, tokens - table.shape[1])))
    if table.shape[1] == 1:
        table = np.tile(table, (1, tokens))
    return table if table.shape[1] == tokens else None

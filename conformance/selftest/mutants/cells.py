"""Faults in the values of a forward's tables."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from ropecheck.adapters import protocol
from ropecheck.conformance.selftest.mutants.base import (
    Mutant,
    deltas,
    owners,
    planted,
    rows_of,
    twisted,
    with_both,
    with_rows,
)
from ropecheck.conformance.selftest.mutants.generic import tail_left
from ropecheck.reference.tables import BatchTables
from ropecheck.reference.timeline import Timeline

Lines = Sequence[Timeline]
MUTANTS: list[Mutant] = []
fault = partial(planted, MUTANTS)


def decodes(step: protocol.BuildForward) -> int:
    """Rows of a mixed batch that decode; they come last."""
    return len(step.batch.part("decode").reqs)


@fault("decode delta missing", "S17, V29, R1, X1", "decoded tokens sit at their index", "decode")
@fault("verify delta missing", "V12", "drafted nodes sit at their index", "target_verify")
def _delta_missing(_step: protocol.BuildForward, lines: Lines, tables: BatchTables) -> BatchTables:
    rows = rows_of(tables)
    return with_rows(tables, np.where(deltas(tables, lines) != 0, tables.positions, rows))


@fault("decode delta twice", "slip", "the delta is added to a position that has it", "decode")
def _delta_twice(_step: protocol.BuildForward, lines: Lines, tables: BatchTables) -> BatchTables:
    return with_rows(tables, rows_of(tables) + deltas(tables, lines))


@fault("decode delta of the first request", "X5, T3", "every row takes the first row's delta", "decode")
def _delta_of_first(_step: protocol.BuildForward, lines: Lines, tables: BatchTables) -> BatchTables:
    return with_rows(tables, np.broadcast_to(tables.positions + lines[0].delta, rows_of(tables).shape))


@fault("decode delta of the last media request", "S17 (review)", "one delta for the whole batch", "decode")
def _delta_of_last_media(_step: protocol.BuildForward, lines: Lines, tables: BatchTables) -> BatchTables:
    media = [line.delta for line in lines if line.has_media]
    rows = rows_of(tables)
    return with_rows(tables, tables.positions + np.full_like(rows, media[-1])) if media else tables


@fault("extend text gets a neighbour's delta", "V22", "text rows beside media are shifted", "extend")
def _text_gets_delta(_step: protocol.BuildForward, lines: Lines, tables: BatchTables) -> BatchTables:
    media = [line.delta for line in lines if line.has_media]
    rows = rows_of(tables)
    text = np.array([row >= 0 and not lines[row].has_media for row in owners(tables)], dtype=bool)
    return with_rows(tables, np.where(text, rows + media[0], rows)) if media else tables


@fault("decode shifts t alone", "V1", "h and w stay at the index", "decode")
def _only_t_shifted(_step: protocol.BuildForward, _lines: Lines, tables: BatchTables) -> BatchTables:
    rows = rows_of(tables)
    rows[1:] = tables.positions
    return with_rows(tables, rows)


@fault("decode one ahead", "L7", "seq_len is read without - 1", "decode")
@fault("verify root one ahead", "L6", "the root is placed after itself", "target_verify")
def _one_ahead(_step: protocol.BuildForward, _lines: Lines, tables: BatchTables) -> BatchTables:
    return with_both(tables, tables.positions + 1, rows_of(tables) + 1)


@fault("extend swaps height and width", "X9", "rows h and w are exchanged", "extend")
def _swap_hw(_step: protocol.BuildForward, _lines: Lines, tables: BatchTables) -> BatchTables:
    return with_rows(tables, rows_of(tables)[[0, 2, 1]])


@fault("decode at zero", "X6", "the prefill's builder is used for one token", "decode")
def _zero(_step: protocol.BuildForward, _lines: Lines, tables: BatchTables) -> BatchTables:
    return with_both(tables, np.zeros_like(tables.positions), np.zeros_like(rows_of(tables)))


@fault("decode rows at zero", "X6, V33", "the three rows are never filled", "decode")
def _zero_rows(_step: protocol.BuildForward, _lines: Lines, tables: BatchTables) -> BatchTables:
    return with_rows(tables, np.zeros_like(rows_of(tables)))


@fault("decode delta negated", "slip", "the delta is taken off", "decode")
def _delta_negated(_step: protocol.BuildForward, lines: Lines, tables: BatchTables) -> BatchTables:
    return with_rows(tables, np.broadcast_to(tables.positions - deltas(tables, lines), rows_of(tables).shape))


@fault("extend h row of another stride", "R6, issue 6 (strides)", "the h row is shifted by a column", "extend")
def _row_lost(_step: protocol.BuildForward, _lines: Lines, tables: BatchTables) -> BatchTables:
    """The h row of a strided view is read with the wrong stride: it holds other positions."""
    rows = rows_of(tables)
    rows[1] = np.roll(rows[1], 1)
    return with_rows(tables, rows)


@fault("extend backwards", "slip", "windows are read from their end", "extend")
def _backwards(_step: protocol.BuildForward, lines: Lines, tables: BatchTables) -> BatchTables:
    """Each request's window is read from its end."""
    order = np.concatenate([np.flatnonzero(owners(tables) == row)[::-1] for row in range(len(lines))])
    return with_both(tables, tables.positions[order], rows_of(tables)[:, order])


@fault("extend index from the t row", "T4, T5", "the 1-D table is read off the three-row table", "extend")
def _index_from_t(_step: protocol.BuildForward, _lines: Lines, tables: BatchTables) -> BatchTables:
    return with_both(tables, rows_of(tables)[0], tables.rows)


@fault(
    "extend reads from the table's start",
    "O11, L8",
    "a later chunk's columns are those of the first tokens",
    "extend",
    "mixed",
)
@fault("split prefill reads from the table's start", "O11", "later parts read the first columns", "split_prefill")
def _local_window(step: protocol.BuildForward, lines: Lines, tables: BatchTables) -> BatchTables:
    """Later windows read the table from its start."""
    rows = rows_of(tables)
    for row, line in enumerate(lines):
        mine = owners(tables) == row
        if line.has_media and step.batch.windows[row][0]:
            rows[:, mine] = line.take(np.arange(int(mine.sum()), dtype=np.int64))
    return with_rows(tables, rows)


@fault(
    "extend takes the rest for text", "S20, S21", "after a prefix hit media before the window are forgotten", "extend"
)
@fault("mixed takes the rest for text", "S21", "a window after a hit forgets media before it", "mixed")
def _suffix_as_text(step: protocol.BuildForward, lines: Lines, tables: BatchTables) -> BatchTables:
    """After a prefix hit the rest is placed as if nothing but text stood before it."""
    rows = rows_of(tables)
    for row, line in enumerate(lines):
        mine = owners(tables) == row
        if line.has_media and step.batch.windows[row][0]:
            rows[:, mine] = tables.positions[mine]
    return with_rows(tables, rows)


@fault("extend tail without delta", "S1 (#39144)", "tokens past the table sit at their index", "extend")
@fault("mixed tail without delta", "S1 (#39144)", "windows past the table sit at their index", "mixed")
@fault("split prefill tail without delta", "S1", "tokens past the table sit at their index", "split_prefill")
def _tail_without_delta(_step: protocol.BuildForward, lines: Lines, tables: BatchTables) -> BatchTables:
    rows = rows_of(tables)
    for row, line in enumerate(lines):
        past = (owners(tables) == row) & (tables.positions >= line.tabulated)
        if line.has_media:
            rows[:, past] = tables.positions[past]
    return with_rows(tables, rows)


@fault("extend tail repeats the last column", "S11", "the table's last column is read for every later token", "extend")
def _tail_repeats_last(_step: protocol.BuildForward, lines: Lines, tables: BatchTables) -> BatchTables:
    """Past the table's end its last column is read again and again."""
    rows = rows_of(tables)
    for row, line in enumerate(lines):
        past = (owners(tables) == row) & (tables.positions >= line.tabulated)
        if line.has_media and line.tabulated:
            rows[:, past] = line.table[:, line.tabulated - 1 : line.tabulated]
    return with_rows(tables, rows)


@fault(
    "extend tail from one row", "found in 0.5.23", "later text continues after t, not after the largest row", "extend"
)
def _tail_from_one_row(_step: protocol.BuildForward, lines: Lines, tables: BatchTables) -> BatchTables:
    """Text past the table continues after the last token's t instead of the largest of all rows."""
    rows = rows_of(tables)
    for row, line in enumerate(lines):
        past = (owners(tables) == row) & (tables.positions >= line.tabulated)
        if line.has_media and line.tabulated:
            start = int(line.table[0, line.tabulated - 1]) + 1
            rows[:, past] = tables.positions[past] - line.tabulated + start
    return with_rows(tables, rows)


@fault("verify by node number", "slip", "rivals in a tree get different places", "target_verify")
def _node_number(step: protocol.BuildForward, lines: Lines, tables: BatchTables) -> BatchTables:
    """A tree's nodes are placed by their number instead of their depth."""
    index = np.array(tables.positions)
    for row, seq_len in enumerate(step.batch.seq_lens):
        mine = owners(tables) == row
        index[mine] = seq_len + np.arange(int(mine.sum()))
    return with_both(tables, index, np.broadcast_to(index + deltas(tables, lines), rows_of(tables).shape))


@fault("ragged verify in equal shares", "found in 0.5.23", "packed columns are dealt out evenly", "ragged_verify")
def _stride_of_batch(step: protocol.BuildForward, lines: Lines, tables: BatchTables) -> BatchTables:
    """Ragged columns are dealt out to the requests in equal shares."""
    width = tables.positions.size
    share = max(width // len(lines), 1)
    delta = np.array([lines[min(column // share, len(lines) - 1)].delta for column in range(width)], dtype=np.int64)
    return with_rows(tables, np.broadcast_to(tables.positions + delta, rows_of(tables).shape))


fault("ragged verify tail left", "O12", "the padded tail holds what was there", "ragged_verify")(tail_left)


@fault("draft columns branch-major", "slip", "branches of all requests come together", "draft_decode")
def _branch_major(step: protocol.BuildForward, _lines: Lines, tables: BatchTables) -> BatchTables:
    """Columns come branch by branch instead of request by request."""
    order = np.arange(tables.positions.size).reshape(len(step.reqs), -1).T.ravel()
    return with_both(tables, tables.positions[order], rows_of(tables)[:, order])


@fault("mixed decodes first", "slip", "the decoding columns come before the windows", "mixed")
def _decodes_first(step: protocol.BuildForward, _lines: Lines, tables: BatchTables) -> BatchTables:
    width = tables.positions.size
    order = np.roll(np.arange(width), decodes(step))
    return with_both(tables, tables.positions[order], rows_of(tables)[:, order])


def _only_index_advances(_step: protocol.BuildForward, _lines: Lines, found: list[BatchTables]) -> list[BatchTables]:
    return [with_both(found[0], tables.positions, found[0].rows) for tables in found]


def _two_at_a_time(_step: protocol.BuildForward, _lines: Lines, found: list[BatchTables]) -> list[BatchTables]:
    return [with_both(t, t.positions + n, rows_of(t) + n) for n, t in enumerate(found)]


MUTANTS += [
    twisted(
        "draft advances the index alone",
        "V1, R6",
        "the three rows keep the first step's",
        "draft_decode",
        _only_index_advances,
    ),
    twisted("draft advances by two", "slip", "each step skips a place", "draft_decode", _two_at_a_time),
]

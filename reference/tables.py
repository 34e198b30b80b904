"""Whole-batch tables: for each row the tokens that its mode reads, and their columns in the request's timeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ropecheck.reference.timeline import IntArray, Timeline
from ropecheck.spec.column_rules import PADDING_VALUE
from ropecheck.spec.history import OutOfDomain
from ropecheck.spec.modes.declaration import Mode


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of one mode. fields: name -> a number for all rows, or a tuple with one value per row."""

    mode: Mode
    lines: Sequence[Timeline]
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Span:
    """Columns start .. stop - 1 belong to batch row `row`; the mode reads `tokens` there. int64 [stop - start]."""

    row: int
    start: int
    stop: int
    tokens: IntArray


@dataclass(frozen=True, slots=True, eq=False)
class BatchTables:
    """positions: int64 [T]. rows: int64 [axes, T], or None where only the 1-D table is specified."""

    positions: IntArray
    rows: IntArray | None
    spans: tuple[Span, ...]
    index_dtype: str = "int64"

    @property
    def live(self) -> int:
        """Columns that belong to rows of the batch; the others are padding."""
        return self.spans[-1].stop if self.spans else 0


def tables_of(mode: Mode, parts: Sequence[Part], step: int = 0, axes: int = 3) -> BatchTables:
    """The two tables of forward `step` of a batch, part by part, row by row."""
    lines = [line for part in parts for line in part.lines]
    indices = [index_array(part.mode, part.fields, row, step) for part in parts for row in range(len(part.lines))]
    spans = []
    start = 0
    for row, tokens in enumerate(indices):
        spans.append(Span(row, start, start + len(tokens), tokens))
        start += len(tokens)
    positions = np.concatenate(indices) if indices else np.zeros(0, np.int64)
    rows: IntArray | None = None
    if mode.three_rows:
        columns = [line.take(tokens) for line, tokens in zip(lines, indices, strict=True)]
        rows = np.concatenate(columns, axis=1) if columns else np.zeros((axes, 0), np.int64)
    return BatchTables(positions, rows, tuple(spans), mode.index_dtype)


def index_array(mode: Mode, fields: Mapping[str, Any], row: int, step: int = 0) -> IntArray:
    """The token indices that a batch row reads. int64 [n]."""
    tokens = mode.row(fields, row, step)
    if tokens.count < 0 or tokens.first < 0:
        raise OutOfDomain(f"{mode.name}: row {row} reads {tokens.count} tokens from {tokens.first} on")
    if tokens.offsets is not None:
        return np.array(tokens.offsets, dtype=np.int64) + tokens.first
    return tokens.first + tokens.step * np.arange(tokens.count, dtype=np.int64)


def padded(tables: BatchTables, width: int) -> BatchTables:
    """The same tables in a buffer of `width` columns. Raises OutOfDomain for a buffer that is too small."""
    count = width - tables.positions.size
    if count < 0:
        raise OutOfDomain(f"a padded width of {width} is {-count} short of the live columns")
    rows = tables.rows
    return BatchTables(
        np.pad(tables.positions, (0, count), constant_values=PADDING_VALUE),
        None if rows is None else np.pad(rows, ((0, 0), (0, count)), constant_values=PADDING_VALUE),
        tables.spans,
        tables.index_dtype,
    )

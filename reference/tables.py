"""Whole-batch tables: each mode's two tables for a batch, with the rules that govern every column.

Composed from the mode files of the specification: the index arithmetic is theirs, one vectorised take per request here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ropecheck.reference.timeline import IntArray, Timeline
from ropecheck.spec.modes import (
    decode,
    dllm_extend,
    draft_decode,
    draft_extend_v2,
    extend,
    padding,
    ragged_verify,
    target_verify,
)
from ropecheck.spec.modes.cells import PADDING_VALUE


@dataclass(frozen=True, slots=True)
class Span:
    """Columns start .. stop - 1 belong to batch row `request` (-1: padding) and are governed by these rules."""

    request: int
    start: int
    stop: int
    index_rule: str
    column_rule: str


@dataclass(frozen=True, slots=True, eq=False)
class Tables:
    """positions: int64 [T]. mrope: int64 [axes, T], or None where only the 1-D table is specified."""

    positions: IntArray
    mrope: IntArray | None
    spans: tuple[Span, ...]
    width_rule: str


class Builder:
    """Collects a batch's parts, request by request."""

    def __init__(self, mode: str, width_rule: str) -> None:
        self.mode = mode
        self.width_rule = width_rule
        self._indices: list[IntArray] = []
        self._columns: list[IntArray] = []
        self._spans: list[Span] = []
        self._at = 0

    def add(self, request: int, line: Timeline, indices: Sequence[int], index_rule: str, media_rule: str) -> None:
        """One request's tokens, all placed by one rule."""
        array = np.asarray(indices, dtype=np.int64)
        self._indices.append(array)
        self._columns.append(line.take(array))
        name = media_rule if line.has_media else "text_only"
        self._span(request, len(array), index_rule, name)

    def add_window(self, request: int, line: Timeline, prefix_len: int, extend_len: int) -> None:
        """One request's extend window, whose tokens may lie inside and past the prompt table."""
        array = np.asarray(extend.indices(prefix_len, extend_len), dtype=np.int64)
        self._indices.append(array)
        self._columns.append(line.take(array))
        if not line.has_media:
            self._span(request, extend_len, "indices", "text_only")
            return
        inside = min(max(line.tabulated - prefix_len, 0), extend_len)
        self._span(request, inside, "indices", "inside_table")
        self._span(request, extend_len - inside, "indices", "past_table")

    def build(self, axes: int = 3) -> Tables:
        """The finished tables."""
        if not self._indices:
            return Tables(np.zeros(0, np.int64), np.zeros((axes, 0), np.int64), (), f"{self.mode}.{self.width_rule}")
        return Tables(
            np.concatenate(self._indices),
            np.concatenate(self._columns, axis=1),
            tuple(self._spans),
            f"{self.mode}.{self.width_rule}",
        )

    def _span(self, request: int, count: int, index_rule: str, column_rule: str) -> None:
        if count:
            span = Span(request, self._at, self._at + count, f"{self.mode}.{index_rule}", f"{self.mode}.{column_rule}")
            self._spans.append(span)
            self._at += count


@dataclass(frozen=True, slots=True)
class WindowOf:
    """A request's window in a batch."""

    line: Timeline
    prefix_len: int
    extend_len: int


def extend_tables(mode: str, windows: Sequence[WindowOf], decoding: Sequence[tuple[Timeline, int]] = ()) -> Tables:
    """extend, split_prefill, and (with `decoding`: timeline and seq_len of each) mixed."""
    builder = Builder(mode, "width")
    for request, window in enumerate(windows):
        builder.add_window(request, window.line, window.prefix_len, window.extend_len)
    for request, (line, seq_len) in enumerate(decoding, start=len(windows)):
        builder.add(request, line, (decode.index_of(seq_len),), "indices", "decode_delta")
    return builder.build()


def decode_tables(lines: Sequence[Timeline], seq_lens: Sequence[int]) -> Tables:
    """decode; seq_lens count the new token."""
    builder = Builder("decode", "width")
    for request, (line, seq_len) in enumerate(zip(lines, seq_lens, strict=True)):
        builder.add(request, line, (decode.index_of(seq_len),), "index", "delta_applies_once")
    return builder.build()


def verify_tables(lines: Sequence[Timeline], seq_lens: Sequence[int], parents: Sequence[Sequence[int]]) -> Tables:
    """target_verify; seq_lens count committed tokens."""
    builder = Builder("target_verify", "width")
    for request, (line, seq_len) in enumerate(zip(lines, seq_lens, strict=True)):
        indices = [target_verify.index_of(seq_len, depth) for depth in target_verify.depths(parents[request])]
        builder.add(request, line, indices, target_verify.index_rule(parents[request]), "depth_plus_delta")
    return builder.build()


def ragged_tables(
    lines: Sequence[Timeline], seq_lens: Sequence[int], parents: Sequence[Sequence[int]], tier: int = 0
) -> Tables:
    """Ragged target_verify; tier > 0: packed width after padding."""
    builder = Builder("ragged_verify", "width")
    for request, (line, seq_len) in enumerate(zip(lines, seq_lens, strict=True)):
        indices = [ragged_verify.index_of(seq_len, depth) for depth in target_verify.depths(parents[request])]
        builder.add(request, line, indices, "indices", "depth_plus_delta")
    tables = builder.build()
    return padded(tables, tier, "ragged_verify.tail", "ragged_verify.width") if tier else tables


def draft_tables(lines: Sequence[Timeline], seq_lens: Sequence[int], topk: int, step: int) -> Tables:
    """Draft forward `step` (from 0); seq_lens count committed tokens."""
    builder = Builder("draft_decode", "width")
    for request, (line, seq_len) in enumerate(zip(lines, seq_lens, strict=True)):
        builder.add(request, line, (draft_decode.index_of(seq_len, step),) * topk, "indices", "delta_each_step")
    return builder.build()


def draft_extend_tables(lines: Sequence[Timeline], seq_lens: Sequence[int], num_draft_tokens: int) -> Tables:
    """draft_extend_v2; seq_lens count committed tokens."""
    builder = Builder("draft_extend_v2", "width")
    for request, (line, seq_len) in enumerate(zip(lines, seq_lens, strict=True)):
        builder.add(request, line, draft_extend_v2.indices(seq_len, num_draft_tokens), "indices", "delta_applies_once")
    return builder.build()


def idle_tables() -> Tables:
    """idle: width 0."""
    return Builder("idle", "no_columns").build()


def block_tables(block_offsets: Sequence[int], block_size: int) -> Tables:
    """dllm_extend: 1-D only."""
    spans = []
    indices: list[int] = []
    for request, offset in enumerate(block_offsets):
        rule = "dllm_extend.indices"
        spans.append(Span(request, len(indices), len(indices) + block_size, rule, rule))
        indices.extend(dllm_extend.indices(offset, block_size))
    return Tables(np.asarray(indices, dtype=np.int64), None, tuple(spans), "dllm_extend.width")


def padded(
    tables: Tables, width: int, fill_rule: str = "padding.harmless_fill", width_rule: str = "padding.width"
) -> Tables:
    """The same tables in a buffer of `width` columns."""
    assert tables.mrope is not None
    live = tables.positions.size
    count = len(padding.fill(fill_rule, width - live, tables.mrope.shape[0]))
    live_rule = "padding.live_columns"
    spans = (
        tables.spans
        if fill_rule != "padding.harmless_fill"
        else tuple(Span(span.request, span.start, span.stop, live_rule, live_rule) for span in tables.spans)
    )
    if count:
        spans = (*spans, Span(-1, live, width, fill_rule, fill_rule))
    return Tables(
        np.pad(tables.positions, (0, count), constant_values=PADDING_VALUE),
        np.pad(tables.mrope, ((0, 0), (0, count)), constant_values=PADDING_VALUE),
        spans,
        width_rule,
    )

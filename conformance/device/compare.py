"""Compares a forward's tables on the device that made them; a worker loads it by name, since adapters know no rules.

One flag comes back for all forwards of a job. Where it says no, or where this module does not know the mode, the whole
tables travel and the verdict looks at them as on a host.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from ropecheck.adapters import protocol
from ropecheck.conformance.plan.planner import decoded
from ropecheck.reference.device_windows import NOTHING, Span, joined, right, tables
from ropecheck.spec.modes import decode, draft_decode, target_verify


class Comparator:
    """The comparisons of one job. Tables are kept as they are now: an engine may go on writing into its own."""

    def __init__(self) -> None:
        self._lines: dict[protocol.Line, int] = {}
        self._spans: list[Span] = []
        self._kept: list[Any] = []

    def add(self, forward: protocol.Forward, label: str, positions: Any, rows: Any) -> bool:
        """Keep both tables for comparison. False: not for this module to say, nothing is kept."""
        if rows is None or positions is None or not forward.expect:
            return False
        seen = joined(positions, rows)
        axes = forward.expect[0].table.shape[0]
        wanted = expected(forward, label)
        if seen is None or wanted is None or seen.shape != (axes + 1, sum(span.tokens for span in wanted)):
            return False
        numbers = [self._lines.setdefault(line, len(self._lines)) for line in forward.expect]
        self._spans += [span if span.line == NOTHING else span._replace(line=numbers[span.line]) for span in wanted]
        self._kept.append(seen)
        return True

    def settle(self) -> list[tuple[Any, Any] | None]:
        """Per table added since the last time: None when both tables are right, else (positions, rows) as they were.
        Waits for the device."""
        if not self._kept:
            return []
        kept, self._kept = self._kept, []
        spans, self._spans = self._spans, []
        held = [decoded(line.table) for line in self._lines]
        wanted = tables(spans, held, [line.delta for line in self._lines], kept[0].device)
        return [None if good else (seen[0], seen[1:]) for good, seen in zip(right(kept, wanted), kept, strict=True)]


def expected(forward: protocol.Forward, label: str) -> list[Span] | None:
    """The columns of the table with this label; span.line numbers the forward's requests. None for what is compared on
    the host."""
    if forward.ragged_tokens:
        return None
    live = _live(forward, label)
    if label != "padded" or live is None:
        return live
    assert forward.padding is not None
    rest = forward.padding.tokens - sum(span.tokens for span in live)
    return None if rest < 0 else [*live, Span(NOTHING, 0, rest, 0)]


def _live(forward: protocol.Forward, label: str) -> list[Span] | None:
    seq_lens = forward.seq_lens
    match forward.mode:
        case "extend" | "split_prefill" | "mixed":
            windows = zip(forward.prefix_lens, forward.extend_lens, strict=True)
            return [Span(row, *window) for row, window in enumerate(windows)]
        case "decode":
            return [Span(row, decode.index_of(seq_len), 1) for row, seq_len in enumerate(seq_lens)]
        case "target_verify":
            return [
                Span(row, seq_len + depth, count)
                for row, (seq_len, parents) in enumerate(zip(seq_lens, forward.parents, strict=True))
                for depth, count in depth_runs(parents)
            ]
        case "draft_decode":
            step = int(label.removeprefix("step ")) if label.startswith("step ") else 0
            return [
                Span(row, draft_decode.index_of(seq_len, step), forward.topk, 0) for row, seq_len in enumerate(seq_lens)
            ]
        case "draft_extend_v2":
            return [Span(row, seq_len, forward.num_draft_tokens) for row, seq_len in enumerate(seq_lens)]
        case _:
            return None


@lru_cache(maxsize=1024)
def depth_runs(parents: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """The depths of a tree's nodes as runs of (first depth, how many nodes, each one deeper than the last)."""
    runs: list[tuple[int, int]] = []
    for depth in target_verify.depths(parents):
        if runs and depth == sum(runs[-1]):
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((depth, 1))
    return tuple(runs)

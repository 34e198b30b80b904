"""Faults in loading a forward into a wider buffer."""

from collections.abc import Callable

import numpy as np

from ropecheck.adapters import protocol
from ropecheck.conformance.reference_engine import ReferenceEngine
from ropecheck.conformance.selftest.mutants.base import Mutant, rows_of, with_both, with_rows
from ropecheck.reference.tables import BatchTables

Load = Callable[[int, BatchTables, BatchTables], BatchTables]
"""(live columns, right tables, tables that the buffer held before: itself, the first time) -> wrong tables."""


MUTANTS: list[Mutant] = []


def fault(name: str, like: str, says: str, *, kind: str = "", mode: str = "") -> Callable[[Load], Load]:
    """Plant what the decorated function does to the buffers of one kind and mode ("": of all)."""

    def plant(change: Load) -> Load:
        MUTANTS.append(loaded(name, like, says, change, kind, mode))
        return change

    return plant


def loaded(name: str, like: str, says: str, change: Load, kind: str = "", mode: str = "") -> Mutant:
    """A fault in the buffers of one kind and mode ("": of all)."""

    class Loaded(ReferenceEngine):
        def __init__(self) -> None:
            super().__init__()
            self.last: dict[tuple[str, str, int], BatchTables] = {}

        def pad(self, step: protocol.BuildForward, padding: protocol.Padding, built: BatchTables) -> BatchTables:
            right = super().pad(step, padding, built)
            if kind not in ("", padding.kind) or mode not in ("", step.mode):
                return right
            buffer = (padding.kind, step.mode, padding.tokens)
            wrong = change(built.positions.size, right, self.last.get(buffer, right))
            self.last[buffer] = wrong
            return wrong

    return Mutant(name, like, says, Loaded, mode)


@fault("padding keeps an older batch", "V5, O10", "stale columns behind the live ones")
def stale(live: int, right: BatchTables, old: BatchTables) -> BatchTables:
    """Padded columns keep what the last larger batch left there."""
    rows, index = rows_of(right), np.array(right.positions)
    rows[:, live:], index[live:] = rows_of(old)[:, live:], old.positions[live:]
    return with_both(right, index, rows)


@fault(
    "draft graph clears the t row alone",
    "O10",
    "h and w keep an older batch's columns in the padding",
    kind="graph",
    mode="draft_decode",
)
@fault(
    "verify graph clears the t row alone",
    "O10",
    "h and w keep an older batch's columns in the padding",
    kind="graph",
    mode="target_verify",
)
def _stale_hw(live: int, right: BatchTables, old: BatchTables) -> BatchTables:
    rows = rows_of(right)
    rows[1:, live:] = rows_of(old)[1:, live:]
    return with_rows(right, rows)


@fault("padding copies one row", "O7, O10", "h and w are lost in the wide buffer")
def _one_row(_live: int, right: BatchTables, _old: BatchTables) -> BatchTables:
    """Only the first row is copied into the wide buffer."""
    rows = rows_of(right)
    rows[1:] = 0
    return with_rows(right, rows)


def filled_with_ones(live: int, right: BatchTables, _old: BatchTables) -> BatchTables:
    """Padded columns hold 1."""
    rows = rows_of(right)
    rows[:, live:] = 1
    return with_rows(right, rows)


@fault("padding widens the index alone", "T20", "ids are padded, positions are not")
def _index_only(live: int, right: BatchTables, _old: BatchTables) -> BatchTables:
    """The three-row table is not widened."""
    return with_rows(right, rows_of(right)[:, :live])


@fault(
    "draft extend graph shifts its columns", "slip", "live columns start one late", kind="graph", mode="draft_extend_v2"
)
def _shifted(live: int, right: BatchTables, _old: BatchTables) -> BatchTables:
    """The live columns start one column late; the last one falls off where the buffer is full."""
    rows, index = rows_of(right), np.array(right.positions)
    rows[:, 1:], index[1:] = rows[:, :-1].copy(), index[:-1].copy()
    return with_both(right, index, rows)


@fault(
    "draft extend graph keeps media columns",
    "slip",
    "a text-only batch reads the media batch before it",
    kind="graph",
    mode="draft_extend_v2",
)
def _media_left(live: int, right: BatchTables, old: BatchTables) -> BatchTables:
    """A batch whose three rows are equal is taken for one without a table: nothing is copied over the old one's."""
    rows = rows_of(right)
    text = bool((rows[:, :live] == right.positions[:live]).all())
    return with_rows(right, rows_of(old)) if text else right

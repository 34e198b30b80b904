"""Whole prompt tables at memory speed, in numpy.

The specification places token after token; here every run is one block. Equal runs share one relative block, the
starts are a running sum, and the table is written once. What a run may be, and how many tokens it has, is asked of
the specification once per distinct run, so everything that it refuses is refused here too.

Shapes: a table is int64 [axes, P]. Nothing here is cached between calls but a ramp of whole numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from ropecheck.reference.blocks import Line, PlacedRun, Table, block_of, ramp, write_numbered
from ropecheck.spec.families.declaration import MediaFamily
from ropecheck.spec.families.minicpm_v import MiniCPMV
from ropecheck.spec.history import History, Run, numbered_family

_LONG_RUNS = 192
"""Mean tokens per run from which writing run by run beats joining small blocks."""


def prompt_table(family: MediaFamily, history: History) -> Table:
    """int64 [axes, P]: the specification's prompt table. Raises OutOfDomain where the specification does."""
    if numbered_family(family) is not None:
        return _numbered_table(family, history)
    blocks: dict[Run, PlacedRun] = {}
    texts: dict[int, PlacedRun] = {}
    parts: list[PlacedRun] = []
    for run in history:
        if run.kind == "text":
            part = texts.get(run.tokens)
            if part is None:
                part = texts[run.tokens] = Line(family.axes, run.tokens)
        else:
            part = blocks.get(run)
            if part is None:
                part = blocks[run] = block_of(family, run)
        parts.append(part)
    table = assemble(family.axes, parts)
    # Outside of a canvas at position 0 there is nothing: the one block whose columns do not only move with their start.
    return np.maximum(table, 0, out=table) if isinstance(family, MiniCPMV) else table


def delta(table: Table) -> int:
    """max(table) + 1 - P; 0 for an empty table."""
    return int(table.max()) + 1 - table.shape[1] if table.shape[1] else 0


def assemble(axes: int, parts: Sequence[PlacedRun]) -> Table:
    """Every block moved to its start, which is the running sum of the extents before it: int64 [axes, P]."""
    extents = [part.extent for part in parts]
    lengths = [part.tokens for part in parts]
    total = sum(lengths)
    starts = [0, *accumulate(extents)]
    table = np.empty((axes, total), dtype=np.int64)
    if total < _LONG_RUNS * len(parts):
        np.concatenate([part.columns for part in parts], axis=1, out=table)
        table += np.repeat(np.array(starts[:-1], dtype=np.int64), lengths)
        return table
    at = 0
    for start, part in zip(starts, parts, strict=False):
        part.write(table[:, at : at + part.tokens], start)
        at += part.tokens
    return table


def _numbered_table(family: MediaFamily, history: History) -> Table:
    lengths = [run.tokens if run.is_text else block_length(family, run) for run in history]
    total = sum(lengths)
    table = np.empty((family.axes, total), dtype=np.int64)
    table[:] = ramp(0, total)
    at = number = 0
    for run, tokens in zip(history, lengths, strict=True):
        if not run.is_text:
            write_numbered(family, run, number, table[:, at : at + tokens])
            number += 1
        at += tokens
    return table


def block_length(family: MediaFamily, run: Run) -> int:
    """Tokens of a media run, cut or whole."""
    return family.token_count(run) if run.kept is None else run.kept

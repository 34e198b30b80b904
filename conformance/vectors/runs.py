"""Runs and tables of vector files in the specification's terms. Imports the specification only."""

from collections.abc import Sequence
from math import prod

from ropecheck.conformance.vectors import types as v
from ropecheck.spec.history import Column, Family, History, OutOfDomain, Run, run_length


def history_of(runs: Sequence[v.VectorRun]) -> History:
    """A vector's runs as a history. Raises OutOfDomain for one of too many patches."""
    for run in runs:
        if run.grid is not None and prod(run.grid) > v.LARGEST:
            raise OutOfDomain(f"a run of {prod(run.grid)} patches; at most {v.LARGEST}")
    return tuple(
        Run(
            kind=run.kind,
            tokens=run.tokens,
            grid=run.grid,
            kept=run.kept,
            seconds_per_grid=1.0 if run.seconds_per_grid is None else run.seconds_per_grid,
        )
        for run in runs
    )


def columns_of(table: v.Rows) -> tuple[Column, ...]:
    """[axes][P] as P columns. Rows of unequal width give columns up to the shortest, so they equal no right table."""
    return tuple(zip(*table, strict=False))


def media_spans(family: Family, history: History) -> tuple[tuple[int, int], ...]:
    """Half-open token ranges of the media runs."""
    out = []
    start = 0
    for run in history:
        size = run_length(family, run)
        if not run.is_text:
            out.append((start, start + size))
        start += size
    return tuple(out)

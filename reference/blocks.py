"""One run as one numpy block: its tokens, how far it moves the next run, and its columns.

A block is written straight into a table at its start, or gives its columns from start 0, to be joined with others.
"""

from __future__ import annotations

from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ropecheck.spec.families.declaration import GridFamily, MediaFamily, frame_times, merged_grid
from ropecheck.spec.families.hunyuan_vl import HunYuanVL
from ropecheck.spec.families.omni import has_track
from ropecheck.spec.families.qwen2_5_omni import Qwen2_5Omni
from ropecheck.spec.families.qwen3_omni import Qwen3Omni
from ropecheck.spec.history import OutOfDomain, Run

Table = npt.NDArray[np.int64]

_ramp: Table = np.arange(1 << 14, dtype=np.int64)


def ramp(start: int, length: int) -> Table:
    """start, start + 1, ..: int64 [length], on memory that all callers share: not to be written."""
    global _ramp
    if start + length > len(_ramp):
        _ramp = np.arange(2 * (start + length), dtype=np.int64)
        _ramp.setflags(write=False)
    return _ramp[start : start + length]


class PlacedRun(Protocol):
    """A run, ready to be placed."""

    tokens: int
    extent: int
    """The largest position, from start 0, plus one."""

    @property
    def columns(self) -> Table:
        """int64 [axes, tokens] from start 0; not to be written."""

    def write(self, table: Table, start: int) -> None:
        """Fill `table`, [axes, tokens] of a C-ordered table, with the columns from `start`."""


class Line:
    """Text or audio: the same position on every row, one more per token."""

    def __init__(self, axes: int, tokens: int) -> None:
        self.tokens = self.extent = tokens
        self.axes = axes

    @cached_property
    def columns(self) -> Table:
        return np.broadcast_to(ramp(0, self.tokens), (self.axes, self.tokens))

    def write(self, table: Table, start: int) -> None:
        table[:] = ramp(start, self.tokens)


class GridOfTokens:
    """Frames of h x w tokens at the given times (never falling)."""

    def __init__(self, times: tuple[int, ...], h: int, w: int) -> None:
        self.times, self.h, self.w = times, h, w
        self.tokens = len(times) * h * w
        self.extent = max(times[-1] + 1, h, w)

    @cached_property
    def columns(self) -> Table:
        table = np.empty((3, self.tokens), dtype=np.int64)
        self.write(table, 0)
        return table

    def write(self, table: Table, start: int) -> None:
        shape = (len(self.times), self.h, self.w)
        if shape[0] == 1:
            table[0] = start + self.times[0]
        else:
            times = np.array(self.times, dtype=np.int64) + start
            table[0].reshape(shape)[:] = times[:, None, None]
        table[1].reshape(shape)[:] = ramp(start, self.h)[:, None]
        table[2].reshape(shape)[:] = ramp(start, self.w)


class AnyShape:
    """Columns of a shape of their own: a video with its audio track, a run cut short."""

    def __init__(self, columns: Table) -> None:
        self.columns = columns
        self.tokens = columns.shape[1]
        self.extent = int(columns.max()) + 1 if self.tokens else 0

    def write(self, table: Table, start: int) -> None:
        np.add(self.columns, start, out=table)


def block_of(family: MediaFamily, run: Run) -> PlacedRun:
    """The block of a media run. Raises OutOfDomain where the specification does."""
    block = _whole(family, run)
    if block.tokens != family.token_count(run):
        raise AssertionError(f"{family.name}: a block of {block.tokens} columns for {run}")
    return block if run.kept is None else AnyShape(block.columns[:, : run.kept])


def _whole(family: MediaFamily, run: Run) -> PlacedRun:
    if isinstance(family, GridFamily):
        t, h, w = family.merged(run)
        return GridOfTokens(frame_times(run, t, family.tokens_per_second), h, w)
    if isinstance(family, Qwen2_5Omni | Qwen3Omni):
        return _omni(family, run)
    columns = np.array(family.media_columns(run, 1), dtype=np.int64).T - 1  # at 0 a canvas has no outside
    return AnyShape(columns)


def _omni(family: Qwen2_5Omni | Qwen3Omni, run: Run) -> PlacedRun:
    if run.kind == "audio":
        return Line(family.axes, run.tokens)
    if run.kind == "image" and run.tokens:
        raise OutOfDomain(f"a run of kind {run.kind!r} counts its tokens from its grid")
    if isinstance(family, Qwen3Omni):
        family.check_whole(run)
    t, h, w = merged_grid(run, family.merge)
    video = GridOfTokens(frame_times(run, t, family.positions_per_second), h, w)
    if not has_track(run):
        return video
    both = np.concatenate((video.columns, Line(3, run.tokens).columns), axis=1)
    if isinstance(family, Qwen3Omni):
        return AnyShape(both[:, np.argsort(both[0], kind="stable")])
    chunk = both[0] // (family.positions_per_second * family.seconds_per_chunk)
    content = both[:, np.argsort(chunk, kind="stable")]
    marked = np.empty((3, content.shape[1] + 4), dtype=np.int64)
    marked[:, :2] = 0
    marked[:, 2:-2] = content + 1
    marked[:, -2:] = content.max() + 2
    return AnyShape(marked)


def write_numbered(family: MediaFamily, run: Run, number: int, columns: Table) -> None:
    """Overwrite rows 1 to 3 of an image's grid tokens in `columns`, which hold every token's index so far."""
    if not isinstance(family, HunYuanVL):
        raise AssertionError(f"{family.name} does not number its items")
    h, w = family.lines(run)
    grid = np.empty((3, h, w + 1), dtype=np.int64)
    grid[0] = np.arange(w + 1)
    grid[1] = np.arange(h)[:, None]
    grid[2] = number
    inside = columns[1:, 1 : 1 + h * (w + 1)]
    inside[:] = grid.reshape(3, -1)[:, : inside.shape[1]]

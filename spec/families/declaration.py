"""What a family declares, and the block of columns that most families share.

A new family is one file: a `GridFamily(...)` with its numbers and the place where they are defined, or, where the
family has a shape of its own, a class with the same four members.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ropecheck.spec.history import Column, Family, OutOfDomain, Run


class MediaFamily(Family, Protocol):
    """A family, with what a reader of its prompts must know besides the columns."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """Media kinds that the family's prompts may hold."""

    @property
    def frames_apart(self) -> bool:
        """Each temporal step of a video is a run of its own, with text (timestamps, markers) between."""

    @property
    def absolute_time(self) -> bool:
        """A video needs its seconds per temporal grid step."""

    @property
    def source(self) -> str:
        """Where the family is defined."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GridFamily:
    """Images and videos as blocks of time x (height / merge) x (width / merge) tokens, in that order."""

    name: str
    source: str
    axes: int = 3
    merge: int = 2
    """Patches per token along height and along width."""
    temporal_merge: int = 1
    """Temporal grid steps per token, videos only."""
    tokens_per_second: int | None = None
    """Positions per second of video; None: one position per temporal step, whatever its duration."""
    kinds: tuple[str, ...] = ("image", "video")
    frames_apart: bool = False

    @property
    def absolute_time(self) -> bool:
        return self.tokens_per_second is not None

    def token_count(self, run: Run) -> int:
        t, h, w = self.merged(run)
        return t * h * w

    def media_columns(self, run: Run, start: int) -> tuple[Column, ...]:
        t, h, w = self.merged(run)
        return block(start, frame_times(run, t, self.tokens_per_second), h, w)

    def merged(self, run: Run) -> tuple[int, int, int]:
        """The run's grid in tokens. Raises OutOfDomain for what the family cannot hold."""
        if run.kind not in self.kinds:
            raise OutOfDomain(f"{self.name} has no media of kind {run.kind!r}")
        if run.tokens:
            raise OutOfDomain(f"{self.name} counts a {run.kind}'s tokens from its grid; {run.tokens} were given")
        t, h, w = merged_grid(run, self.merge, self.temporal_merge)
        if self.frames_apart and t != 1:
            raise OutOfDomain(f"{self.name}: each of a video's {t} frames is a run of its own (see video_frames)")
        return t, h, w


def merged_grid(run: Run, merge: int, temporal_merge: int = 1) -> tuple[int, int, int]:
    """The grid in tokens. Raises OutOfDomain for a kind without a grid, an empty axis, an image of several temporal
    steps (no processor makes one), or a grid that a merge does not divide."""
    if run.kind not in ("image", "video") or run.grid is None:
        raise OutOfDomain(f"a run of kind {run.kind!r} needs a grid and an image or video family")
    t, h, w = run.grid
    if min(t, h, w) < 1:
        raise OutOfDomain(f"grid {run.grid} has an empty axis")
    if h % merge or w % merge:
        raise OutOfDomain(f"grid {run.grid} is not divisible by the spatial merge {merge}")
    if run.kind == "image":
        if t != 1:
            raise OutOfDomain(f"an image has one temporal step; its grid is {run.grid}")
        return 1, h // merge, w // merge
    if t % temporal_merge:
        raise OutOfDomain(f"grid {run.grid} is not divisible by the temporal merge {temporal_merge}")
    return t // temporal_merge, h // merge, w // merge


ROUNDING = 1e-6
"""Positions. A time that falls short of a whole position by less than this is that position.

An interval such as 2/25 s is no binary fraction, so that frame 29 of 25 positions per second comes out at
57.99999999999999 where the definition says 58. True times stay farther away: 1/60000 for a frame rate of 60000/1001.
"""


def frame_times(run: Run, frames: int, tokens_per_second: int | None) -> tuple[int, ...]:
    """The temporal id of each frame, from 0: its number, or its time in positions, rounded down.

    The product is that of real numbers (see ROUNDING); in code, IEEE doubles from left to right. Raises OutOfDomain
    for an interval that is negative or not a number.
    """
    if run.kind != "video" or tokens_per_second is None:
        return tuple(range(frames))
    seconds = run.seconds_per_grid
    if not (math.isfinite(seconds) and seconds >= 0):
        raise OutOfDomain(f"seconds_per_grid {seconds} is not a duration")
    return tuple(math.floor(frame * seconds * tokens_per_second + ROUNDING) for frame in range(frames))


def block(start: int, times: Sequence[int], rows: int, cols: int) -> tuple[Column, ...]:
    """Columns of frames of rows x cols tokens, each frame at start + its time; height and width restart at start."""
    columns = []
    for time in times:
        for row in range(rows):
            for col in range(cols):
                columns.append((start + time, start + row, start + col))
    return tuple(columns)


def ramp(start: int, tokens: int, axes: int = 3) -> tuple[Column, ...]:
    """Columns of tokens in a line: the same position on every row, one more per token."""
    return tuple((start + i,) * axes for i in range(tokens))

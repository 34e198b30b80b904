"""MiniCPM-V 4.7: a picture, its slices and all their markers share one canvas of positions.

A picture is a thumbnail, and for a large one a grid of slices that tile it at a higher resolution. 4 x 4 patches make a
token. The canvas has a base b (the first free position) and H x W tokens: the slices' grid, or the thumbnail's where
there are none. Everything of the picture has t = b; h and w are b plus its place on the canvas:

    start marker of the picture     just outside the near corner: (b, b - 1, b - 1), and b itself where b is 0
    the thumbnail's tokens          their place, stretched over the whole canvas where there are slices
    end marker of the picture       the far corner: (b, b + H, b + W)
    a slice's tokens                their place in the slice, which stands at its row and column of the canvas
    start and end marker of a slice the slice's own first and last token
    newline after a row of slices   the row's last line, just past its right edge: (b, .., b + W)

Text goes on at b + max(H, W) + 1. A video is a picture per frame, with nothing between. Pictures that only newlines
separate belong together: one position stays free after the newline, so that the next start marker is not on it.

See: the model's own `get_rope_index` in transformers (`minicpmv4_7`) and the words of its documentation; no paper text.
"""

from __future__ import annotations

from dataclasses import dataclass

from ropecheck.spec.families.declaration import merged_grid
from ropecheck.spec.history import Column, OutOfDomain, Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture(Run):
    """A picture with slices, or one that follows another after a newline."""

    rows: int = 0
    cols: int = 0
    """The grid of slices; 0: none."""
    slice_grid: tuple[int, int] = (0, 0)
    """(h, w) patches of every slice."""
    after_newline: bool = False
    """Only newlines stand between it and the picture before."""


def sliced(h: int, w: int, rows: int, cols: int, slice_h: int, slice_w: int) -> Picture:
    """A picture of h x w patches with rows x cols slices of slice_h x slice_w."""
    return Picture(kind="image", grid=(1, h, w), rows=rows, cols=cols, slice_grid=(slice_h, slice_w))


@dataclass(frozen=True, slots=True, kw_only=True)
class MiniCPMV:
    """Declaration of the family."""

    name: str = "minicpm_v4_7"
    source: str = "https://github.com/huggingface/transformers/blob/main/src/transformers/models/minicpmv4_7"
    axes: int = 3
    merge: int = 4
    kinds: tuple[str, ...] = ("image", "video")
    frames_apart: bool = True
    absolute_time: bool = False

    def token_count(self, run: Run) -> int:
        (_, h, w), (rows, cols, slice_h, slice_w) = self.grids(run)
        slices = rows * cols
        return h * w + 2 + slices * (slice_h * slice_w + 2) + (rows - 1 if slices else 0)

    def media_columns(self, run: Run, start: int) -> tuple[Column, ...]:
        (_, h, w), (rows, cols, slice_h, slice_w) = self.grids(run)
        base = start + 1 if isinstance(run, Picture) and run.after_newline else start
        slices = rows * cols
        high, wide = (rows * slice_h, cols * slice_w) if slices else (h, w)
        outside = max(base - 1, 0)
        columns: list[Column] = [(base, outside, outside)]
        for row in range(h):
            for col in range(w):
                columns.append((base, base + stretched(row, h, high), base + stretched(col, w, wide)))
        columns.append((base, base + high, base + wide))
        for number in range(slices):
            top, left = number // cols * slice_h, number % cols * slice_w
            if number and left == 0:
                columns.append((base, base + top - 1, base + wide))
            columns.append((base, base + top, base + left))
            for row in range(slice_h):
                for col in range(slice_w):
                    columns.append((base, base + top + row, base + left + col))
            columns.append((base, base + top + slice_h - 1, base + left + slice_w - 1))
        return tuple(columns)

    def grids(self, run: Run) -> tuple[tuple[int, int, int], tuple[int, int, int, int]]:
        """In tokens: the thumbnail, and the slices' (rows, columns, height, width)."""
        if run.kind not in self.kinds or run.tokens:
            raise OutOfDomain(f"{self.name} has no media of kind {run.kind!r} with {run.tokens} tokens of its own")
        grid = merged_grid(run, self.merge)
        if grid[0] != 1:
            raise OutOfDomain(f"{self.name}: each of a video's {grid[0]} frames is a picture of its own")
        if not isinstance(run, Picture) or not (run.rows or run.cols):
            return grid, (0, 0, 0, 0)
        if run.rows < 1 or run.cols < 1:
            raise OutOfDomain(f"{run.rows} x {run.cols} slices")
        _, slice_h, slice_w = merged_grid(Run(kind="image", grid=(1, *run.slice_grid)), self.merge)
        return grid, (run.rows, run.cols, slice_h, slice_w)


def stretched(place: int, count: int, size: int) -> int:
    """Place `place` of `count` spread evenly over 0 .. size - 1, rounded to the nearest, half to the even one.

    Of one place it is the first.
    """
    if count == 1:
        return 0
    whole, rest = divmod(place * (size - 1), count - 1)
    if 2 * rest == count - 1:
        return whole + whole % 2
    return whole + (2 * rest > count - 1)


MINICPM_V4_7 = MiniCPMV()

"""Qwen2-VL: images and videos as blocks of t x (h / merge) x (w / merge) tokens, one time step per grid step.

See: arXiv 2409.12191, section 2.1 (M-RoPE): the temporal id is constant over an image and grows by one per frame of
a video; height and width ids are the token's place in the block; ids after a modality start at the largest so far + 1.
"""

from __future__ import annotations

from dataclasses import dataclass

from spec.history import Column, OutOfDomain, Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Qwen2VL:
    """Declaration of the family: its name and spatial merge."""

    name: str = "qwen2_vl"
    axes: int = 3
    merge: int = 2

    def token_count(self, run: Run) -> int:
        t, h, w = merged_grid(run, self.merge)
        return t * h * w

    def media_columns(self, run: Run, start: int) -> tuple[Column, ...]:
        t, h, w = merged_grid(run, self.merge)
        columns = []
        for frame in range(t):
            for row in range(h):
                for col in range(w):
                    columns.append((start + frame, start + row, start + col))
        return tuple(columns)


def merged_grid(run: Run, merge: int) -> tuple[int, int, int]:
    """The grid in tokens. Raises OutOfDomain for a kind without a grid or a grid that the merge does not divide."""
    if run.kind not in ("image", "video") or run.grid is None:
        raise OutOfDomain(f"a run of kind {run.kind!r} needs a grid and an image or video family")
    t, h, w = run.grid
    if min(t, h, w) < 1:
        raise OutOfDomain(f"grid {run.grid} has an empty axis")
    if h % merge or w % merge:
        raise OutOfDomain(f"grid {run.grid} is not divisible by the spatial merge {merge}")
    return t, h // merge, w // merge


QWEN2_VL = Qwen2VL()

"""Qwen2.5-VL: as Qwen2-VL, but a video's temporal ids are aligned with absolute time.

Frame k of a video sits at floor(k * seconds_per_grid * tokens_per_second) after the block's start. The start itself
is never scaled, and images are never scaled.

See: arXiv 2502.13923, section 2.1.2 (MRoPE aligned to absolute time).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from spec.families.qwen2_vl import merged_grid
from spec.history import Column, OutOfDomain, Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Qwen2_5VL:
    """Declaration of the family: its name, spatial merge and temporal resolution."""

    name: str = "qwen2_5_vl"
    axes: int = 3
    merge: int = 2
    tokens_per_second: int = 2

    def token_count(self, run: Run) -> int:
        t, h, w = merged_grid(run, self.merge)
        return t * h * w

    def media_columns(self, run: Run, start: int) -> tuple[Column, ...]:
        t, h, w = merged_grid(run, self.merge)
        seconds = run.seconds_per_grid if run.kind == "video" else 0.0
        if seconds < 0:
            raise OutOfDomain(f"seconds_per_grid {seconds} is negative")
        columns = []
        for frame in range(t):
            time = math.floor(frame * seconds * self.tokens_per_second)
            for row in range(h):
                for col in range(w):
                    columns.append((start + time, start + row, start + col))
        return tuple(columns)


QWEN2_5_VL = Qwen2_5VL()

"""Where a family's paper and its authors' released code differ, and nobody outside can tell which trained the model.

arXiv 2503.20215 and 2509.17765: a modality starts at the largest position of the one before it, plus one. The released
classes of Qwen2.5-Omni and Qwen3-Omni go on, after a video with its audio track, from the piece that was placed last:
the last chunk's audio, or the rest of the longer track. A frame that reaches farther is then overlapped by the text
behind it. A checkpoint knows the positions that it was trained with. If training ran this code, an engine that follows
the paper moves all text after a track.
"""

from __future__ import annotations

from collections.abc import Sequence

from ropecheck.spec.families.declaration import MediaFamily
from ropecheck.spec.families.omni import has_track
from ropecheck.spec.families.qwen2_5_omni import Qwen2_5Omni
from ropecheck.spec.families.qwen3_omni import Qwen3Omni
from ropecheck.spec.history import Column, History, next_position, run_columns


def released_table(family: MediaFamily, history: History) -> tuple[Column, ...]:
    """The table by the released code; the paper's own where the two agree."""
    columns: list[Column] = []
    start = 0
    for run in history:
        if isinstance(family, Qwen2_5Omni | Qwen3Omni) and has_track(run):
            placed, start = family.released_columns(run, start)
        else:
            placed = run_columns(family, run, start)
            start = next_position(placed) if placed else start
        columns.extend(placed)
    return tuple(columns)


def continued(table: Sequence[tuple[int | float, ...]]) -> int | float:
    """The delta by which the next token follows the last one, wherever the table has its largest position."""
    return max(table[-1]) + 1 - len(table) if table else 0

"""Qwen3-VL and Qwen3.5: the time of a video frame is text, so each temporal grid step is a run of its own.

A video of t x h x w becomes t runs of 1 x h x w; before each stands its timestamp ("<3.0 seconds>") and a start
marker, after it an end marker, all ordinary text. No temporal id carries time. The grid comes once per video.

See: Qwen3-VL technical report, arXiv 2511.21631 (explicit video timestamps in place of absolute-time
M-RoPE). Qwen3.5 keeps the layout: `get_rope_index` of the model class in transformers, by the model's authors.
"""

from __future__ import annotations

from collections.abc import Sequence

from ropecheck.spec.families.declaration import GridFamily
from ropecheck.spec.history import History, OutOfDomain, Run, text, video

QWEN3_VL = GridFamily(
    name="qwen3_vl",
    source="arXiv 2511.21631 (text timestamps)",
    frames_apart=True,
)

QWEN3_5 = GridFamily(
    name="qwen3_5",
    source="https://github.com/huggingface/transformers/blob/main/src/transformers/models/qwen3_5",
    frames_apart=True,
)


def video_frames(grid: tuple[int, int, int], before: Sequence[int], after: int = 1) -> History:
    """One video as a history: per temporal step `before[k]` text tokens (timestamp and start marker), the frame's
    run, and `after` text tokens (end marker). Raises OutOfDomain unless there is one timestamp per step."""
    t, h, w = grid
    if len(before) != t:
        raise OutOfDomain(f"a video of {t} temporal steps needs {t} timestamps; {len(before)} were given")
    runs: list[Run] = []
    for tokens in before:
        runs.append(text(tokens))
        runs.append(video(1, h, w))
        runs.append(text(after))
    return tuple(runs)

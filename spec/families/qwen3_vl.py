"""Qwen3-VL, Qwen3.5 and what is built on them: the time of a video frame is text, so each temporal step is its own run.

A video of t x h x w becomes t runs of 1 x h x w; before each stands its timestamp ("<3.0 seconds>") and a start
marker, after it an end marker, all ordinary text. No temporal id carries time. The grid comes once per video.

See: Qwen3-VL technical report, arXiv 2511.21631 (explicit video timestamps in place of absolute-time
M-RoPE). The others keep the layout: `get_rope_index` of each model class in transformers, by the models' authors.
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

QWEN3_VL_MOE = GridFamily(name="qwen3_vl_moe", source="arXiv 2511.21631 (text timestamps)", frames_apart=True)

_CLASSES = "https://github.com/huggingface/transformers/blob/main/src/transformers/models/"

QWEN3_5 = GridFamily(name="qwen3_5", source=_CLASSES + "qwen3_5", frames_apart=True)
QWEN3_5_MOE = GridFamily(name="qwen3_5_moe", source=_CLASSES + "qwen3_5_moe", frames_apart=True)
QWEN4_EXP = GridFamily(name="qwen4_exp", source=_CLASSES + "qwen4_exp", frames_apart=True)
COSMOS3_OMNI = GridFamily(name="cosmos3_omni", source=_CLASSES + "cosmos3_omni", frames_apart=True)
COSMOS3_EDGE = GridFamily(name="cosmos3_edge", source=_CLASSES + "cosmos3_edge", frames_apart=True)
COHERE_COMPASS = GridFamily(name="cohere_compass", source=_CLASSES + "cohere_compass", frames_apart=True)


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

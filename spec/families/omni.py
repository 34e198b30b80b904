"""What Qwen2.5-Omni and Qwen3-Omni share: audio in a line, video in absolute time, both in one run.

A run of kind "video" with `tokens` > 0 is a video with its audio track: `tokens` audio tokens are interleaved with
the grid's. Both start at the same position; where a family orders them by time, video goes first at a tie.
"""

from __future__ import annotations

from ropecheck.spec.families.declaration import block, frame_times, merged_grid, ramp
from ropecheck.spec.history import Column, OutOfDomain, Run


def audio(tokens: int) -> Run:
    """An audio item of `tokens` placeholder tokens."""
    return Run(kind="audio", tokens=tokens)


def video_with_audio(t: int, h: int, w: int, seconds_per_grid: float, audio_tokens: int) -> Run:
    """A video and its audio track as one item."""
    return Run(kind="video", grid=(t, h, w), seconds_per_grid=seconds_per_grid, tokens=audio_tokens)


def has_track(run: Run) -> bool:
    """Whether the run is a video with its audio track."""
    return run.kind == "video" and run.tokens > 0


def audio_count(run: Run) -> int:
    """Tokens of an audio run or track. Raises OutOfDomain for none."""
    if run.tokens < 1:
        raise OutOfDomain(f"an audio item needs tokens; it has {run.tokens}")
    return run.tokens


def vision_columns(run: Run, start: int, merge: int, positions_per_second: int) -> tuple[Column, ...]:
    """The image's or video's own block."""
    t, h, w = merged_grid(run, merge)
    return block(start, frame_times(run, t, positions_per_second), h, w)


def simple_columns(run: Run, start: int, merge: int, positions_per_second: int) -> tuple[Column, ...]:
    """Columns of audio alone, an image, or a video without a track."""
    if run.kind == "audio":
        return ramp(start, audio_count(run))
    if run.tokens and run.kind != "video":
        raise OutOfDomain(f"a run of kind {run.kind!r} counts its tokens from its grid")
    return vision_columns(run, start, merge, positions_per_second)

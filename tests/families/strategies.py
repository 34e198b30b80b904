"""Histories of every family, as Hypothesis strategies."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from ropecheck.spec.families import FAMILIES
from ropecheck.spec.families.declaration import MediaFamily
from ropecheck.spec.families.minicpm_v import Picture
from ropecheck.spec.families.omni import audio, video_with_audio
from ropecheck.spec.families.qwen3_vl import video_frames
from ropecheck.spec.history import History, Run, image, text, video

INTERVALS = (0.0, 0.5, 1.0, 1.5, 4.0, 0.375, 2.0 / 3.0)
"""Seconds per grid step; Qwen3-Omni takes the whole ones."""


def families() -> st.SearchStrategy[MediaFamily]:
    return st.sampled_from(list(FAMILIES.values()))


@st.composite
def media(draw: st.DrawFn, family: MediaFamily) -> History:
    """One item of the family, as runs."""
    kind = draw(st.sampled_from(family.kinds))
    merge = getattr(family, "merge", 2)
    h, w = draw(st.integers(1, 5)) * merge, draw(st.integers(1, 5)) * merge
    if kind == "audio":
        return (audio(draw(st.integers(1, 80))),)
    if family.name == "minicpm_v4_7" and kind == "image" and draw(st.booleans()):
        rows, cols, high, wide = (draw(st.integers(1, 3)) for _ in range(4))
        sliced = Picture(kind="image", grid=(1, h, w), rows=rows, cols=cols, slice_grid=(high * merge, wide * merge))
        return (replace(sliced, after_newline=draw(st.booleans())),)
    if kind == "image":
        return (image(1, h, w),)
    t = draw(st.integers(1, 6))
    if family.frames_apart:
        return video_frames((t, h, w), draw(st.lists(st.integers(0, 4), min_size=t, max_size=t)))
    whole = family.name == "qwen3_omni"
    seconds = draw(st.sampled_from([0.0, 1.0, 2.0, 4.0] if whole else INTERVALS))
    if "audio" in family.kinds and draw(st.booleans()):
        return (video_with_audio(t, h, w, seconds, draw(st.integers(1, 160))),)
    return (video(t * getattr(family, "temporal_merge", 1), h, w, seconds),)


@st.composite
def histories(draw: st.DrawFn, family: MediaFamily) -> History:
    """A prompt: items with 0 to 9 text tokens before, between and after."""
    runs: list[Run] = []
    for _ in range(draw(st.integers(0, 4))):
        runs.append(text(draw(st.integers(0, 9))))
        runs.extend(draw(media(family)))
    runs.append(text(draw(st.integers(0, 9))))
    return tuple(runs)


@st.composite
def prompts(draw: st.DrawFn) -> tuple[MediaFamily, History]:
    family = draw(families())
    return family, draw(histories(family))

"""A prompt-table vector's rules, from the specification alone."""

from __future__ import annotations

from ropecheck.spec.families.declaration import MediaFamily
from ropecheck.spec.families.glm_image import GLM_IMAGE
from ropecheck.spec.families.hunyuan_vl import HUNYUAN_VL
from ropecheck.spec.families.omni import has_track
from ropecheck.spec.history import Column, History, delta_of


def delta_beside(family: MediaFamily, columns: tuple[Column, ...]) -> int:
    """What stands beside the table. GLM-Image's is 0: its generated tokens read tabulated columns."""
    return 0 if family is GLM_IMAGE else int(delta_of(columns))


def rules_of(family: MediaFamily, history: History) -> tuple[str, ...]:
    """The family rules that a history is an example of."""
    found = ["families.text_rows_equal", "families.text_after_media"]
    videos = [run for run in history if run.kind == "video"]
    if videos and family.absolute_time:
        found.append("families.absolute_time")
    if videos and family.frames_apart:
        found.append("families.frame_per_run")
    if videos and getattr(family, "temporal_merge", 1) > 1:
        found.append("families.temporal_merge")
    if any(has_track(run) for run in videos):
        found.append("families.audio_in_video")
    if family is HUNYUAN_VL:
        found.append("families.hunyuan_vl.four_rows")
    return tuple(found)

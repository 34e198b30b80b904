"""MiniCPM-V's expanded prompt: every crop of a picture has markers of its own, and all of them stand on one canvas."""

from __future__ import annotations

from ropecheck.spec.families.minicpm_v import MINICPM_V4_7
from ropecheck.spec.history import History, OutOfDomain, Run, text


def pattern(run: Run) -> tuple[str, ...]:
    """Per token of a picture, with its markers and newlines: "text", or the picture's kind."""
    (_, h, w), (rows, cols, slice_h, slice_w) = MINICPM_V4_7.grids(run)

    def crop(size: int) -> tuple[str, ...]:
        return ("text", *[run.kind] * size, "text")

    line = crop(slice_h * slice_w) * cols
    slices = (*line, *(("text", *line) * (rows - 1))) if rows else ()
    return crop(h * w) + slices


def canvases(sent: History, kinds: tuple[str, ...]) -> History:
    """The history of an expanded prompt that holds the pictures that were sent. Raises OutOfDomain for any other."""
    runs: list[Run] = []
    at = 0
    for run in sent:
        if run.is_text:
            continue
        wanted = pattern(run)
        start = next((place for place in range(at, len(kinds)) if kinds[place] != "text"), len(kinds)) - 1
        if start < at or kinds[start : start + len(wanted)] != wanted:
            raise OutOfDomain(f"from token {start} on there is no {run.kind} of {len(wanted)} tokens with its markers")
        if start > at:
            runs.append(text(start - at))
        runs.append(run)
        at = start + len(wanted)
    if any(kind != "text" for kind in kinds[at:]):
        raise OutOfDomain("more media than the client sent")
    return (*runs, text(len(kinds) - at)) if at < len(kinds) else tuple(runs)

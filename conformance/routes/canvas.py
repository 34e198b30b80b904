"""MiniCPM-V's expanded prompt: every crop of a picture has markers of its own, and all of them stand on one canvas."""

from __future__ import annotations

from ropecheck.conformance.routes.kinds import KINDS
from ropecheck.spec.families.minicpm_v import MINICPM_V4_7
from ropecheck.spec.history import History, Run, text


def pattern(run: Run) -> tuple[int, ...]:
    """A picture's tokens with its markers and newlines: 0 text, 1 image, 2 video."""
    (_, h, w), (rows, cols, slice_h, slice_w) = MINICPM_V4_7.grids(run)
    code = KINDS.index(run.kind)

    def crop(size: int) -> tuple[int, ...]:
        return (0, *[code] * size, 0)

    line = crop(slice_h * slice_w) * cols
    slices = (*line, *((0, *line) * (rows - 1))) if rows else ()
    return crop(h * w) + slices


def canvases(sent: History, kinds: tuple[int, ...]) -> tuple[History, str]:
    """The history of an expanded prompt that holds the pictures that were sent, and what is wrong with it."""
    runs: list[Run] = []
    at = 0
    for run in sent:
        if run.is_text:
            continue
        wanted = pattern(run)
        start = next((place for place in range(at, len(kinds)) if kinds[place]), len(kinds)) - 1
        if start < at or kinds[start : start + len(wanted)] != wanted:
            return (), f"from token {start} on there is no {run.kind} of {len(wanted)} tokens with its markers"
        if start > at:
            runs.append(text(start - at))
        runs.append(run)
        at = start + len(wanted)
    if any(kinds[at:]):
        return (), "more media than the client sent"
    return (*runs, text(len(kinds) - at)) if at < len(kinds) else tuple(runs), ""

"""A client's messages as the scheduler receives them, as events.

| spec field | adapter field | engine field |
| --- | --- | --- |
| runs of a prompt | events.Arrived.prompt | `input_ids`, the processor's `offsets` and `*_grid_thw` |
| session operation | events.Arrived.session, .parent, .. | `SessionParams` |

Nothing is faked, and nothing is derived: where media stand is what the processor says, how large they are its grids.
"""

from __future__ import annotations

from typing import Any

from ropecheck.adapters import events

UNLIMITED = 1 << 30


def arrive(message: Any) -> events.Arrived:
    """A request or a session's turn."""
    session = message.session_params
    limit = getattr(message.sampling_params, "max_new_tokens", None)
    return events.Arrived(
        req=message.rid,
        prompt=prompt(message),
        max_new_tokens=UNLIMITED if limit is None else int(limit),
        session=str(session.id or "") if session is not None else "",
        parent=str(session.rid or "") if session is not None else "",
        offset=session.offset if session is not None else None,
        replace=bool(session.replace) if session is not None else False,
        drop_previous_output=bool(session.drop_previous_output) if session is not None else False,
        beams=getattr(message.sampling_params, "beam_width", None) or 1,
    )


def prompt(message: Any) -> tuple[events.PromptRun, ...]:
    """Text and media in order; text is what no item covers."""
    spans = sorted(_spans(getattr(message.mm_inputs, "mm_items", None) or ()), key=lambda span: span[0])
    runs: list[events.PromptRun] = []
    at = 0
    for start, stop, run in spans:
        if start > at:
            runs.append(events.PromptRun(kind="text", tokens=start - at))
        runs.append(run)
        at = stop
    length = len(message.input_ids or ())
    if length > at:
        runs.append(events.PromptRun(kind="text", tokens=length - at))
    return tuple(runs)


def _spans(items: Any) -> list[tuple[int, int, events.PromptRun]]:
    """(first token, one past the last, run) of every medium."""
    found = []
    for item in items:
        kind = item.modality.name.lower()
        kind = "image" if "image" in kind else kind
        offsets = item.offsets or ()
        grids = _grids(item, kind)
        if len(grids) == 1 and grids[0] is not None and grids[0][0] == len(offsets):
            grids = [(1, *grids[0][1:])] * len(offsets)  # a video whose frames stand apart: one span each
        for (first, last), grid in zip(offsets, grids or [None] * len(offsets), strict=False):
            if grid is None:
                found.append((first, last + 1, events.PromptRun(kind=kind, tokens=last + 1 - first)))
            else:
                found.append((first, last + 1, events.PromptRun(kind=kind, grid=grid, seconds_per_grid=_seconds(item))))
    return found


def _grids(item: Any, kind: str) -> list[tuple[int, int, int] | None]:
    grid = getattr(item, f"{kind}_grid_thw", None)
    if grid is None:
        return []
    return [(int(t), int(h), int(w)) for t, h, w in grid.reshape(-1, 3).tolist()]


def _seconds(item: Any) -> float:
    seconds = getattr(item, "second_per_grid_ts", None)
    if seconds is None:
        return 1.0
    values = seconds.reshape(-1).tolist() if hasattr(seconds, "reshape") else list(seconds)
    return float(values[0]) if values else 1.0

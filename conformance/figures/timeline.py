"""A scenario's operations in time: a lane per request, a box per operation, forwards filled, the wrong one marked."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from markupsafe import Markup

from ropecheck.conformance.figures.draw import rendered

STEP, LANE, LABEL, TOP = 92, 26, 72, 20
"""Pixels: one operation's width, one request's height, the lane names' width, the numbers' height."""


class OperationLine(msgspec.Struct, frozen=True, kw_only=True):
    """One operation of a scenario, in words."""

    number: int
    """As reports count operations, from 0."""
    verb: str
    detail: str
    requests: tuple[int, ...]
    forward: bool
    """It runs a forward, so it has tables."""
    wrong: bool
    """The failure is seen here."""


class _Box(msgspec.Struct, frozen=True):
    x: int
    y: int
    text: str
    forward: bool
    wrong: bool
    hint: str


def timeline(moments: Sequence[OperationLine]) -> Markup:
    """The operations as a drawing and, below it, as a list that says the same in words."""
    lanes = sorted({req for moment in moments for req in moment.requests})
    place = {req: lane for lane, req in enumerate(lanes)}
    boxes = [
        _Box(
            LABEL + column * STEP,
            TOP + place[req] * LANE,
            moment.verb[:12],
            moment.forward,
            moment.wrong,
            f"operation {moment.number}: {moment.verb} {moment.detail}".rstrip(),
        )
        for column, moment in enumerate(moments)
        for req in moment.requests
    ]
    return rendered(
        "timeline.html.jinja",
        moments=moments,
        lanes=lanes,
        boxes=boxes,
        width=LABEL + len(moments) * STEP,
        height=TOP + len(lanes) * LANE,
        step=STEP,
        lane=LANE,
        label=LABEL,
        top=TOP,
    )

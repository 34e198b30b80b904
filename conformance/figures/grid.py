"""A media item's tokens where they lie in the picture: frames side by side, each token's column written into it."""

from __future__ import annotations

from collections.abc import Collection

import msgspec
from markupsafe import Markup

from ropecheck.conformance.figures.draw import rendered

CELL, GAP, FRAMES, SIDE = 46, 14, 4, 12
"""Pixels of a token and between frames; the most frames, and tokens on a side, that are drawn."""


class Grid(msgspec.Struct, frozen=True, kw_only=True):
    """One item. columns: per token of the item, in order, its column (t, h, w)."""

    name: str
    """ "image of request 0"."""
    first: int
    """Token index of the item's first token."""
    frames: int
    lines: int
    """Of tokens, in one frame."""
    columns: tuple[tuple[int, ...], ...]


class _Token(msgspec.Struct, frozen=True):
    x: int
    y: int
    index: int
    column: tuple[int, ...]
    wrong: bool


def grid(item: Grid, wrong: Collection[int] = ()) -> Markup:
    """The item drawn; `wrong` are token indices to mark. "" when its tokens do not fill the grid (a cut item) or are
    too many to read."""
    count, cells = len(item.columns), item.frames * item.lines
    if not cells or count % cells:
        return Markup("")
    across = count // cells
    if not across or item.frames > FRAMES or across > SIDE or item.lines > SIDE:
        return Markup("")
    tokens = []
    for number, column in enumerate(item.columns):
        frame, rest = divmod(number, item.lines * across)
        line, place = divmod(rest, across)
        x = frame * (across * CELL + GAP) + place * CELL
        tokens.append(_Token(x, line * CELL, item.first + number, column, item.first + number in wrong))
    return rendered(
        "grid.svg.jinja",
        item=item,
        tokens=tokens,
        cell=CELL,
        width=item.frames * (across * CELL + GAP) - GAP,
        height=item.lines * CELL,
        across=across,
    )

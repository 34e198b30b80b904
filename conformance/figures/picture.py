"""The one picture of the matter: a prompt with a photo in it, its tokens, and the position table under them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from markupsafe import Markup

from ropecheck.conformance.figures.draw import rendered

CELL, LABEL, TILE = 52, 78, 74
"""Pixels: a column of the table, the names of its rows, a token of the photo where it is drawn large."""

COLOURS = {
    "light": {
        "ink": "#1b1f24", "paper": "#ffffff", "line": "#8a929c", "sky": "#cfe3f7", "sun": "#f2b134", "hill": "#9cc59b",
        "near": "#5e9a63", "media": "#d9ead3", "after": "#dbe7fb", "t": "#8f4a00", "h": "#00622f", "w": "#1c4fb8",
    },
    "dark": {
        "ink": "#e6e9ec", "paper": "#14181c", "line": "#7b8794", "sky": "#20405f", "sun": "#c98a15", "hill": "#2f5f3c",
        "near": "#1f4a2b", "media": "#1f4a2b", "after": "#1d3763", "t": "#ffb366", "h": "#6bd69a", "w": "#8fb8ff",
    },
}  # fmt: skip
"""Every colour of the picture, for paper of both kinds: an image cannot ask its page."""


class Column(msgspec.Struct, frozen=True):
    """One token. kind: "text", "media" or "after" (generated)."""

    index: int
    word: str
    kind: str
    column: tuple[int, ...]


def picture(columns: Sequence[Column], *, lines: int, delta: int, scheme: str) -> Markup:
    """A whole SVG file. `lines`: of tokens in the photo, whose tokens are the "media" ones in reading order."""
    media = [one for one in columns if one.kind == "media"]
    across = len(media) // lines
    return rendered(
        "picture.svg.jinja",
        columns=columns,
        media=media,
        across=across,
        lines=lines,
        delta=delta,
        colour=COLOURS[scheme],
        cell=CELL,
        label=LABEL,
        tile=TILE,
        width=LABEL + len(columns) * CELL + 16,
        left=LABEL + (len(columns) * CELL - across * TILE) // 2,
    )

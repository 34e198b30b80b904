"""A request's history as a strip of tokens, one lane per batch row: what each token is, and which of them a
forward reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec
from markupsafe import Markup

from ropecheck.conformance.figures.draw import rendered

CELL, LANE, LETTER, TOP = 30, 62, 7, 4
"""Pixels: a token's side, a lane's height, the width of a letter of the lanes' names, the space above."""
MOST = 28
"""Tokens drawn in a lane; of a longer history the part around those that are read."""

KINDS = {
    "text": "text of the prompt",
    "media": "a media item's placeholder token",
    "output": "generated, its cache entry is there",
    "newest": "the newest token: generated, not read yet",
    "ahead": "not there yet: drafted, or still to come",
}
"""What a token can be, and its words in the legend."""


class Lane(msgspec.Struct, frozen=True, kw_only=True):
    """One batch row. kinds: per token index, a key of KINDS. reads: the token indices that the row reads, in order."""

    name: str
    kinds: tuple[str, ...]
    reads: tuple[int, ...]


class _Token(msgspec.Struct, frozen=True):
    x: int
    index: int
    kind: str
    times: int
    """How often the row reads it."""


class _Drawn(msgspec.Struct, frozen=True):
    name: str
    y: int
    tokens: tuple[_Token, ...]
    cut: int
    """Tokens left out before the first one that is drawn."""
    words: str


def strip(lanes: Sequence[Lane]) -> Markup:
    """The lanes one under the other, with a legend of the kinds that occur; the same in words for who cannot see it."""
    drawn = []
    label = max((len(lane.name) for lane in lanes), default=0) * LETTER + 3 * LETTER
    for number, lane in enumerate(lanes):
        times = Counter(lane.reads)
        last = max([len(lane.kinds) - 1, *lane.reads])
        start = max(0, min(last + 1 - MOST, min(lane.reads, default=0) - 4))
        tokens = tuple(
            _Token(
                label + (index - start) * CELL,
                index,
                lane.kinds[index] if index < len(lane.kinds) else "ahead",
                times[index],
            )
            for index in range(start, min(last + 1, start + MOST))
        )
        words = f"{lane.name}: {len(lane.kinds)} tokens; reads {', '.join(map(str, lane.reads)) or 'none'}"
        drawn.append(_Drawn(lane.name, TOP + number * LANE, tokens, start, words))
    met = {token.kind for lane in drawn for token in lane.tokens}
    width = label + max((len(lane.tokens) for lane in drawn), default=0) * CELL
    return rendered(
        "history.html.jinja",
        lanes=drawn,
        kinds=[(kind, says) for kind, says in KINDS.items() if kind in met],
        cell=CELL,
        width=width,
        height=TOP + len(drawn) * LANE,
    )

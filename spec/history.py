"""Tokens, runs of media, and the one function that explains every forward mode.

A request's history is a sequence of runs: text, or the placeholder tokens of one media item. Its *ideal position
function* gives every token index a column (t, h, w). Worked example (Qwen2-VL, an image of grid 1 x 4 x 6 before
the spatial merge of 2, so 2 x 3 tokens, between two text tokens and one):

    index    0  1  2  3  4  5  6  7  8      9 (generated)
    token    T  T  I  I  I  I  I  I  T      T
    t        0  1  2  2  2  2  2  2  5      6
    h        0  1  2  2  2  3  3  3  5      6
    w        0  1  2  3  4  2  3  4  5      6

The prompt table is columns 0..8, its width P is 9, and delta = max(table) + 1 - P = 6 - 9 = -3.

See: M-RoPE, arXiv 2409.12191, section 2.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NewType, Protocol, cast

TokenIndex = NewType("TokenIndex", int)
"""Place of a token in its request's history, from 0."""

Delta = NewType("Delta", int)
"""What text after all media adds to its index to get its position."""

Column = tuple[int, ...]
"""One position per axis: (t, h, w), or four of them in families with a fourth row."""


class OutOfDomain(ValueError):
    """The question is not legal: no public request leads to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Consecutive tokens of one kind: a stretch of text, or all placeholder tokens of one media item."""

    kind: str
    """"text", "image", "video" or "audio"."""
    tokens: int = 0
    """Text and audio: how many tokens. Image and video: 0, the family counts them from the grid."""
    grid: tuple[int, int, int] | None = None
    """Image and video: (t, h, w) patches before the family's spatial merge."""
    seconds_per_grid: float = 1.0
    """Video: seconds between two temporal grid steps; read by families with absolute time."""
    kept: int | None = None
    """Only the first `kept` tokens of the run are left (a session offset cut inside it); None: all."""

    @property
    def is_text(self) -> bool:
        return self.kind == "text"


def text(tokens: int) -> Run:
    """A run of text tokens."""
    return Run(kind="text", tokens=tokens)


def image(t: int, h: int, w: int) -> Run:
    """An image of grid t x h x w before the merge."""
    return Run(kind="image", grid=(t, h, w))


def video(t: int, h: int, w: int, seconds_per_grid: float = 1.0) -> Run:
    """A video of grid t x h x w before the merge."""
    return Run(kind="video", grid=(t, h, w), seconds_per_grid=seconds_per_grid)


History = tuple[Run, ...]


class Family(Protocol):
    """A model family's rule for its media runs. Everything else is the same in all families."""

    @property
    def name(self) -> str: ...

    @property
    def axes(self) -> int:
        """Rows of the table."""

    def token_count(self, run: Run) -> int:
        """Placeholder tokens of a whole media run. Raises OutOfDomain for a grid that the family refuses."""

    def media_columns(self, run: Run, start: int) -> tuple[Column, ...]:
        """Columns of a whole media run whose first free position is `start`."""


class NumberedFamily(Family, Protocol):
    """A family whose columns also hold the number of the media item (HunYuan-VL's fourth row)."""

    def numbered_columns(self, run: Run, start: int, ordinal: int) -> tuple[Column, ...]:
        """`media_columns` of the history's media run number `ordinal`, from 0."""


def numbered_family(family: Family) -> NumberedFamily | None:
    """The family itself when its columns hold the item's number, else None."""
    return cast(NumberedFamily, family) if hasattr(family, "numbered_columns") else None


def run_length(family: Family, run: Run) -> int:
    """Tokens that a run puts into the history."""
    if run.is_text:
        return run.tokens
    if run.kept is not None:
        return run.kept
    return family.token_count(run)


def length(family: Family, history: History) -> int:
    """Tokens in a history."""
    total = 0
    for run in history:
        total += run_length(family, run)
    return total


def next_position(columns: Sequence[Column]) -> int:
    """The first free position after `columns`: the largest over all rows, plus one; 0 for none."""
    if not columns:
        return 0
    return max(map(max, columns)) + 1


def run_columns(family: Family, run: Run, start: int, ordinal: int = 0) -> tuple[Column, ...]:
    """Columns of one run that starts at the free position `start`; `ordinal` media runs stand before it."""
    if run.is_text:
        return tuple((start + i,) * family.axes for i in range(run.tokens))
    numbered = numbered_family(family)
    if numbered is not None:
        columns = numbered.numbered_columns(run, start, ordinal)
    else:
        columns = family.media_columns(run, start)
    return columns if run.kept is None else columns[: run.kept]


def prompt_table(family: Family, history: History) -> tuple[Column, ...]:
    """The columns of a whole history, in token order: each run starts at the first position free so far."""
    columns: list[Column] = []
    start = 0
    media = 0
    for run in history:
        placed = run_columns(family, run, start, media)
        columns.extend(placed)
        start = max(start, next_position(placed))
        if not run.is_text:
            media += 1
    return tuple(columns)


def delta_of(table: Sequence[Column]) -> Delta:
    """max(table) + 1 - P: what every later text token adds to its index. 0 for a text-only history."""
    return Delta(next_position(table) - len(table))


def ideal_column(table: Sequence[Column], index: TokenIndex) -> Column:
    """The column of token `index`: tabulated inside the history, index + delta after it.

    The table must not be empty past its end, so that the number of axes is known.
    """
    if index < 0:
        raise OutOfDomain(f"token index {index} is negative")
    if index < len(table):
        return table[index]
    position = index + delta_of(table)
    return (position,) * len(table[0])


def cut(family: Family, history: History, tokens: int) -> History:
    """The first `tokens` tokens of a history. Columns of the kept tokens do not change: they never depend on
    what follows. Raises OutOfDomain when the history is shorter."""
    kept: list[Run] = []
    left = tokens
    for run in history:
        if left <= 0:
            break
        size = run_length(family, run)
        if size <= left:
            kept.append(run)
            left -= size
        elif run.is_text:
            kept.append(text(left))
            left = 0
        else:
            kept.append(replace(run, kept=left))
            left = 0
    if left > 0:
        raise OutOfDomain(f"cannot keep {tokens} tokens of a history of {tokens - left}")
    return tuple(kept)

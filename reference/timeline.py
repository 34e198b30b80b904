"""A request's columns at speed: its prompt table as an array, and text after it by delta."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from ropecheck.spec.families import family as find_family
from ropecheck.spec.history import Delta, History, Run, delta_of, length, prompt_table
from ropecheck.spec.views import Place

LOOKAHEAD = 64
"""Text columns that a timeline keeps ready behind its table."""

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Timeline:
    """Columns of one history.

    table: int64 [axes, P], read-only. delta: max(table) + 1 - P. tabulated: the first columns, that came with a prompt
    that brought media (later ones are text placed by delta). has_media: whether any run is media.
    """

    table: IntArray
    delta: int
    tabulated: int
    has_media: bool
    ahead: IntArray = field(init=False)
    """The table with LOOKAHEAD text columns behind it, so that most reads are one indexing step."""

    def __post_init__(self) -> None:
        width = self.table.shape[1]
        tail = np.arange(width, width + LOOKAHEAD, dtype=np.int64) + self.delta
        ahead = np.concatenate([self.table, np.broadcast_to(tail, (self.table.shape[0], LOOKAHEAD))], axis=1)
        object.__setattr__(self, "ahead", ahead)

    @cached_property
    def place(self) -> Place:
        """The same for the specification's rules, as lists."""
        rows = tuple(self.table.tolist())
        return Place(rows=rows, tabulated=self.tabulated, delta=Delta(self.delta), has_media=self.has_media)

    @property
    def width(self) -> int:
        """P: tokens of the history."""
        return int(self.table.shape[1])

    def take(self, indices: IntArray) -> IntArray:
        """Columns of token indices. int64 [n] -> int64 [axes, n]."""
        known = self.ahead.shape[1]
        if not indices.size or (int(indices[-1]) < known and int(indices.max()) < known):
            return self.ahead[:, indices]
        shifted = np.broadcast_to(indices + self.delta, (self.table.shape[0], indices.size))
        return np.where(indices < known, self.ahead[:, np.minimum(indices, known - 1)], shifted)


@lru_cache(maxsize=4096)
def timeline(family: str, history: History, tabulated_runs: int, ahead: History = ()) -> Timeline:
    """The timeline of a history; its first `tabulated_runs` runs came with a prompt that brought media.

    What will be written is in the table where its runs are known ahead, and nothing is placed by delta: it is 0.
    """
    rule = find_family(family)
    if ahead:
        history, tabulated_runs = (*history, *ahead), len(history) + len(ahead)
    columns = prompt_table(rule, history)
    table = np.array(columns, dtype=np.int64).reshape(len(columns), rule.axes).T.copy()
    table.setflags(write=False)
    return Timeline(
        table=table,
        delta=0 if ahead else delta_of(columns),
        tabulated=length(rule, history[:tabulated_runs]),
        has_media=any(not run.is_text for run in history),
    )


@lru_cache(maxsize=4096)
def run_lengths(family: str, history: History) -> tuple[int, ...]:
    """Tokens of each run of a history."""
    rule = find_family(family)
    return tuple(length(rule, (run,)) for run in history)


@lru_cache(maxsize=4096)
def laid(family: str, history: History) -> tuple[tuple[Run, int, int], ...]:
    """Every run of a history with its half-open range of tokens."""
    sizes = run_lengths(family, history)
    return tuple((run, stop - size, stop) for run, size, stop in zip(history, sizes, accumulate(sizes), strict=True))


def token_count(family: str, history: History) -> int:
    """Tokens of a history."""
    return sum(run_lengths(family, history))

"""SPLIT_PREFILL: a prefill whose layers run in several goes; its windows are those of extend."""

from __future__ import annotations

from collections.abc import Sequence

from ropecheck.spec.history import Column, TokenIndex
from ropecheck.spec.modes import extend
from ropecheck.spec.modes.cells import Cell, Place
from ropecheck.spec.rules import MROPE, rule


@rule("split_prefill.width", source=MROPE)
def width(extend_lens: Sequence[int]) -> int:
    """A split prefill must have exactly sum(extend_len) columns in both tables, as extend."""
    return extend.width(extend_lens)


@rule("split_prefill.indices", source=MROPE)
def indices(prefix_len: int, extend_len: int) -> tuple[TokenIndex, ...]:
    """A split prefill must read the same indices as an extend of the same window."""
    return extend.indices(prefix_len, extend_len)


@rule("split_prefill.inside_table", source=MROPE)
def inside_table(place: Place, index: TokenIndex) -> Column:
    """A prompt token in a split prefill must sit at its own column of the whole prompt's table."""
    return extend.inside_table(place, index)


@rule("split_prefill.past_table", source=MROPE)
def past_table(place: Place, index: TokenIndex) -> Column:
    """A token past the prompt table in a split prefill must sit at index + delta."""
    return extend.past_table(place, index)


@rule("split_prefill.text_only", source=MROPE)
def text_only(index: TokenIndex, axes: int) -> Column:
    """A token of a request without media in a split prefill must have three equal rows, equal to its index."""
    return extend.text_only(index, axes)


def forward(windows: Sequence[extend.Window]) -> tuple[Cell, ...]:
    """The cells of a split prefill, in batch order."""
    out: list[Cell] = []
    for request, window in enumerate(windows):
        out.extend(extend.cells("split_prefill", request, window))
    return tuple(out)

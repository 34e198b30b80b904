"""EXTEND: a whole prompt, one chunk of a chunked prefill, or the rest after a prefix-cache hit.

    request   prefix_len  extend_len   indices read
    whole     0           P            0 .. P-1
    chunk     4           3            4, 5, 6
    hit       6           P-6          6 .. P-1

SPLIT_PREFILL is the same. A window passes the end of the prompt table only in a session (the history holds replies and
text turns) or after a retraction (the outputs so far are prefilled again).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ropecheck.spec.history import Column, OutOfDomain, TokenIndex, ideal_column
from ropecheck.spec.modes.cells import Cell, Place, axes_of, shifted, text_column
from ropecheck.spec.rules import MROPE, rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One request's part of an extend batch."""

    place: Place
    prefix_len: int
    """Tokens that the cache already holds."""
    extend_len: int
    """Tokens computed by this forward; at least 1."""


@rule("extend.width", source=MROPE, bugs=("sglang #34152", "sglang #20916", "LlamaFactory #10782"))
def width(extend_lens: Sequence[int]) -> int:
    """An extend batch must have exactly sum(extend_len) columns in both tables.

    Also where a window passes the end of the prompt table: it is completed, never cut short.
    """
    return sum(extend_lens)


@rule("extend.indices", source="definition: a token's index is its place in the sequence", bugs=("sglang #5349",))
def indices(prefix_len: int, extend_len: int) -> tuple[TokenIndex, ...]:
    """An extend must read the indices prefix_len .. prefix_len + extend_len - 1, in order, request by request.

    The 1-D table holds the index itself, without delta.
    """
    if prefix_len < 0 or extend_len < 1:
        raise OutOfDomain(f"window of {extend_len} tokens after {prefix_len}")
    return tuple(TokenIndex(prefix_len + i) for i in range(extend_len))


@rule("extend.inside_table", source=MROPE, bugs=("sglang #5349", "sglang #1780", "mistral.rs #2301", "vllm #53456"))
def inside_table(place: Place, index: TokenIndex) -> Column:
    """A prompt token of a request with media must sit at its own column of the whole prompt's table.

    Cuts and prefix hits before, inside and after a media run change which columns are read, never their values.
    """
    return place.columns[index]


@rule("extend.past_table", source=MROPE, bugs=("sglang #39144", "sglang #39145", "mlx-node #33"))
def past_table(place: Place, index: TokenIndex) -> Column:
    """A token past the prompt table (a reply, a later text turn, an output prefilled again) must sit at index + delta.

    On all three rows, also when one window holds both tabulated and later tokens.
    """
    return shifted(index, place.delta, axes_of(place))


@rule("extend.text_only", source=MROPE, bugs=("vllm #18456",))
def text_only(index: TokenIndex, axes: int) -> Column:
    """A token of a request without media must have three equal rows, equal to its index.

    Whatever the other requests of the batch bring.
    """
    return text_column(index, axes)


def cells(mode: str, request: int, window: Window) -> tuple[Cell, ...]:
    """The cells of one request's window."""
    place = window.place
    out = []
    for index in indices(window.prefix_len, window.extend_len):
        if not place.has_media:
            column, name = text_only(index, axes_of(place)), "text_only"
        elif index < place.tabulated:
            column, name = inside_table(place, index), "inside_table"
        else:
            column, name = past_table(place, index), "past_table"
        if column != ideal_column(place.columns, index):
            raise AssertionError("extend rules disagree with the ideal position function")
        out.append(
            Cell(
                request=request, index=index, column=column, index_rule=f"{mode}.indices", column_rule=f"{mode}.{name}"
            )
        )
    return tuple(out)


def forward(windows: Sequence[Window]) -> tuple[Cell, ...]:
    """The cells of an extend batch, in batch order."""
    out: list[Cell] = []
    for request, window in enumerate(windows):
        out.extend(cells("extend", request, window))
    return tuple(out)

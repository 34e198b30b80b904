"""MIXED: prefill windows, then requests that decode, in one extend-shaped forward.

part      prefix_len   extend_len   indices
window    4            3            4, 5, 6
decoding  seq_len - 1  1            seq_len - 1
"""

from __future__ import annotations

from collections.abc import Sequence

from ropecheck.spec.history import Column, TokenIndex
from ropecheck.spec.modes import decode, extend
from ropecheck.spec.modes.cells import Cell, Place
from ropecheck.spec.rules import MROPE, rule


@rule("mixed.width", source=MROPE, bugs=("sglang #28464",))
def width(extend_lens: Sequence[int]) -> int:
    """A mixed batch must have the windows' columns plus one per decoding request, in both tables."""
    return sum(extend_lens)


@rule("mixed.indices", source="definition: a token's index is its place in the sequence")
def indices(seq_len: int) -> tuple[TokenIndex, ...]:
    """A decoding request in a mixed batch must be an extend of one token after seq_len - 1; windows as in extend."""
    return extend.indices(seq_len - 1, 1)


@rule("mixed.inside_table", source=MROPE)
def inside_table(place: Place, index: TokenIndex) -> Column:
    """A prompt token in a mixed batch must sit at its own column of the whole prompt's table, as in extend."""
    return extend.inside_table(place, index)


@rule("mixed.past_table", source=MROPE)
def past_table(place: Place, index: TokenIndex) -> Column:
    """A windowed token past the prompt table in a mixed batch must sit at index + delta, as in extend."""
    return extend.past_table(place, index)


@rule("mixed.decode_delta", source=MROPE, bugs=("mistral.rs #2301",))
def decode_delta(place: Place, index: TokenIndex) -> Column:
    """A decoding request with media in a mixed batch must get its own delta, exactly as in a decode batch.

    Its one-token window lies past the prompt table, which is not the end of the windows before it.
    """
    return decode.media_column(place, index)


@rule("mixed.text_only", source=MROPE)
def text_only(index: TokenIndex, axes: int) -> Column:
    """A token of a request without media in a mixed batch must have three equal rows, equal to its index."""
    return extend.text_only(index, axes)


def forward(windows: Sequence[extend.Window], places: Sequence[Place], seq_lens: Sequence[int]) -> tuple[Cell, ...]:
    """The cells of a mixed batch: windows first, then one cell per decoding request."""
    out: list[Cell] = []
    for request, window in enumerate(windows):
        out.extend(extend.cells("mixed", request, window))
    for request, (place, seq_len) in enumerate(zip(places, seq_lens, strict=True), start=len(windows)):
        (index,) = indices(seq_len)
        out.append(decode.cell("mixed", request, place, index, "indices", "decode_delta"))
    return tuple(out)

"""DRAFT_EXTEND_V2: after a verify the draft model reads the target's tokens, a fixed number per request.

seq_len 9, num_draft_tokens 3:  9 10 11, whatever was accepted
"""

from __future__ import annotations

from collections.abc import Sequence

from ropecheck.spec.history import Column, TokenIndex
from ropecheck.spec.modes import decode
from ropecheck.spec.modes.cells import Cell, Place
from ropecheck.spec.rules import MROPE, SPECULATIVE, rule


@rule(
    "draft_extend_v2.width",
    source=SPECULATIVE,
    bugs=("sglang #28464", "sglang #34152", "sglang #20916", "sglang #19730"),
)
def width(batch_size: int, num_draft_tokens: int) -> int:
    """A draft extend must have batch x num_draft_tokens columns, with media or without.

    Its window lies past the prompt table, where a slice of that table is empty or short.
    """
    return batch_size * num_draft_tokens


@rule("draft_extend_v2.indices", source=SPECULATIVE, bugs=("sglang #19505",))
def indices(seq_len: int, num_draft_tokens: int) -> tuple[TokenIndex, ...]:
    """A draft extend must read seq_len .. seq_len + num_draft_tokens - 1 per request, whatever was accepted.

    seq_len counts committed tokens before the verify's tokens are.
    """
    return tuple(TokenIndex(seq_len + i) for i in range(num_draft_tokens))


@rule("draft_extend_v2.delta_applies_once", source=MROPE, bugs=("sglang #28464", "sglang #34152"))
def media_column(place: Place, index: TokenIndex) -> Column:
    """A draft-extended token of a request with media must sit at its index + delta, on all three rows."""
    return decode.media_column(place, index)


@rule("draft_extend_v2.text_only", source=MROPE, bugs=("sglang #19730",))
def text_only(index: TokenIndex, axes: int) -> Column:
    """A draft-extended token of a request without media must have three equal rows, equal to its index."""
    return decode.text_only(index, axes)


def forward(places: Sequence[Place], seq_lens: Sequence[int], num_draft_tokens: int) -> tuple[Cell, ...]:
    """The cells of a draft extend. seq_lens: committed tokens."""
    out: list[Cell] = []
    for request, (place, seq_len) in enumerate(zip(places, seq_lens, strict=True)):
        for index in indices(seq_len, num_draft_tokens):
            out.append(decode.cell("draft_extend_v2", request, place, index, "indices", "delta_applies_once"))
    return tuple(out)

"""DECODE: every request feeds its newest token.

seq_len (counts the new token)   delta   index   column
9                                -3      8       (5, 5, 5)
5                                 0      4       (4, 4, 4)
"""

from __future__ import annotations

from collections.abc import Sequence

from ropecheck.spec.history import Column, OutOfDomain, TokenIndex
from ropecheck.spec.modes.cells import Cell, Place, axes_of, shifted, text_column
from ropecheck.spec.rules import MROPE, rule


@rule("decode.width", source=MROPE, bugs=("xllm #885", "LightLLM #1377"))
def width(batch_size: int) -> int:
    """A decode batch must have exactly one column per request in both tables."""
    return batch_size


@rule(
    "decode.index",
    source="definition: a token's index is its place in the sequence",
    bugs=("mlx-vlm #1993", "ik_llama.cpp #988"),
)
def index_of(seq_len: int) -> TokenIndex:
    """A decode must read one index per request, the last: seq_len - 1, where seq_len counts the new token."""
    if seq_len < 1:
        raise OutOfDomain(f"decode of a sequence of {seq_len} tokens")
    return TokenIndex(seq_len - 1)


@rule(
    "decode.delta_applies_once",
    source=MROPE,
    bugs=("sglang #8219", "sglang #33716", "vllm #10350", "TensorRT-LLM #15661", "mlx-vlm #1527", "mlx-vlm #1143"),
)
def media_column(place: Place, index: TokenIndex) -> Column:
    """A decoded token of a request with media must sit at its index plus that request's own delta, on all three rows.

    Chunking, prefix hits, sessions and retraction must not change the delta.
    """
    return shifted(index, place.delta, axes_of(place))


@rule("decode.text_only", source=MROPE, bugs=("vllm #9546",))
def text_only(index: TokenIndex, axes: int) -> Column:
    """A decoded token of a request without media must have three equal rows, equal to its index.

    Also beside requests with media: no delta of a neighbour.
    """
    return text_column(index, axes)


def cell(mode: str, request: int, place: Place, index: TokenIndex, index_rule: str, media_rule: str) -> Cell:
    """The cell of one text token at `index` that a mode places by delta."""
    if place.has_media:
        column, name = media_column(place, index), media_rule
    else:
        column, name = text_only(index, axes_of(place)), "text_only"
    return Cell(
        request=request, index=index, column=column, index_rule=f"{mode}.{index_rule}", column_rule=f"{mode}.{name}"
    )


def forward(places: Sequence[Place], seq_lens: Sequence[int]) -> tuple[Cell, ...]:
    """The cells of a decode batch, in batch order. seq_lens[i] counts the token that request i feeds."""
    out = []
    for request, (place, seq_len) in enumerate(zip(places, seq_lens, strict=True)):
        out.append(cell("decode", request, place, index_of(seq_len), "index", "delta_applies_once"))
    return tuple(out)

"""Draft decode: the draft model's own decode loop, num_steps - 1 forwards of topk branches per request.

The draft's input is shifted by one: the token at index i + 1 is fed at column i. So forward s (from 0) reads index
seq_len + s for every branch, where seq_len counts committed tokens; positions advance in place between forwards.

    seq_len 9, topk 2   forward 0: 9 9   forward 1: 10 10   forward 2: 11 11
"""

from __future__ import annotations

from collections.abc import Sequence

from ropecheck.spec.history import Column, TokenIndex
from ropecheck.spec.modes import decode
from ropecheck.spec.modes.cells import Cell, Place
from ropecheck.spec.rules import MROPE, SPECULATIVE, rule


@rule("draft_decode.forwards", source=SPECULATIVE)
def forwards(num_steps: int) -> int:
    """A draft of num_steps tokens must run num_steps - 1 decode forwards: the first token is already known."""
    return num_steps - 1


@rule("draft_decode.width", source=SPECULATIVE, bugs=("vllm #52973",))
def width(batch_size: int, topk: int) -> int:
    """A draft forward must have batch x topk columns, request-major."""
    return batch_size * topk


@rule("draft_decode.indices", source=SPECULATIVE, bugs=("vllm #54498", "TensorRT-LLM #16024"))
def index_of(seq_len: int, step: int) -> TokenIndex:
    """Draft forward s must be given the index seq_len + s in each branch; every forward advances by exactly one."""
    return TokenIndex(seq_len + step)


@rule("draft_decode.delta_each_step", source=MROPE, bugs=("vllm #54498", "vllm #54555"))
def media_column(place: Place, index: TokenIndex) -> Column:
    """A drafted token of a request with media must sit at index + delta in every step, on all three rows.

    The three rows advance together with the 1-D table.
    """
    return decode.media_column(place, index)


@rule("draft_decode.text_only", source=MROPE)
def text_only(index: TokenIndex, axes: int) -> Column:
    """A drafted token of a request without media must have three equal rows, equal to its index, in every step."""
    return decode.text_only(index, axes)


def forward(places: Sequence[Place], seq_lens: Sequence[int], topk: int, step: int) -> tuple[Cell, ...]:
    """The cells of draft forward `step` (from 0). seq_lens: committed tokens."""
    out: list[Cell] = []
    for request, (place, seq_len) in enumerate(zip(places, seq_lens, strict=True)):
        index = index_of(seq_len, step)
        for _branch in range(topk):
            out.append(decode.cell("draft_decode", request, place, index, "indices", "delta_each_step"))
    return tuple(out)

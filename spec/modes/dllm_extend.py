"""DLLM_EXTEND: a diffusion model denoises one block of tokens per request; text only, 1-D only."""

from __future__ import annotations

from collections.abc import Sequence

from ropecheck.spec.history import TokenIndex
from ropecheck.spec.modes.cells import Cell, text_column
from ropecheck.spec.rules import rule

BLOCKS = "definition: a token's index is its place in the sequence; a block is rewritten in place"
"""Where the rules come from."""


@rule("dllm_extend.width", source=BLOCKS)
def width(batch_size: int, block_size: int) -> int:
    """A denoise pass must have batch x block_size columns in the 1-D table."""
    return batch_size * block_size


@rule("dllm_extend.indices", source=BLOCKS)
def indices(block_offset: int, block_size: int) -> tuple[TokenIndex, ...]:
    """A denoise pass must read the indices block_offset .. block_offset + block_size - 1 per request."""
    return tuple(TokenIndex(block_offset + i) for i in range(block_size))


def forward(block_offsets: Sequence[int], block_size: int) -> tuple[Cell, ...]:
    """The cells of a denoise pass; only their index is specified."""
    out: list[Cell] = []
    for request, offset in enumerate(block_offsets):
        for index in indices(offset, block_size):
            out.append(
                Cell(
                    request=request,
                    index=index,
                    column=text_column(index),
                    index_rule="dllm_extend.indices",
                    column_rule="dllm_extend.indices",
                )
            )
    return tuple(out)

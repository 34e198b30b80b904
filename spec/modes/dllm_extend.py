"""DLLM_EXTEND: a diffusion language model denoises one block of tokens per request. Text only, 1-D only.

block_offset 8, block_size 4:   8 9 10 11
"""

from __future__ import annotations

from typing import Annotated

from ropecheck.spec.modes.declaration import TEXT, Tokens, Whole, mode, span


@mode(
    "dllm_extend",
    reads=TEXT,
    three_rows=False,
    index_dtype="int32",
    source="public interface: a diffusion block is read whole, at its own offset",
)
def dllm_extend(
    block_offset: Annotated[int, Whole(0, 64, each=True, multiple_of="block_size")],
    block_size: Annotated[int, Whole(1, 8)],
) -> Tokens:
    """A denoise pass reads the block_size tokens of each request's block, which starts at block_offset.

    >>> list(dllm_extend.tokens(block_offset=8, block_size=4))
    [8, 9, 10, 11]
    """
    return span(block_offset, block_size)

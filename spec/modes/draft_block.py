"""Block drafts (DFLASH, DSPARK): the draft fills a whole block in one forward, the newest token and masks behind it.

Such a draft rotates by one row: it is a text model that reads the target's features of everything before.

    seq_len 9, block_size 4:   9 10 11 12
"""

from __future__ import annotations

from typing import Annotated

from ropecheck.spec.modes.declaration import RUNNING, CommittedLen, Tokens, Whole, mode, span


@mode(
    "draft_block",
    reads=RUNNING,
    draft=True,
    three_rows=False,
    served=True,
    source="definition: a mask stands where the token will that is drafted in its place (DFlash, arXiv 2602.06036, 3)",
)
def draft_block(seq_len: CommittedLen, block_size: Annotated[int, Whole(1, 16)]) -> Tokens:
    """A block draft reads block_size tokens per request from seq_len on: the newest one, then masks.

    >>> list(draft_block.tokens(seq_len=9, block_size=4))
    [9, 10, 11, 12]
    """
    return span(seq_len, block_size)

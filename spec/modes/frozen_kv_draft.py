"""Frozen-KV MTP: the draft reads the target's cache and writes none, so every step stands at the last written slot.

seq_len 9, topk 2:   8 8, in every step of the draft
"""

from __future__ import annotations

from typing import Annotated

from ropecheck.spec.modes.declaration import RUNNING, CommittedLen, Tokens, Whole, mode, repeated


@mode(
    "frozen_kv_draft",
    reads=RUNNING,
    draft=True,
    source="definition: a draft that writes no cache stands at the last token whose cache entry exists",
)
def frozen_kv_draft(seq_len: CommittedLen, topk: Annotated[int, Whole(1, 4)]) -> Tokens:
    """A frozen-KV draft reads the last committed token of each request, once for each of the topk branches.

    >>> list(frozen_kv_draft.tokens(seq_len=9, topk=2))
    [8, 8]
    """
    return repeated(seq_len - 1, topk)

"""Multi-layer EAGLE's widened draft extend: the window of a draft extend, and some committed tokens to its left.

seq_len 9, num_draft_tokens 3, num_front_tokens 2:   7 8 9 10 11
"""

from __future__ import annotations

from typing import Annotated

from ropecheck.spec.modes.declaration import RUNNING, CommittedLen, Tokens, Whole, mode, span
from ropecheck.spec.rules import SPECULATIVE


@mode("widened_draft_extend", reads=RUNNING, draft=True, behind_verify=True, by_hand=False, source=SPECULATIVE)
def widened_draft_extend(
    seq_len: CommittedLen, num_draft_tokens: Annotated[int, Whole(1, 8)], num_front_tokens: Annotated[int, Whole(1, 2)]
) -> Tokens:
    """A widened draft extend reads num_front_tokens committed tokens again, then what a draft extend reads.

    >>> list(widened_draft_extend.tokens(seq_len=9, num_draft_tokens=3, num_front_tokens=2))
    [7, 8, 9, 10, 11]
    """
    return span(seq_len - num_front_tokens, num_front_tokens + num_draft_tokens)

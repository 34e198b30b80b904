"""Draft decode: the draft model runs num_steps - 1 forwards of topk branches each (EAGLE, EAGLE3, NEXTN).

The draft's input is shifted: token i + 1 sits at column i, so forward 0 reads the first position after the committed
tokens.

    seq_len 9, topk 2, num_steps 3:   step 0: 9 9   step 1: 10 10
"""

from __future__ import annotations

from typing import Annotated

from ropecheck.spec.modes.declaration import RUNNING, CommittedLen, Step, Tokens, Whole, mode, repeated
from ropecheck.spec.rules import SPECULATIVE


def forwards(num_steps: int) -> int:
    """Forwards of a draft of num_steps steps: the first step's tokens come from the draft extend before it."""
    return num_steps - 1


@mode(
    "draft_decode",
    reads=RUNNING,
    prepared=True,
    given_indices=True,
    draft=True,
    forwards=forwards,
    buffers=("graph", "frozen_kv"),
    copies=(0, 1),
    carries={"num_steps": Whole(2, 6)},
    source=SPECULATIVE,
    bugs={"table.past_table": ("vllm #54498",), "cost.text_only": ("sglang #20864",)},
)
def draft_decode(seq_len: CommittedLen, topk: Annotated[int, Whole(1, 4)], step: Step) -> Tokens:
    """Draft forward `step` reads the token at seq_len + step once for each of the topk branches, request by request.

    >>> list(draft_decode.tokens(seq_len=9, topk=2, step=1))
    [10, 10]
    """
    return repeated(seq_len + step, topk)

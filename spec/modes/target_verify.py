"""TARGET_VERIFY: the target model scores drafted tokens, in a chain or a tree (EAGLE, NGRAM, DFLASH, DSPARK).

Node 0 is the bonus token, which stands right after the committed ones; its children follow it.

    seq_len 9, chain of 4                        9 10 11 12
    seq_len 9, two rivals under the root, one    9 10 10 11
    of them with a child
"""

from __future__ import annotations

from typing import Annotated

from ropecheck.spec.modes.declaration import RUNNING, CommittedLen, Parents, Tokens, Tree, Whole, at, depths, mode
from ropecheck.spec.rules import SPECULATIVE


@mode(
    "target_verify",
    reads=RUNNING,
    prepared=True,
    given_indices=True,
    buffers=("graph", "dp"),
    copies=(0, 1),
    carries={"num_draft_tokens": Whole(1, 8), "topk": Whole(1, 4)},
    source=SPECULATIVE,
    bugs={
        "table.width": ("vllm #48725",),
        "table.index": ("elizaOS/llama.cpp #7", "llama.cpp #28243"),
        "table.past_table": ("vllm #10350", "sglang #23423", "vllm #54498"),
        "table.text_only": ("sglang #20864",),
        "cost.text_only": ("sglang #20864",),
    },
)
def target_verify(
    seq_len: CommittedLen, parents: Annotated[Parents, Tree(nodes="num_draft_tokens", branches="topk")]
) -> Tokens:
    """A verify reads one token per drafted node, at seq_len + the node's depth; seq_len counts committed tokens only.

    >>> list(target_verify.tokens(seq_len=9, parents=(0, 1, 2)))
    [9, 10, 11, 12]
    >>> list(target_verify.tokens(seq_len=9, parents=(0, 0, 1)))     # rivals for one place share its index
    [9, 10, 10, 11]
    """
    return at(seq_len, depths(parents))

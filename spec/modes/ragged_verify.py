"""Ragged (compact) TARGET_VERIFY: each request brings its own number of nodes, packed; a graph tier may pad the tail.

nodes 3 and 2, seq_lens 9 and 5, tier 8:   9 10 11 | 5 6 | 0 0 0
"""

from __future__ import annotations

from typing import Annotated

from ropecheck.spec.modes.declaration import RUNNING, CommittedLen, Parents, Tokens, Tree, at, depths, mode
from ropecheck.spec.rules import SPECULATIVE


@mode(
    "ragged_verify",
    reads=RUNNING,
    prepared=True,
    buffers=("tier",),
    source=SPECULATIVE,
    bugs={"table.width": ("mlxcel #894",), "table.past_table": ("mlxcel #894",), "padding.tail": ("mlxcel #894",)},
)
def ragged_verify(seq_len: CommittedLen, parents: Annotated[Parents, Tree(most=5)]) -> Tokens:
    """A ragged verify reads what a verify reads, each request as many nodes as it brings.

    >>> list(ragged_verify.tokens(seq_len=5, parents=(0,)))
    [5, 6]
    """
    return at(seq_len, depths(parents))

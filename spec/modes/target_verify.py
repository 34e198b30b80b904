"""TARGET_VERIFY: the target model scores a tree of drafted tokens per request.

The root (node 0) is the bonus token, the newest token of the text; seq_len counts committed tokens only, so the root's
index is seq_len. A node's index is seq_len plus its depth: two nodes of one depth are rivals for one place.

    parents of nodes 1.. (chain of 4)  0 1 2      depths  0 1 2 3
    parents of nodes 1.. (tree of 4)   0 0 1      depths  0 1 1 2
"""

from __future__ import annotations

from collections.abc import Sequence

from ropecheck.spec.history import Column, OutOfDomain, TokenIndex
from ropecheck.spec.modes import decode
from ropecheck.spec.modes.cells import Cell, Place
from ropecheck.spec.rules import MROPE, SPECULATIVE, rule


@rule("target_verify.depths", source=SPECULATIVE)
def depths(parents: Sequence[int]) -> tuple[int, ...]:
    """A node of a drafted tree must be given the index seq_len + depth, one deeper than its parent; the root is at 0.

    Rivals for one place share an index, so the order of nodes says nothing about their positions.
    """
    out = [0]
    for node, parent in enumerate(parents, start=1):
        if not 0 <= parent < node:
            raise OutOfDomain(f"node {node} has parent {parent}; parents come first")
        out.append(out[parent] + 1)
    return tuple(out)


@rule("target_verify.width", source=SPECULATIVE, bugs=("vllm #48725",))
def width(nodes: Sequence[int]) -> int:
    """A verify batch must have one column per drafted node, root included, request by request.

    That is batch x num_draft_tokens.
    """
    return sum(nodes)


@rule("target_verify.indices", source=SPECULATIVE, bugs=("elizaOS/llama.cpp #7", "llama.cpp #28243"))
def index_of(seq_len: int, depth: int) -> TokenIndex:
    """Node k of a drafted chain must be given the index seq_len + k, where seq_len counts committed tokens only."""
    return TokenIndex(seq_len + depth)


@rule("target_verify.depth_plus_delta", source=MROPE, bugs=("vllm #10350", "sglang #23423", "vllm #54498"))
def media_column(place: Place, index: TokenIndex) -> Column:
    """A drafted node of a request with media must sit at seq_len + depth + its request's delta, on all three rows."""
    return decode.media_column(place, index)


@rule("target_verify.text_only", source=MROPE, bugs=("sglang #20864",))
def text_only(index: TokenIndex, axes: int) -> Column:
    """A drafted node of a request without media must have three equal rows, equal to its index."""
    return decode.text_only(index, axes)


def index_rule(parents: Sequence[int]) -> str:
    """Which rule gives a tree's indices: "indices" for a chain, "depths" for a tree with branches."""
    for node, parent in enumerate(parents, start=1):
        if parent != node - 1:
            return "depths"
    return "indices"


def forward(places: Sequence[Place], seq_lens: Sequence[int], parents: Sequence[Sequence[int]]) -> tuple[Cell, ...]:
    """The cells of a verify batch. seq_lens: committed tokens."""
    out: list[Cell] = []
    for request, (place, seq_len) in enumerate(zip(places, seq_lens, strict=True)):
        name = index_rule(parents[request])
        for depth in depths(parents[request]):
            index = index_of(seq_len, depth)
            out.append(decode.cell("target_verify", request, place, index, name, "depth_plus_delta"))
    return tuple(out)

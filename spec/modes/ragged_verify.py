"""Ragged (compact) TARGET_VERIFY: each request brings its own number of nodes, packed; a graph tier may pad the tail.

nodes 3 and 2, seq_lens 9 and 5, tier 8:   9 10 11 | 5 6 | 0 0 0
"""

from __future__ import annotations

from collections.abc import Sequence

from ropecheck.spec.history import Column, OutOfDomain, TokenIndex
from ropecheck.spec.modes import padding, target_verify
from ropecheck.spec.modes.cells import Cell, Place, axes_of
from ropecheck.spec.modes.decode import cell
from ropecheck.spec.rules import MROPE, SPECULATIVE, rule


@rule("ragged_verify.width", source=SPECULATIVE, bugs=("mlxcel #894",))
def width(nodes: Sequence[int]) -> int:
    """A ragged verify must have one column per node, packed request by request: the sum of the requests' own counts."""
    return target_verify.width(nodes)


@rule("ragged_verify.indices", source=SPECULATIVE)
def index_of(seq_len: int, depth: int) -> TokenIndex:
    """A node of a ragged verify must be given the index seq_len + depth of its own request."""
    return target_verify.index_of(seq_len, depth)


@rule("ragged_verify.depth_plus_delta", source=MROPE, bugs=("mlxcel #894",))
def media_column(place: Place, index: TokenIndex) -> Column:
    """A node of a ragged verify must get the delta of the request that it is packed for, on all three rows.

    Requests own unequal numbers of columns: dealing the columns out in equal shares gives a node its neighbour's delta.
    """
    return target_verify.media_column(place, index)


@rule("ragged_verify.text_only", source=MROPE)
def text_only(index: TokenIndex, axes: int) -> Column:
    """A node of a request without media in a ragged verify must have three equal rows, equal to its index."""
    return target_verify.text_only(index, axes)


@rule("ragged_verify.tail", source="public interface: a graph tier pads a packed batch", bugs=("mlxcel #894",))
def tail(packed: int, tier: int) -> int:
    """The tail that pads a ragged verify to its tier must follow all live columns and hold 0 in every row.

    A delta added to the tail can make its positions negative.
    """
    if tier < packed:
        raise OutOfDomain(f"tier of {tier} tokens is smaller than {packed} packed nodes")
    return tier - packed


def forward(
    places: Sequence[Place], seq_lens: Sequence[int], parents: Sequence[Sequence[int]], tier: int = 0
) -> tuple[Cell, ...]:
    """The cells of a ragged verify. seq_lens: committed tokens. tier > 0: packed width after padding."""
    out: list[Cell] = []
    for request, (place, seq_len) in enumerate(zip(places, seq_lens, strict=True)):
        for depth in target_verify.depths(parents[request]):
            out.append(cell("ragged_verify", request, place, index_of(seq_len, depth), "indices", "depth_plus_delta"))
    if tier:
        out.extend(padding.fill("ragged_verify.tail", tail(len(out), tier), axes_of(places[0])))
    return tuple(out)

"""The tree encoding, without an engine: decode it the way the engine's kernel walks it."""

from __future__ import annotations

from itertools import product

import pytest

from ropecheck.adapters.sglang.trees import NotATree, depth_of, encode


def walk(beams: list[int], chosen: list[int], topk: int) -> tuple[int, ...]:
    """Parents as EAGLE's tree kernel finds them: a candidate's beam, the beam's own candidate, its node."""
    parents = []
    for candidate in chosen:
        beam = candidate // topk
        parents.append(0 if beam == 0 else chosen.index(beams[beam]) + 1)
    return tuple(parents)


def test_a_chain_is_the_engines_own_chain() -> None:
    """topk 1: the constants that `_rebuild_topk1_chain_buffers` fills in."""
    assert encode((0, 1, 2), topk=1, num_steps=3) == ([-1, 0, 1], [0, 1, 2])


def test_numbers_of_candidates() -> None:
    """Of one step the root's alone; of two steps, topk 2: the root's 0 and 1, then two beams of two."""
    assert encode((0, 0), topk=2, num_steps=1) == ([-1], [0, 1])
    assert encode((0, 0, 2, 1, 2), topk=2, num_steps=2) == ([-1, 0, 1], [0, 1, 4, 2, 5])
    assert encode((0, 1, 2), topk=2, num_steps=3) == ([-1, 0, 1, 2, 0], [0, 2, 6])
    assert encode((0, 1, 1, 2, 3), topk=2, num_steps=3) == ([-1, 0, 1, 2, 3], [0, 2, 3, 6, 8])
    with pytest.raises(NotATree, match="more than topk 2 nodes of depth 2"):
        encode((0, 0, 1, 1, 2, 3, 4, 5), topk=2, num_steps=3)
    assert (depth_of(()), depth_of((0,)), depth_of((0, 1, 1, 3))) == (0, 1, 3)


def test_every_small_tree_comes_back() -> None:
    """All trees of up to five nodes after the root: what fits topk 3 is read back as it was."""
    seen = 0
    for nodes in range(1, 6):
        for parents in product(*(range(node) for node in range(1, nodes + 1))):
            try:
                beams, chosen = encode(parents, topk=3, num_steps=depth_of(parents))
            except NotATree:
                continue
            assert walk(beams, chosen, topk=3) == parents
            assert len(set(chosen)) == len(chosen)
            seen += 1
    assert seen > 100


@pytest.mark.parametrize("parents", [(0, 0, 0), (0, 1, 2), (1,)], ids=["three children", "too deep", "no such parent"])
def test_what_no_draft_round_makes_is_refused(parents: tuple[int, ...]) -> None:
    with pytest.raises(NotATree):
        encode(parents, topk=2, num_steps=2)

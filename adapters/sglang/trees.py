"""A draft tree in the encoding that EAGLE's tree builder reads. Topology only: no position appears here.

| spec field | adapter field | engine field |
| --- | --- | --- |
| parent of node i + 1 | BuildForward.parents[r][i] | `top_scores_index[r, i]` and `parent_list[r]` |

EAGLE numbers the candidates that a draft round scores: the root's `topk` candidates first, then, per later draft step,
`topk` beams of `topk` candidates. A candidate's number divided by `topk` names its beam (0: the root), and
`parent_list` holds, per beam, the number of the candidate that it grew from. The engine keeps the best candidates,
sorted by number.

Nothing is faked here.
"""

from __future__ import annotations

from collections.abc import Sequence


class NotATree(ValueError):
    """The parents cannot come out of a draft round with this topk and number of steps."""


def encode(parents: Sequence[int], topk: int, num_steps: int) -> tuple[list[int], list[int]]:
    """(parent_list, top_scores_index) of one request: 1 + topk * (num_steps - 1) and len(parents) entries.

    parents: per node after the root, in order, the number of its parent. Raises NotATree.
    """
    beams = [-1] + [0] * (topk * max(num_steps - 1, 0))
    if num_steps > 1:
        beams[1 : topk + 1] = range(topk)  # the first step's candidates are its beams, in order
    candidates: list[int] = []
    depths = [0]
    beam_of = {0: 0}  # node -> the beam that its children grow from
    beams_used = [0] * (num_steps + 1)  # per depth
    children: dict[int, int] = {}
    for node, parent in enumerate(parents, start=1):
        if not 0 <= parent < node:
            raise NotATree(f"node {node} has parent {parent}")
        depth = depths[parent]
        if depth >= num_steps:
            raise NotATree(f"node {node} lies deeper than {num_steps} steps")
        if parent not in beam_of:
            beam_of[parent] = new_beam(beams, beams_used, candidates[parent - 1], depth, topk)
        child = children.get(parent, 0)
        if child >= topk:
            raise NotATree(f"node {parent} has more than topk {topk} children")
        children[parent] = child + 1
        beam = beam_of[parent]
        # Beam b of step s starts at candidate topk + s * topk^2 + b * topk; the root's beam starts at 0.
        step, slot = divmod(beam - 1, topk)
        first = 0 if beam == 0 else topk + step * topk * topk + slot * topk
        candidates.append(first + child)
        depths.append(depth + 1)
    return beams, candidates


def new_beam(beams: list[int], used: list[int], candidate: int, depth: int, topk: int) -> int:
    """Give a node of this depth a beam for its children, and note where the beam grew from."""
    if depth == 1:
        return 1 + candidate  # beam order of the first step is its candidate order
    slot = used[depth]
    if slot >= topk:
        raise NotATree(f"more than topk {topk} nodes of depth {depth} have children")
    used[depth] = slot + 1
    beam = 1 + (depth - 1) * topk + slot
    beams[beam] = candidate
    return beam


def depth_of(parents: Sequence[int]) -> int:
    """How many draft steps the tree needs."""
    depths = [0]
    for parent in parents:
        depths.append(depths[parent] + 1)
    return max(depths)

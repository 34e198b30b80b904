"""A small number of vectors that covers every rule and situation of every folder."""

from collections.abc import Iterable, Sequence

from ropecheck.conformance.vectors import types as v
from ropecheck.conformance.vectors.make import Candidate

LARGEST = 16_000
"""Bytes, without white space. A larger vector shows nothing that a smaller one does not."""


def choose(candidates: Sequence[Candidate]) -> tuple[v.Vector, ...]:
    """By folder: for each feature the smallest and the largest vector that has it, and the smallest of each reason.

    Sorted by folder and id. What is kept does not depend on the order of the candidates.
    """
    kept: dict[str, Candidate] = {}
    for folder in v.folders():
        pool = sorted(
            (one for one in candidates if one.folder == folder and one.size <= LARGEST),
            key=lambda one: (one.size, one.vector.id),
        )
        for feature in sorted({feature for one in pool for feature in one.features}):
            having = [one for one in pool if feature in one.features]
            for one in (having[0], having[-1]):
                kept[one.vector.id] = one
        for one in _one_per_reason(pool):
            kept[one.vector.id] = one
    order = v.folders().index
    return tuple(one.vector for one in sorted(kept.values(), key=lambda one: (order(one.folder), one.vector.id)))


def _one_per_reason(pool: Sequence[Candidate]) -> list[Candidate]:
    """The smallest vector of every reason that somebody wrote down for a scenario."""
    first: dict[str, Candidate] = {}
    for one in pool:
        first.setdefault(one.vector.provenance.reason, one)
    return list(first.values())


def uncovered(vectors: Iterable[v.Vector], candidates: Iterable[Candidate]) -> list[str]:
    """Folders without a vector, and rules that some candidate checks and no chosen vector does."""
    chosen = tuple(vectors)
    have = {v.folder_of(vector.input) for vector in chosen}
    rules = {rule for vector in chosen for rule in vector.provenance.rules}
    wanted = {rule for one in candidates for rule in one.vector.provenance.rules}
    return [folder for folder in v.folders() if folder not in have] + sorted(wanted - rules)

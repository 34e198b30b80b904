"""A prefix cache serves a request with another one's keys, which were turned by the columns of whoever wrote them."""

from __future__ import annotations

from collections.abc import Sequence

from ropecheck.spec.history import Column
from ropecheck.spec.rules import MROPE, label


def agreeing(own: Sequence[Column], other: Sequence[Column]) -> int:
    """Leading tokens whose columns are the same in both tables."""
    count = 0
    for mine, theirs in zip(own, other, strict=False):
        if mine != theirs:
            break
        count += 1
    return count


@label("prefix.identity", source=MROPE)
def identity(own: Sequence[Column], other: Sequence[Column], hit: int) -> bool:
    """A hit on another request's tokens must be no longer than the columns of both requests agree.

    Equal token ids and equal pixels are not enough: intervals, and grids of equal bytes, go into the columns as well.
    """
    return hit <= agreeing(own, other)

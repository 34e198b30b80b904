"""A prefix cache serves a request with another one's keys, which were turned by the columns of whoever wrote them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ropecheck.spec.history import Column, Family, History, run_length
from ropecheck.spec.rules import MROPE, Violation, rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A request that finds tokens of another one in the prefix cache."""

    own: Sequence[Column]
    """Its own columns."""
    other: Sequence[Column]
    """Those of the request that wrote the cache."""
    tokens: int
    """Observed: how many it is served."""
    alike: int
    """Leading tokens that both requests have: up to the first item that is another one."""

    @property
    def most(self) -> int:
        """How many it may be served."""
        return min(agreeing(self.own, self.other), self.alike)


def agreeing(own: Sequence[Column], other: Sequence[Column]) -> int:
    """Leading tokens whose columns are the same in both tables."""
    count = 0
    for mine, theirs in zip(own, other, strict=False):
        if mine != theirs:
            break
        count += 1
    return count


def alike(family: Family, own: History, other: History) -> int:
    """Leading tokens of both: equal text, and items of one kind and length, whose insides are the columns' matter.

    Of an item that is longer in one of them no token is the other's: an encoder reads an item as a whole.
    """
    count = 0
    for mine, theirs in zip(own, other, strict=False):
        sizes = run_length(family, mine), run_length(family, theirs)
        if mine.kind == theirs.kind and sizes[0] == sizes[1]:
            count += sizes[0]
            continue
        return count + (min(sizes) if mine.is_text and theirs.is_text else 0)
    return count


@rule("prefix.identity", of=Hit, source=MROPE)
def identity(hit: Hit) -> Violation | None:
    """A hit on another request's tokens must be no longer than the columns of both requests agree, and must end before
    the first item that is another one.

    Equal token ids and equal pixels are not enough: intervals, and grids of equal bytes, go into the columns as well.
    """
    most = hit.most
    if hit.tokens <= most:
        return None
    return Violation(
        axis="hit",
        at=most,
        expected=most,
        observed=hit.tokens,
        shape="hit across other columns" if hit.tokens > agreeing(hit.own, hit.other) else "hit across another item",
        message=f"the second request is served {hit.tokens} of {len(hit.own)} tokens; {most} are as the first one's",
    )

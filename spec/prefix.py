"""A prefix cache serves a request with another one's keys, which were turned by the columns of whoever wrote them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ropecheck.spec.history import Column
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


def agreeing(own: Sequence[Column], other: Sequence[Column]) -> int:
    """Leading tokens whose columns are the same in both tables."""
    count = 0
    for mine, theirs in zip(own, other, strict=False):
        if mine != theirs:
            break
        count += 1
    return count


@rule("prefix.identity", of=Hit, source=MROPE)
def identity(hit: Hit) -> Violation | None:
    """A hit on another request's tokens must be no longer than the columns of both requests agree.

    Equal token ids and equal pixels are not enough: intervals, and grids of equal bytes, go into the columns as well.
    """
    most = agreeing(hit.own, hit.other)
    if hit.tokens <= most:
        return None
    return Violation(
        axis="hit",
        at=most,
        expected=most,
        observed=hit.tokens,
        shape="hit across other columns",
        message=f"the second request is served {hit.tokens} of {len(hit.own)} tokens; its columns agree for {most}",
    )

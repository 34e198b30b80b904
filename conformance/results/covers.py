"""Joining what reports cover: shards to wholes, wholes to ranges of seeds."""

from collections.abc import Iterable

import msgspec

from ropecheck.conformance.errors import UsageError
from ropecheck.conformance.report import ranges
from ropecheck.conformance.report.part import Covers


def joined(parts: Iterable[Covers]) -> tuple[Covers, ...]:
    """The same scenarios in as few entries as possible, in a fixed order. Raises UsageError for one that is there
    twice, which would count twice."""
    shards: dict[tuple[object, ...], Covers] = {}
    for one in parts:
        key = (one.phases, one.bound or "", one.complete, one.seeds, one.of)
        # A seed's shards are joined first; "1" of 1 stands alone, so that a second one is seen as a duplicate.
        shards[key] = _with(shards[key], one, "shards") if key in shards else one
    wholes: dict[tuple[object, ...], Covers] = {}
    for one in map(_closed, shards.values()):
        key = (one.phases, one.bound or "", one.complete, "" if one.whole else one.seeds, one.of)
        wholes[key] = _with(wholes[key], one, "seeds") if key in wholes else one
    return tuple(wholes[key] for key in sorted(wholes, key=repr))


def _with(one: Covers, other: Covers, what: str) -> Covers:
    """Both together. what: of which they have different ones, "seeds" or "shards"."""
    try:
        both = ranges.united(getattr(one, what), getattr(other, what))
    except ValueError as error:
        raise UsageError(f"the same scenarios twice: {described(other)}: {what[:-1]} {error}") from error
    certificate = one.certificate if one.certificate == other.certificate else None
    return msgspec.structs.replace(one, **{what: both}, certificate=certificate)


def _closed(one: Covers) -> Covers:
    """All shards of a seed are that seed."""
    return msgspec.structs.replace(one, shards="1", of=1) if ranges.size(one.shards) == one.of else one


def described(one: Covers) -> str:
    """For people: "chosen, laws, seed 0, shards 1-3 of 8"."""
    shards = "" if one.whole else f", shards {one.shards} of {one.of}"
    return f"{', '.join(one.phases) or 'witnesses'}, seeds {one.seeds}{shards}"

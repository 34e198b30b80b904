"""Counts per entry of the known-failure list: what it predicts, beside what came out."""

from collections.abc import Iterable

import msgspec

from ropecheck.conformance.run.events import Summary


class EntryCount(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An entry of the known-failure list, or a known difference: what it says, beside what came out."""

    name: str
    predicted: int
    """Scenarios that must fail with it."""
    shown: int
    """Scenarios that did."""
    right: str
    """One that must have and did not, "NAME (ID)"; "" for none."""


def entry_counts(summary: Summary) -> tuple[EntryCount, ...]:
    """Over all phases, by name."""
    found = [
        EntryCount(name=name, predicted=counts.predicted, shown=counts.shown, right=counts.right)
        for by_name in summary.entries.values()
        for name, counts in by_name.items()
    ]
    return added_counts(found)


def added_counts(counts: Iterable[EntryCount]) -> tuple[EntryCount, ...]:
    """One for each name."""
    found: dict[str, EntryCount] = {}
    for one in counts:
        before = found.get(one.name)
        if before is not None:
            right = min(filter(None, (before.right, one.right)), default="")
            predicted, shown = before.predicted + one.predicted, before.shown + one.shown
            one = EntryCount(name=one.name, predicted=predicted, shown=shown, right=right)
        found[one.name] = one
    return tuple(found[name] for name in sorted(found))


def overdue_lines(counts: Iterable[EntryCount]) -> list[str]:
    """What was predicted and is right, one warning per entry."""
    return [
        f"known {one.name}: {one.predicted - one.shown} of {one.predicted} scenarios that must fail with it are right, "
        f"such as {one.right}: the entry says too much, or the bug is gone there (`ropecheck known prune`)"
        for one in counts
        if one.shown < one.predicted
    ]

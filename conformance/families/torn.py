"""A processor's mistakes, planted in a builder's input: a grid, an interval, a length or a placeholder too few or too
many. Each must be refused: a table made from such an input is wrong without a sign."""

from collections.abc import Callable
from typing import Any

import msgspec

from ropecheck.adapters.protocol import PromptTable
from ropecheck.spec.history import OutOfDomain

Ids = tuple[int, ...]
Tear = Callable[[PromptTable], PromptTable]

TOO_MANY = 2
"""Placeholders that a run too long has too many."""


def tear(built: PromptTable, how: str) -> PromptTable:
    """Plant a processor's mistake. Raises OutOfDomain where the prompt has nothing to tear in this way."""
    if not how:
        return built
    try:
        return TEARS[how](built)
    except (IndexError, StopIteration, ValueError) as error:
        raise OutOfDomain(f"{how!r} of a prompt that has none") from error


def _list(edit: Callable[[tuple[Any, ...]], tuple[Any, ...]], *fields: str) -> Tear:
    """Edit one of the prompt's lists: the first of these fields that has anything."""

    def torn(built: PromptTable) -> PromptTable:
        field = next((field for field in fields if getattr(built, field)), fields[-1])
        return msgspec.structs.replace(built, **{field: edit(getattr(built, field) or ())})

    return torn


def _run(edit: Callable[[Ids, int], Ids]) -> Tear:
    """The same edit of every prompt's ids and kinds, at the first placeholder (and of the mask, which covers them)."""

    def torn(built: PromptTable) -> PromptTable:
        at = next(i for i, kind in enumerate(built.kinds[0]) if kind)
        mask = None if built.mask is None else tuple(edit(row, at) for row in built.mask)
        ids, kinds = (tuple(edit(row, at) for row in rows) for rows in (built.ids, built.kinds))
        return msgspec.structs.replace(built, ids=ids, kinds=kinds, mask=mask)

    return torn


def _shorter(held: tuple[Any, ...]) -> tuple[Any, ...]:
    """All but the last. Raises IndexError for none."""
    held[-1]
    return held[:-1]


def _longer(held: tuple[Any, ...]) -> tuple[Any, ...]:
    """The last one twice. Raises IndexError for none."""
    return (*held, held[-1])


def _undivided(held: tuple[Any, ...]) -> tuple[Any, ...]:
    """The first grid a patch higher. Raises ValueError for none."""
    (t, h, w), *rest = held
    return ((t, h + 1, w), *rest)


GRIDS = ("image_grids", "video_grids")
TEARS: dict[str, Tear] = {
    "grid missing": _list(_shorter, *GRIDS),
    "grid left over": _list(_longer, *GRIDS),
    "grid undivided": _list(_undivided, *GRIDS),
    "run cut short": _run(lambda row, at: (*row[:at], *row[at + 1 :])),
    "run too long": _run(lambda row, at: (*row[:at], *[row[at]] * TOO_MANY, *row[at:])),
    "intervals missing": lambda built: msgspec.structs.replace(built, seconds_per_grid=None),
    "interval missing": _list(_shorter, "seconds_per_grid"),
    "interval left over": _list(_longer, "seconds_per_grid"),
    "audio length missing": _list(_shorter, "audio_features"),
    "audio length left over": _list(_longer, "audio_features"),
}
"""What a case's `torn` may say -> how the step's input is torn. "run .." are of the prompt's first item."""

"""A processor's mistakes, planted in a builder's input: a grid, an interval, a length or a placeholder too few or too
many. Each must be refused: a table made from such an input is wrong without a sign."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from ropecheck.adapters.protocol import PromptTable
from ropecheck.spec.history import OutOfDomain

Grid = tuple[int, int, int]
T = TypeVar("T")

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


def _grids(built: PromptTable) -> tuple[str, tuple[Grid, ...]]:
    """The field with the prompt's grids, images' before videos'."""
    field = "image_grids" if built.image_grids else "video_grids"
    return field, getattr(built, field) or ()


def _grid_missing(built: PromptTable) -> PromptTable:
    field, held = _grids(built)
    return msgspec.structs.replace(built, **{field: _shorter(held)})


def _grid_left_over(built: PromptTable) -> PromptTable:
    field, held = _grids(built)
    return msgspec.structs.replace(built, **{field: (*held, held[-1])})


def _grid_undivided(built: PromptTable) -> PromptTable:
    field, ((t, h, w), *rest) = _grids(built)
    return msgspec.structs.replace(built, **{field: ((t, h + 1, w), *rest)})


def _run_cut_short(built: PromptTable) -> PromptTable:
    at = _first_placeholder(built)
    return _with_rows(built, lambda row: (*row[:at], *row[at + 1 :]))


def _run_too_long(built: PromptTable) -> PromptTable:
    at = _first_placeholder(built)
    return _with_rows(built, lambda row: (*row[:at], *[row[at]] * TOO_MANY, *row[at:]))


def _intervals_missing(built: PromptTable) -> PromptTable:
    return msgspec.structs.replace(built, seconds_per_grid=None)


def _interval_missing(built: PromptTable) -> PromptTable:
    return msgspec.structs.replace(built, seconds_per_grid=_shorter(built.seconds_per_grid or ()))


def _interval_left_over(built: PromptTable) -> PromptTable:
    held = built.seconds_per_grid or ()
    return msgspec.structs.replace(built, seconds_per_grid=(*held, held[-1]))


def _audio_length_missing(built: PromptTable) -> PromptTable:
    return msgspec.structs.replace(built, audio_features=_shorter(built.audio_features or ()))


def _audio_length_left_over(built: PromptTable) -> PromptTable:
    held = built.audio_features or ()
    return msgspec.structs.replace(built, audio_features=(*held, held[-1]))


def _shorter(held: tuple[T, ...]) -> tuple[T, ...]:
    """All but the last. Raises IndexError for none."""
    held[-1]
    return held[:-1]


def _first_placeholder(built: PromptTable) -> int:
    return next(i for i, kind in enumerate(built.kinds[0]) if kind)


def _with_rows(built: PromptTable, edit: Callable[[tuple[int, ...]], tuple[int, ...]]) -> PromptTable:
    """The same edit of every prompt's ids and kinds (and of the mask, which covers them all)."""
    mask = None if built.mask is None else tuple(edit(row) for row in built.mask)
    ids, kinds = tuple(edit(row) for row in built.ids), tuple(edit(row) for row in built.kinds)
    return msgspec.structs.replace(built, ids=ids, kinds=kinds, mask=mask)


TEARS: dict[str, Callable[[PromptTable], PromptTable]] = {
    "grid missing": _grid_missing,
    "grid left over": _grid_left_over,
    "grid undivided": _grid_undivided,
    "run cut short": _run_cut_short,
    "run too long": _run_too_long,
    "intervals missing": _intervals_missing,
    "interval missing": _interval_missing,
    "interval left over": _interval_left_over,
    "audio length missing": _audio_length_missing,
    "audio length left over": _audio_length_left_over,
}
"""What a case's `torn` may say -> how the step's input is torn. "run .." are of the prompt's first item."""

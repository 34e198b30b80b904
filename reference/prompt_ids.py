"""The prompt table from token ids, grids, intervals and audio lengths, as an engine's processor hands them over."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from ropecheck.reference.blocks import Line, PlacedRun, Table, block_of
from ropecheck.reference.prompt_tables import assemble
from ropecheck.spec.families.declaration import MediaFamily
from ropecheck.spec.families.prompt import Grid
from ropecheck.spec.history import OutOfDomain, Run, numbered_family

_Item = tuple[Grid | None, float, int]
"""A media item: its grid, its seconds per grid step, its tokens of audio."""


def table_from_ids(
    family: MediaFamily,
    ids: npt.NDArray[np.int64],
    placeholders: dict[str, int],
    image_grids: Sequence[Sequence[int]] = (),
    video_grids: Sequence[Sequence[int]] = (),
    seconds_per_grid: Sequence[float] | None = None,
    audio_tokens: Sequence[int] = (),
) -> Table:
    """int64 [axes, P] from token ids [P].

    `placeholders`: media kind -> its placeholder id. Each stretch of equal placeholders is one item. Raises
    OutOfDomain when stretches and items disagree in number or length, and where the specification refuses an item.
    """
    if numbered_family(family) is not None:
        raise OutOfDomain("a family that numbers its items is built from its history: see prompt_table")
    waiting = {
        "image": _taker(family, "image", [((g[0], g[1], g[2]), 1.0, 0) for g in image_grids]),
        "video": _taker(family, "video", _videos(family, video_grids, seconds_per_grid)),
        "audio": _taker(family, "audio", [(None, 1.0, tokens) for tokens in audio_tokens]),
    }
    kinds = np.zeros(len(ids), dtype=np.uint8)
    names = ["text"]
    for kind, token in placeholders.items():
        kinds += (ids == token).view(np.uint8) * np.uint8(len(names))
        names.append(kind)
    edges = np.flatnonzero(kinds[1:] != kinds[:-1]) + 1
    bounds = [0, *edges.tolist(), len(ids)] if len(ids) else [0]
    texts: dict[int, PlacedRun] = {}
    parts: list[PlacedRun] = []
    for number, code in enumerate(kinds[bounds[:-1]].tolist()):
        tokens = bounds[number + 1] - bounds[number]
        if code:
            parts.append(waiting[names[code]](tokens))
            continue
        part = texts.get(tokens)
        if part is None:
            part = texts[tokens] = Line(family.axes, tokens)
        parts.append(part)
    for take in waiting.values():
        take(0)
    return assemble(family.axes, parts)


def _videos(
    family: MediaFamily, grids: Sequence[Sequence[int]], seconds_per_grid: Sequence[float] | None
) -> list[_Item]:
    """One item per video, or per frame where frames are runs of their own. Refuses missing intervals."""
    if grids and family.absolute_time and seconds_per_grid is None:
        raise OutOfDomain(f"{family.name} places videos in absolute time; their intervals are missing")
    if seconds_per_grid is not None and len(seconds_per_grid) != len(grids):
        raise OutOfDomain(f"{len(grids)} videos but {len(seconds_per_grid)} intervals")
    items: list[_Item] = []
    for number, (t, h, w) in enumerate(grids):
        seconds = 1.0 if seconds_per_grid is None else seconds_per_grid[number]
        items.extend([((1, h, w), seconds, 0)] * t if family.frames_apart else [((t, h, w), seconds, 0)])
    return items


def _taker(family: MediaFamily, kind: str, items: list[_Item]) -> Callable[[int], PlacedRun]:
    """take(n): the next item's block, which must have n tokens. take(0) checks that none is left."""
    left = iter(items)
    known: dict[_Item, PlacedRun] = {}

    def take(tokens: int) -> PlacedRun:
        item = next(left, None)
        if item is None:
            if tokens:
                raise OutOfDomain(f"more {kind} runs than the {len(items)} {kind} items")
            return Line(family.axes, 0)
        block = known.get(item)
        if block is None:
            grid, seconds, sound = item
            run = Run(kind=kind, grid=grid, seconds_per_grid=seconds, tokens=sound)
            block = known[item] = block_of(family, run)
        if block.tokens != tokens:
            raise OutOfDomain(f"{tokens} placeholder tokens for a {kind} of {block.tokens} tokens")
        return block

    return take

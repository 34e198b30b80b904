"""From what a processor hands over (the kind of every token, grids, intervals, audio lengths) to a history.

A table is only as good as this step: every placeholder token must belong to exactly one item, and every item's tokens
must be there. What disagrees is refused; a table built from it would be wrong without a sign.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ropecheck.spec.families.declaration import MediaFamily
from ropecheck.spec.history import History, OutOfDomain, Run, text

Grid = tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One prompt as its processor describes it."""

    kinds: tuple[str, ...]
    """Per token: "text", "image", "video" or "audio"."""
    image_grids: tuple[Grid, ...] = ()
    video_grids: tuple[Grid, ...] = ()
    """One per video, also where each frame is a run of its own."""
    seconds_per_grid: tuple[float, ...] | None = None
    """One per video; None: not given."""
    audio_tokens: tuple[int, ...] = ()
    """Tokens of each audio item, in order."""


def spans(kinds: Sequence[str]) -> list[tuple[str, int]]:
    """Stretches of equal kind with their lengths."""
    found: list[tuple[str, int]] = []
    for kind in kinds:
        if found and found[-1][0] == kind:
            found[-1] = (kind, found[-1][1] + 1)
        else:
            found.append((kind, 1))
    return found


def order(kinds: Sequence[str]) -> tuple[str, ...]:
    """A prompt's words (kind "word") and items, of items of one kind without a word between them one.

    All other text is a processor's."""
    found: list[str] = []
    for kind in kinds:
        if kind == "word" or (kind != "text" and found[-1:] != [kind]):
            found.append(kind)
    return tuple(found)


def items_in_order(family: MediaFamily, prompt: Prompt) -> dict[str, list[Run]]:
    """The runs that the prompt must hold, by kind. Raises OutOfDomain for missing intervals."""
    seconds = prompt.seconds_per_grid
    if seconds is not None and len(seconds) != len(prompt.video_grids):
        raise OutOfDomain(f"{len(prompt.video_grids)} videos but {len(seconds)} intervals")
    if seconds is None and family.absolute_time and prompt.video_grids:
        raise OutOfDomain(f"{family.name} places videos in absolute time; their intervals are missing")
    videos: list[Run] = []
    for number, (t, h, w) in enumerate(prompt.video_grids):
        interval = seconds[number] if family.absolute_time and seconds is not None else 1.0
        if family.frames_apart:
            videos.extend(Run(kind="video", grid=(1, h, w)) for _ in range(t))
        else:
            videos.append(Run(kind="video", grid=(t, h, w), seconds_per_grid=interval))
    return {
        "image": [Run(kind="image", grid=grid) for grid in prompt.image_grids],
        "video": videos,
        "audio": [Run(kind="audio", tokens=tokens) for tokens in prompt.audio_tokens],
    }


def history_of(family: MediaFamily, prompt: Prompt) -> History:
    """The history of a prompt without audio tracks in its videos.

    Every stretch of placeholder tokens is one item, in the order of its kind's list. Raises OutOfDomain, naming the
    item, when stretches and items differ in number or length.
    """
    waiting = items_in_order(family, prompt)
    used = dict.fromkeys(waiting, 0)
    runs: list[Run] = []
    for kind, tokens in spans(prompt.kinds):
        if kind == "text":
            runs.append(text(tokens))
            continue
        number = used.get(kind)
        if number is None or kind not in family.kinds:
            raise OutOfDomain(f"{family.name} has no media of kind {kind!r}")
        if number == len(waiting[kind]):
            raise OutOfDomain(f"the prompt has more {kind} runs than its {number} {kind} items")
        run = waiting[kind][number]
        expected = family.token_count(run)
        if expected != tokens:
            raise OutOfDomain(f"{kind} {number} has {tokens} placeholder tokens; its item has {expected}")
        runs.append(run)
        used[kind] = number + 1
    for kind, items in waiting.items():
        if used[kind] != len(items):
            raise OutOfDomain(f"the prompt has {used[kind]} {kind} runs for {len(items)} {kind} items")
    return tuple(runs)

"""Small pictures, clips and sounds, made here, and the text that a client sends with them.

| spec field | adapter field | engine field |
| --- | --- | --- |
| grid of an image | PromptTable.image_grids | a PNG of grid times patch pixels, as a data URL |
| grid and interval of a video | PromptTable.video_grids, seconds_per_grid | frames and frame rate of a decoded clip |
| mel frames of a sound | PromptTable.audio_features | so many hundredths of a second |
| text | PromptTable.ids | one word per token |

Faked: the decoders of video and sound files (no codec is needed for positions): `Clip` has its frame count, rate and
pixels, `Sound` its samples.
"""

from __future__ import annotations

import asyncio
import base64
import io
from collections.abc import Coroutine
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ropecheck.adapters.protocol import PromptTable

Grid = tuple[int, int, int]
WORD = "w"
FAKED = (
    "video files: a decoder object with frames, rate and pixels made here; also where transformers opens them itself",
    "sound files: samples made here, at 16 kHz",
)
HOP = 160
"""Samples of a mel frame: 16 kHz, 100 frames a second."""


@dataclass(frozen=True, slots=True)
class Message:
    """What the client sends."""

    text: str
    images: tuple[Any, ...]
    videos: tuple[Any, ...]
    sounds: tuple[Any, ...] = ()
    targets: tuple[Grid, ...] = ()
    """What the model is to draw, in its tokens."""


@dataclass(frozen=True, slots=True)
class Sound:
    """Samples of a sound, decoded already."""

    samples: Any


def sound(features: int) -> Sound:
    """A tone of so many mel frames."""
    import numpy as np

    return Sound(np.sin(np.arange(features * HOP) / 10.0).astype(np.float32))


def awaited(answer: Coroutine[Any, Any, Any]) -> Any:
    """What it comes to. `asyncio.run` would handle Ctrl-C, and the way it sets that up prints all tensors inside."""
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(answer)
    finally:
        loop.close()


def picture(grid: Grid, patch: int, seed: int | None) -> str:
    """A data URL of a PNG whose pixels differ from another seed's; without one it is plain grey."""
    return image(grid[1] * patch, grid[2] * patch, seed)


@lru_cache(maxsize=256)
def image(height: int, width: int, seed: int | None) -> str:
    """A data URL of a PNG of so many pixels."""
    import numpy as np
    from PIL import Image

    size = height * width * 3
    pixels = np.full(size, 128, np.uint8)
    if seed is not None:
        pixels = (np.arange(size) * (seed * 2 + 1) % 251).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels.reshape(height, width, 3)).save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def clip(decoder: Any, grid: Grid, patch: int, seconds: float, per_step: int) -> Any:
    """A decoded clip: `per_step` frames of the file for every temporal step, `seconds` apart step by step."""

    class Clip(decoder):  # type: ignore[misc]
        def __init__(self) -> None:
            self.frames, self.height, self.width = grid[0] * per_step, grid[1] * patch, grid[2] * patch

        def __len__(self) -> int:
            return int(self.frames)

        def __getitem__(self, index: int) -> Any:
            if index >= self.frames:
                raise IndexError(index)
            return self.get_frames_as_tensor([index])[0].numpy()

        @property
        def avg_fps(self) -> float:
            return per_step / seconds

        def get_frames_as_tensor(self, indices: list[int]) -> Any:
            import torch

            size = len(indices) * self.height * self.width * 3
            return (torch.arange(size) % 251).to(torch.uint8).reshape(len(indices), self.height, self.width, 3)

        def close(self) -> None:
            pass

        def __del__(self) -> None:
            pass

    return Clip()


def message(
    step: PromptTable,
    patch: int,
    per_step: int,
    marks: dict[str, str],
    decoder: Any,
    plain: bool = False,
    times: int = 1,
) -> Message:
    """The step's prompt as a client would write it. marks: kind -> the text that stands for an item of it; times: so
    many times the frames of a clip, at as many times the rate."""
    markers = set(step.markers)
    images, videos = iter(step.image_grids or ()), iter(step.video_grids or ())
    pixels = iter(step.image_pixels or ())
    seconds = iter(step.seconds_per_grid or (1.0,) * len(step.video_grids or ()))
    features = iter(step.audio_features or ())
    written = ""
    sent: dict[str, list[Any]] = {"image": [], "video": [], "audio": []}
    at = 0
    for item in joined(step, markers):
        written += _words(step.ids[0][at : item.start], markers) + marks[item.kind]
        number = len(sent[item.kind])
        if item.kind == "image":
            grid, *_ = [next(images) for _ in range(item.parts)]
            size = next(pixels, None)
            seed = None if plain else number
            sent["image"].append(picture(grid, patch, seed) if size is None else image(*size, seed))
        elif item.kind == "audio":
            sent["audio"].append(sound(next(features)))
        else:
            grids = [next(videos) for _ in range(item.parts)]
            grid = (sum(one[0] for one in grids), *grids[0][1:])
            sent["video"].append(clip(decoder, grid, patch, next(seconds), times * per_step))
        at = item.stop
    written += _words(step.ids[0][at:], markers)
    return Message(written, tuple(sent["image"]), tuple(sent["video"]), tuple(sent["audio"]), tuple(images))


@dataclass(frozen=True, slots=True)
class Sent:
    """One thing that a client sends."""

    kind: str
    start: int
    stop: int
    parts: int
    """Grids that it has: a picture's crops, the frames of a clip where each is a picture of its own."""


def joined(step: PromptTable, markers: set[int]) -> list[Sent]:
    """The items, a picture's crops as one and a clip's frames as one: what stands between them is markers alone."""
    starts = step.config.get("slice_start_id")
    found: list[Sent] = []
    for item in step.items:
        last = found[-1] if found and starts is not None else None
        between = step.ids[0][last.stop : item.start] if last is not None else ()
        part = item.kind == "video" or step.ids[0][item.start - 1] == starts
        if last is not None and last.kind == item.kind and part and set(between) <= markers:
            found[-1] = Sent(item.kind, last.start, item.stop, last.parts + 1)
        else:
            found.append(Sent(item.kind, item.start, item.stop, 1))
    return found


def _words(ids: tuple[int, ...], markers: set[int]) -> str:
    """One word for every token that is no marker."""
    return " ".join(WORD for token in ids if token not in markers)

"""Small pictures and clips, made here, and the text that a client sends with them.

| spec field | adapter field | engine field |
| --- | --- | --- |
| grid of an image | PromptTable.image_grids | a PNG of grid times patch pixels, as a data URL |
| grid and interval of a video | PromptTable.video_grids, seconds_per_grid | frames and frame rate of a decoded clip |
| text | PromptTable.ids | one word per token |

Faked: the decoder of a video file (no codec is needed for positions): `Clip` has its frame count, rate and pixels.
"""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass
from typing import Any

from ropecheck.adapters.protocol import PromptTable

Grid = tuple[int, int, int]
WORD = "w"
FAKED = ("video files: a decoder object with frames, rate and pixels made here",)


@dataclass(frozen=True, slots=True)
class Message:
    """What the client sends."""

    text: str
    images: tuple[Any, ...]
    videos: tuple[Any, ...]
    apart: bool
    """Each frame of a clip stands between timestamps."""


def picture(grid: Grid, patch: int, seed: int | None) -> str:
    """A data URL of a PNG whose pixels differ from another seed's; without one it is plain grey."""
    import numpy as np
    from PIL import Image

    _, h, w = grid
    size = h * w * patch * patch * 3
    pixels = np.full(size, 128, np.uint8)
    if seed is not None:
        pixels = (np.arange(size) * (seed * 2 + 1) % 251).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels.reshape(h * patch, w * patch, 3)).save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def clip(decoder: Any, grid: Grid, patch: int, seconds: float, per_step: int) -> Any:
    """A decoded clip: `per_step` frames for every temporal step, `seconds` apart step by step."""

    class Clip(decoder):  # type: ignore[misc]
        def __init__(self) -> None:
            self.frames, self.height, self.width = grid[0] * per_step, grid[1] * patch, grid[2] * patch

        def __len__(self) -> int:
            return int(self.frames)

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
    step: PromptTable, patch: int, per_step: int, marks: dict[str, str], decoder: Any, plain: bool = False
) -> Message:
    """The step's prompt as a client would write it. marks: kind -> the text that stands for an item of it."""
    markers = set(step.config.values())
    images, videos = iter(step.image_grids or ()), iter(step.video_grids or ())
    seconds = iter(step.seconds_per_grid or (1.0,) * len(step.video_grids or ()))
    written = ""
    sent: dict[str, list[Any]] = {"image": [], "video": []}
    at = 0
    for item in step.items:
        written += _words(step.ids[0][at : item.start], markers) + marks[item.kind]
        number = len(sent[item.kind])
        if item.kind == "image":
            sent["image"].append(picture(next(images), patch, None if plain else number))
        else:
            sent["video"].append(clip(decoder, next(videos), patch, next(seconds), per_step))
        at = item.stop
    written += _words(step.ids[0][at:], markers)
    spans = [step.kinds[0][item.start : item.stop] for item in step.items if item.kind == "video"]
    return Message(written, tuple(sent["image"]), tuple(sent["video"]), any(0 in span for span in spans))


def _words(ids: tuple[int, ...], markers: set[int]) -> str:
    """One word for every token that is no marker."""
    return " ".join(WORD for token in ids if token not in markers)

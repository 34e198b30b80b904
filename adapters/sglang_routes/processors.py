"""transformers' own processors of each family, built without a file: tiny settings, nothing resized.

| spec field | adapter field | engine field |
| --- | --- | --- |
| grid after the resize rule | PromptTable.image_grids | what these classes make of a client's pixels |

Faked: Ernie-4.5-VL's processor. The engine reads the output of the code that comes with the checkpoint (`images`,
`grid_thw`), which is in no package; transformers' own class for the family has other fields.
"""

from __future__ import annotations

import importlib
import types
from collections.abc import Callable
from typing import Any

FAKED = ("Ernie-4.5-VL's processor: the checkpoint's own code is in no package; a stand-in expands and patchifies",)

LARGEST = 1 << 18
"""Pixels; a picture of 512 x 512 is not resized for being large."""

Builder = Callable[[Any, Any], Any]


def _transformers(name: str) -> Any:
    return getattr(importlib.import_module("transformers"), name)


def _settings(patch: int) -> dict[str, Any]:
    size = {"shortest_edge": (2 * patch) ** 2, "longest_edge": LARGEST}
    return {"patch_size": patch, "merge_size": 2, "temporal_patch_size": 2, "size": size}


def qwen(processor: str, videos: str = "Qwen2VLVideoProcessor") -> Builder:
    return vision(processor, "Qwen2VLImageProcessor", videos)


def vision(processor: str, images: str, videos: str = "") -> Builder:
    """A processor of images, and of videos where it has them."""

    def build(words: Any, model: Any) -> Any:
        made = {"image_processor": _transformers(images)(**_settings(model.patch)), "tokenizer": words}
        if videos:
            made["video_processor"] = _transformers(videos)(**_settings(model.patch))
        return _transformers(processor)(**made)

    return build


def omni(words: Any, model: Any) -> Any:
    settings = _settings(model.patch)
    return _transformers("Qwen3OmniMoeProcessor")(
        image_processor=_transformers("Qwen2VLImageProcessor")(**settings),
        video_processor=_transformers("Qwen2VLVideoProcessor")(**settings),
        feature_extractor=_transformers("WhisperFeatureExtractor")(feature_size=128),
        tokenizer=words,
    )


def speech(words: Any, model: Any) -> Any:
    """Qwen3-ASR's processor is the engine's own class."""
    own = importlib.import_module("sglang.srt.configs.qwen3_asr").Qwen3ASRProcessor
    return own(feature_extractor=_transformers("WhisperFeatureExtractor")(feature_size=128), tokenizer=words)


def drawing(words: Any, model: Any) -> Any:
    """GLM-Image's halves a picture's sides, and tells the model what size it is to draw."""
    size = {"shortest_edge": 1, "longest_edge": LARGEST}
    pictures = _transformers("GlmImageImageProcessor")(patch_size=16, merge_size=1, size=size)
    return _transformers("GlmImageProcessor")(image_processor=pictures, tokenizer=words)


def none(words: Any, model: Any) -> Any:
    """The engine's processor does everything itself and wants a tokenizer."""
    return words


class Ernie:
    """In place of the checkpoint's own processor: one placeholder per token, patches and one grid per item."""

    ropecheck_stand_in = True

    def __init__(self, words: Any, patch: int) -> None:
        self.tokenizer = words
        self.patch = patch
        self.image_processor = types.SimpleNamespace(
            image_mean=[0.5] * 3, image_std=[0.5] * 3, rescale_factor=1 / 255, ropecheck_stand_in=True
        )

    def __call__(self, text: list[str], images: Any = None, videos: Any = None, **_: Any) -> Any:
        import torch
        from transformers import BatchFeature

        grids: list[tuple[int, int, int]] = []
        written = text[0]
        for placeholder, items in (("<|image@placeholder|>", images or ()), ("<|video@placeholder|>", videos or ())):
            for item in items:
                frames, height, width = self._size(item)
                grid = (frames, height // self.patch, width // self.patch)
                grids.append(grid)
                tokens = grid[0] * grid[1] * grid[2] // (4 if frames == 1 else 8)
                written = written.replace(placeholder, "<|IMAGE_PLACEHOLDER|>" * tokens, 1)
        patches = torch.zeros(sum(t * h * w for t, h, w in grids), 3 * self.patch**2, dtype=torch.uint8)
        ids = torch.tensor([self.tokenizer.encode(written, add_special_tokens=False)])
        return BatchFeature({"input_ids": ids, "images": patches, "grid_thw": torch.tensor(grids).reshape(-1, 3)})

    @staticmethod
    def _size(item: Any) -> tuple[int, int, int]:
        if hasattr(item, "shape"):  # frames of a clip
            return int(item.shape[0]), int(item.shape[1]), int(item.shape[2])
        width, height = item.size
        return 1, int(height), int(width)


def ernie(words: Any, model: Any) -> Any:
    return Ernie(words, model.patch)

"""A family's processors: transformers' own classes with tiny settings, and the engine's processor around them.

| spec field | adapter field | engine field |
| --- | --- | --- |
| family | PromptTable.family | the processor class of the engine that serves it, and its configuration |

Faked: the tokenizer (one word, one token; the family's special tokens) and the files of a checkpoint. The engine's
flags say: no pool of processor workers, small videos stay small.
"""

from __future__ import annotations

import copy
import functools
import importlib
from dataclasses import dataclass
from typing import Any

from ropecheck.adapters import family_configs
from ropecheck.adapters.sglang.imports import imported
from ropecheck.adapters.sglang_families.handler import ROPE_INDEX

FAKED = ("tokenizer: one word, one token", "server flags: no processor workers, no smallest video")

SPECIAL = {
    "vision_start": "<|vision_start|>",
    "vision_end": "<|vision_end|>",
    "image": "<|image_pad|>",
    "video": "<|video_pad|>",
}

PROCESSORS = "sglang.srt.multimodal.processors."
QWEN = ("qwen_vl", "QwenVLImageProcessor")


@dataclass(frozen=True, slots=True)
class Model:
    """How a family's processors are built."""

    processor: str
    """Class in transformers."""
    video_processor: str
    patch: int


_QWEN3 = Model("Qwen3VLProcessor", "Qwen3VLVideoProcessor", 16)

MODELS: dict[str, Model] = {
    "qwen2_vl": Model("Qwen2VLProcessor", "Qwen2VLVideoProcessor", 14),
    "qwen2_5_vl": Model("Qwen2_5_VLProcessor", "Qwen2VLVideoProcessor", 14),
    **dict.fromkeys(("qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe", "qwen4_exp", "cosmos3_omni"), _QWEN3),
}
"""Families whose routes are driven."""

SECTIONS = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [16, 24, 24]}
"""As the published checkpoints' config.json has them: a table of three rows is read."""

FRAMES_PER_STEP = 2
LARGEST = 1 << 26
"""Pixels; nothing here is resized for being large."""


def tokenizer() -> Any:
    """Words and the family's special tokens; timestamps in pieces. What is decoded is what was encoded."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    space = "\u0120"  # as byte-level tokenizers write it
    pieces = ("<pad>", "<unk>", "w", f"{space}w", space, f"{space}seconds", "<", ">", ".", *"0123456789")
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    words.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=words,
        unk_token="<unk>",
        pad_token="<pad>",
        clean_up_tokenization_spaces=False,
        additional_special_tokens=list(SPECIAL.values()),
    )


def token_ids(words: Any) -> dict[str, int]:
    """The configuration fields that name special tokens."""
    ids = {name: words.convert_tokens_to_ids(token) for name, token in SPECIAL.items()}
    return {
        "image_token_id": ids["image"],
        "video_token_id": ids["video"],
        "vision_start_token_id": ids["vision_start"],
        "vision_end_token_id": ids["vision_end"],
    }


def hf_processor(family: str, words: Any) -> Any:
    """The processor of transformers, built without a file."""
    transformers: Any = importlib.import_module("transformers")
    model = MODELS[family]
    settings: dict[str, Any] = {"patch_size": model.patch, "merge_size": 2, "temporal_patch_size": FRAMES_PER_STEP}
    size = {"shortest_edge": (2 * model.patch) ** 2, "longest_edge": LARGEST}
    images = transformers.Qwen2VLImageProcessor(**settings, size=size)
    videos = getattr(transformers, model.video_processor)(**settings, size=size)
    return getattr(transformers, model.processor)(image_processor=images, tokenizer=words, video_processor=videos)


@functools.lru_cache(maxsize=32)
def engine_processor(family: str, config: tuple[tuple[str, int], ...], module: str, name: str) -> Any:
    """The engine's processor of a family. Raises what `imported` raises."""
    cls = getattr(imported(PROCESSORS + module), name)
    words = tokenizer()
    fields = {key: value for key, value in config if not key.endswith("token_id")} | token_ids(words)
    built = copy.deepcopy(family_configs.build(family, fields))
    built.model_type = ROPE_INDEX[family]
    built.text_config.rope_parameters = dict(SECTIONS)
    flags()
    built_for_cpus(module)
    made = cls(built, _ServerArgs(), hf_processor(family, words), "default", skip_mm_pool=True)
    made.ropecheck_family = family
    return made


class _ServerArgs:
    ropecheck_stand_in = True
    base_gpu_id = 0


_KEPT: list[Any] = []


def flags() -> None:
    """Once: what a server's start would have put into the published arguments."""
    if _KEPT:
        return
    mm = imported("sglang.srt.runtime_context").get_mm()
    held = mm.override(mm_process_config={"video": {"min_pixels": 1, "max_pixels": LARGEST}}, mm_processor_worker_num=1)
    held.__enter__()
    _KEPT.append(held)  # a collected override would restore what it overrode


def built_for_cpus(module: str) -> None:
    """The module's pinned memory asks for a driver."""
    found = imported(PROCESSORS + module)
    if hasattr(found, "is_cpu"):
        found.is_cpu = lambda: True

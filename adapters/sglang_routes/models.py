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
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ropecheck.adapters import family_configs
from ropecheck.adapters.sglang.imports import imported
from ropecheck.adapters.sglang_families.handler import PROCESSORS, ROPE_INDEX
from ropecheck.adapters.sglang_routes import processors

FAKED = (
    *processors.FAKED,
    "tokenizer: one word, one token",
    "server flags: no processor workers, no smallest video",
    "Cosmos3-Edge's projector_config, which the checkpoint's own configuration has and transformers' class has not",
)

MODULES = "sglang.srt.multimodal.processors."

Marks = dict[str, str]
"""Kind of item -> what a client writes where it stands."""


@dataclass(frozen=True, slots=True)
class Model:
    """How a family's processors are built, and what a client of it writes."""

    built: Callable[[Any, Model], Any]
    """The tokenizer -> the processor of transformers."""
    tokens: dict[str, str]
    """Field of the configuration -> special token."""
    marks: Marks
    patch: int
    per_step: int = 2
    """Frames of a clip in one temporal step."""
    names: dict[str, str] = field(default_factory=dict)
    """Attribute of the tokenizer -> special token, as the checkpoint's tokenizer_config.json has them."""
    flags: dict[str, dict[str, Any]] = field(default_factory=dict)
    """--mm-process-config."""
    audio: bool = False


def around(start: str, item: str, end: str) -> str:
    return f"<|{start}|><|{item}|><|{end}|>"


_VISION = {"image": around("vision_start", "image_pad", "vision_end")}
_QWEN_MARKS = _VISION | {"video": around("vision_start", "video_pad", "vision_end")}
_AUDIO_MARK = {"audio": around("audio_start", "audio_pad", "audio_end")}
_QWEN_TOKENS = {
    "image_token_id": "<|image_pad|>",
    "video_token_id": "<|video_pad|>",
    "vision_start_token_id": "<|vision_start|>",
    "vision_end_token_id": "<|vision_end|>",
}
_AUDIO_NAMES = {
    "audio_token": "<|audio_pad|>",
    "audio_bos_token": "<|audio_start|>",
    "audio_eos_token": "<|audio_end|>",
}
_GLM_TOKENS = {
    "image_token_id": "<|image|>",
    "video_token_id": "<|video|>",
    "image_start_token_id": "<|begin_of_image|>",
    "image_end_token_id": "<|end_of_image|>",
    "video_start_token_id": "<|begin_of_video|>",
    "video_end_token_id": "<|end_of_video|>",
}
_GLM_MARKS = {
    "image": around("begin_of_image", "image", "end_of_image"),
    "video": around("begin_of_video", "video", "end_of_video"),
}
_SMALL_CLIPS: dict[str, dict[str, Any]] = {"video": {"min_pixels": 1, "max_pixels": processors.LARGEST}}
_SMALL_PICTURES = {"image": {"min_pixels": 1, "max_pixels": processors.LARGEST}}

_QWEN2 = Model(processors.qwen("Qwen2VLProcessor"), _QWEN_TOKENS, _QWEN_MARKS, 14, flags=_SMALL_CLIPS)
_QWEN2_5 = Model(processors.qwen("Qwen2_5_VLProcessor"), _QWEN_TOKENS, _QWEN_MARKS, 14, flags=_SMALL_CLIPS)
_QWEN3 = Model(
    processors.qwen("Qwen3VLProcessor", "Qwen3VLVideoProcessor"), _QWEN_TOKENS, _QWEN_MARKS, 16, flags=_SMALL_CLIPS
)
_GLM_SMALL = processors.vision("Glm4vProcessor", "Glm4vImageProcessor", "Glm4vVideoProcessor")
_GLM_LARGE = processors.vision("Glm46VProcessor", "Glm46VImageProcessor", "Glm46VVideoProcessor")
_GLM4 = Model(_GLM_SMALL, _GLM_TOKENS, _GLM_MARKS, 14)
_GLM4_6 = Model(_GLM_LARGE, _GLM_TOKENS, _GLM_MARKS, 14)

MODELS: dict[str, Model] = {
    "qwen2_vl": _QWEN2,
    "qwen2_5_vl": _QWEN2_5,
    **dict.fromkeys(("qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe", "qwen4_exp", "cosmos3_omni"), _QWEN3),
    "cosmos3_edge": Model(processors.none, _QWEN_TOKENS, _QWEN_MARKS, 16, per_step=1, flags=_SMALL_PICTURES),
    "qwen3_omni": Model(
        processors.omni,
        _QWEN_TOKENS | {"audio_token_id": "<|audio_pad|>", "audio_start_token_id": "<|audio_start|>"},
        _QWEN_MARKS | _AUDIO_MARK,
        16,
        names={
            "image_token": "<|image_pad|>",
            "video_token": "<|video_pad|>",
            "vision_bos_token": "<|vision_start|>",
            "vision_eos_token": "<|vision_end|>",
            **_AUDIO_NAMES,
        },
        flags={"video": _SMALL_CLIPS["video"] | {"size": {"shortest_edge": 1, "longest_edge": processors.LARGEST}}},
        audio=True,
    ),
    "qwen3_asr": Model(
        processors.speech, {"audio_token_id": "<|audio_pad|>"}, _AUDIO_MARK, 14, names=_AUDIO_NAMES, audio=True
    ),
    "glm4_1v": _GLM4,
    "glm4_5v": _GLM4,
    "glm4_6v": _GLM4_6,
    "glm_ocr": _GLM4_6,
    "paddleocr_vl": Model(
        processors.vision("PaddleOCRVLProcessor", "PaddleOCRVLImageProcessor"),
        {
            "image_token_id": "<|IMAGE_PLACEHOLDER|>",
            "video_token_id": "<|video_pad|>",
            "vision_start_token_id": "<|IMAGE_START|>",
            "vision_end_token_id": "<|IMAGE_END|>",
        },
        {"image": around("IMAGE_START", "IMAGE_PLACEHOLDER", "IMAGE_END")},
        14,
        names={"image_token": "<|IMAGE_PLACEHOLDER|>"},
    ),
    "ernie4_5_vl": Model(
        processors.ernie,
        {
            "im_patch_id": "<|IMAGE_PLACEHOLDER|>",
            "image_token_id": "<|IMAGE_PLACEHOLDER|>",
            "video_token_id": "<|IMAGE_PLACEHOLDER|>",
            "image_start_token_id": "<|IMAGE_START|>",
            "image_end_token_id": "<|IMAGE_END|>",
            "video_start_token_id": "<|VIDEO_START|>",
            "video_end_token_id": "<|VIDEO_END|>",
        },
        {
            "image": around("IMAGE_START", "image@placeholder", "IMAGE_END"),
            "video": around("VIDEO_START", "video@placeholder", "VIDEO_END"),
        },
        14,
        per_step=1,
    ),
    "minicpm_v4_7": Model(
        processors.none,
        {
            "image_token_id": "<|image_pad|>",
            "video_token_id": "<|video_pad|>",
            "image_start_id": "<image>",
            "image_end_id": "</image>",
            "slice_start_id": "<slice>",
            "slice_end_id": "</slice>",
            "newline_id": "\n",
        },
        {"image": "<|image_pad|>", "video": "<|video_pad|>"},
        14,
        per_step=1,
    ),
    "glm_image": Model(
        processors.drawing,
        {
            "image_token_id": "<|image|>",
            "image_start_token_id": "<|dit_token_16384|>",
            "image_end_token_id": "<|dit_token_16385|>",
        },
        {"image": around("dit_token_16384", "image", "dit_token_16385")},
        32,
        names={
            "image_token": "<|image|>",
            "grid_bos_token": "<sop>",
            "grid_eos_token": "<eop>",
            "bos_token": "<|dit_token_16384|>",
        },
    ),
}
"""Families whose routes are driven."""

SECTIONS = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [16, 24, 24]}
"""As the published checkpoints' config.json has them: a table of three rows is read."""

PIECES = ("<pad>", "<unk>", "w", "\u0120w", "\u0120", "\u0120seconds", "<", ">", ".", "\u010a", *"0123456789")
"""Ordinary tokens, as byte-level tokenizers write them: a word, timestamps in pieces, a newline."""
CLIENTS = ("w", "\u0120w")
"""Of these what a client writes."""
UNNAMED = ("<image_id>", "</image_id>", "<|placeholder|>")
"""Special tokens that no configuration names."""


def tokenizer(model: Model) -> Any:
    """Words and the family's special tokens. What is decoded is what was encoded."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {piece: number for number, piece in enumerate(PIECES)}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    words.decoder = decoders.ByteLevel()
    special = {*model.tokens.values(), *model.names.values(), *UNNAMED} - {"\n"}
    for mark in model.marks.values():
        special |= set(mark.replace("|><|", "|>\n<|").split("\n"))
    unnamed = sorted(special - set(model.names.values()))
    return PreTrainedTokenizerFast(
        tokenizer_object=words,
        unk_token="<unk>",
        pad_token="<pad>",
        clean_up_tokenization_spaces=False,
        extra_special_tokens=model.names | {f"special_{number}": token for number, token in enumerate(unnamed)},
    )


def token_ids(words: Any, model: Model) -> dict[str, int]:
    """The configuration fields that name special tokens."""
    return {name: words.encode(token, add_special_tokens=False)[0] for name, token in model.tokens.items()}


class Lacking(LookupError):
    """This release has no such processor, or none that can be built so."""


@functools.lru_cache(maxsize=64)
def engine_processor(family: str, config: tuple[tuple[str, int], ...], module: str, name: str) -> Any:
    """The engine's processor of a family. Raises Lacking, NoConfiguration and what `imported` raises."""
    cls = getattr(imported(MODULES + module), name, None)
    if cls is None:
        raise Lacking(f"this release has no {name}")
    if not hasattr(imported("sglang.srt.runtime_context"), "get_mm"):
        raise Lacking("this release's processors find a server's media options in its arguments alone")
    model = MODELS[family]
    words = tokenizer(model)
    ids = token_ids(words, model)
    built = configuration(family, {key: value for key, value in config if not key.endswith("_id")} | ids)
    flags()
    built_for_cpus(module)
    with imported("sglang.srt.runtime_context").get_mm().override(mm_process_config=copy.deepcopy(model.flags)):
        made = cls(built, _ServerArgs(), model.built(words, model), "default", skip_mm_pool=True)
    made.ropecheck_family = family
    return made


def engine_class(family: str) -> tuple[str, str]:
    """Module and name of the engine's processor class."""
    return PROCESSORS[family]


def configuration(family: str, fields: dict[str, int]) -> Any:
    """A configuration that the engine's processor may change, as the checkpoint's file would give it."""
    import types

    built = copy.deepcopy(family_configs.build(family, fields))
    if family == "minicpm_v4_7":
        built.mrope_mode, built.vision_config.patch_size = "canvas", MODELS[family].patch
        for key, value in fields.items():
            setattr(built, key, value)
        return built
    if family == "cosmos3_edge":
        built.projector_config = types.SimpleNamespace(spatial_merge_size=fields["vision_config.spatial_merge_size"])
    if family in ROPE_INDEX:
        built.model_type = ROPE_INDEX[family]
    if family == "qwen3_omni":
        built.text_config.rope_parameters = dict(SECTIONS)
        whole = types.SimpleNamespace(model_type="qwen3_omni_moe", thinker_config=built)
        return whole
    if hasattr(built, "text_config"):
        built.text_config.rope_parameters = dict(SECTIONS)
    return built


class _ServerArgs:
    ropecheck_stand_in = True
    base_gpu_id = 0


_KEPT: list[Any] = []


def flags() -> None:
    """Once: what a server's start would have put into the published arguments."""
    if _KEPT:
        return
    held = imported("sglang.srt.runtime_context").get_mm().override(mm_process_config={}, mm_processor_worker_num=1)
    held.__enter__()
    _KEPT.append(held)  # a collected override would restore what it overrode


def built_for_cpus(module: str) -> None:
    """The module's pinned memory asks for a driver, and so do pictures where nothing asks whether there is a GPU."""
    found, base = imported(MODULES + module), imported(MODULES + "base_processor")
    if hasattr(found, "is_cpu"):
        found.is_cpu = lambda: True
    if not hasattr(base, "platforms"):  # up to 0.5.20
        base._is_cpu = True

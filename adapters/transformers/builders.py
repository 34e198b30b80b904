"""Calls `get_rope_index` of a model class on a stand-in for the model.

| spec field | adapter field | transformers |
| --- | --- | --- |
| history | PromptTable.ids, kinds, grids, .. | the arguments of `get_rope_index` |
| table, delta | PromptTables.table, delta | the two tensors that it returns |
| GLM-Image's columns ahead | PromptTables.ahead | `_cached_decode_position_ids` |

Faked: the model itself. `StandIn` carries the real configuration and lends the class's own methods; whatever else a
builder asks of the model raises AttributeError.
"""

from __future__ import annotations

import importlib
import inspect
import types
from collections.abc import Callable
from typing import Any

from ropecheck.adapters import family_configs, protocol

FAKED = ("the model object: a stand-in with the real configuration and the model class's own methods",)

MODELS: dict[str, str] = {
    "qwen2_vl": "Qwen2VLModel",
    "qwen2_5_vl": "Qwen2_5_VLModel",
    "qwen3_vl": "Qwen3VLModel",
    "qwen3_vl_moe": "Qwen3VLMoeModel",
    "qwen3_5": "Qwen3_5Model",
    "qwen3_5_moe": "Qwen3_5MoeModel",
    "qwen4_exp": "Qwen4ExpModel",
    "cosmos3_omni": "Cosmos3OmniModel",
    "cosmos3_edge": "Cosmos3EdgeModel",
    "cohere_compass": "CohereCompassModel",
    "qwen2_5_omni": "Qwen2_5OmniPreTrainedModelForConditionalGeneration",
    "qwen3_omni": "Qwen3OmniMoePreTrainedModelForConditionalGeneration",
    "glm4_1v": "Glm4vModel",
    "glm4_5v": "Glm4vMoeModel",
    "glm4_6v": "Glm46VModel",
    "glm_ocr": "GlmOcrModel",
    "ernie4_5_vl": "Ernie4_5_VLMoeModel",
    "paddleocr_vl": "PaddleOCRVLModel",
    "hunyuan_vl": "HunYuanVLModel",
    "glm_image": "GlmImageModel",
    "minicpm_v4_7": "MiniCPMV4_7Model",
}
"""family -> the class that defines get_rope_index."""

_OMNI = ("qwen2_5_omni", "qwen3_omni")


class ModelStandIn:
    """In the model's place: its configuration and its class's functions, nothing else."""

    def __init__(self, cls: type, config: Any) -> None:
        self._cls = cls
        self.config = config

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._cls, name, None)
        if not isinstance(found, types.FunctionType):
            raise AttributeError(f"the stand-in for {self._cls.__name__} has no {name}")
        if isinstance(inspect.getattr_static(self._cls, name), staticmethod):
            return found
        return types.MethodType(found, self)


def model_class(family: str) -> type | None:
    """The class whose get_rope_index is called; None when the installed transformers has no such model."""
    module = family_configs.CLASSES[family][0]
    try:
        package = importlib.import_module(f"transformers.models.{module}.modeling_{module}")
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("transformers.models."):
            raise
        return None
    found: type | None = getattr(package, MODELS[family], None)
    return found if hasattr(found, "get_rope_index") else None


def found() -> dict[str, str]:
    """Family -> its class's name, "" when this release has none. Imports them all, which takes seconds once."""
    return {family: name if model_class(family) else "" for family, name in MODELS.items()}


def directly(function: Callable[..., Any], **kwargs: Any) -> Any:
    """Call it; the worker also takes the time."""
    return function(**kwargs)


def prompt_table(
    step: protocol.PromptTable, device: str = "cpu", call: Callable[..., Any] = directly
) -> protocol.Result:
    """The builder's answer, called through `call`. Whatever it raises passes through."""
    import torch

    if step.family not in MODELS:
        return protocol.NotOfferedAnswer(f"this adapter knows no transformers class for {step.family}")
    if step.builder != "rope_index":
        return protocol.NotOfferedAnswer(f"transformers has no builder {step.builder!r}")

    def tensor(values: Any) -> Any:
        return None if values is None else torch.tensor(values, device=device)

    cls = model_class(step.family)
    if cls is None:
        return protocol.NotOfferedAnswer(f"the installed transformers has no {MODELS[step.family]} that builds tables")
    model = ModelStandIn(cls, family_configs.build(step.family, step.config))
    arguments: dict[str, Any] = {
        "input_ids": tensor(step.ids),
        "image_grid_thw": tensor(step.image_grids),
        "video_grid_thw": tensor(step.video_grids),
        "attention_mask": tensor(step.mask),
    }
    if step.family in _OMNI:
        vars(model)["spatial_merge_size"] = model.config.vision_config.spatial_merge_size
        arguments |= {
            "use_audio_in_video": step.audio_in_video,
            "audio_seqlens": tensor(step.audio_features),
            "second_per_grids": tensor(step.seconds_per_grid),
        }
    elif step.family == "minicpm_v4_7":
        del arguments["image_grid_thw"], arguments["video_grid_thw"]
        arguments["mm_token_type_ids"] = tensor(step.kinds)
        arguments["target_sizes"] = tensor(crops(step.image_grids))
        arguments["target_sizes_videos"] = tensor(crops(step.video_grids))
    elif step.family == "glm_image":
        del arguments["video_grid_thw"]
        arguments["images_per_sample"] = tensor(step.images_per_prompt)
    else:
        arguments["mm_token_type_ids"] = tensor(step.kinds)
        if step.seconds_per_grid is not None:
            arguments["second_per_grid_ts"] = tensor(step.seconds_per_grid)
    table, delta = call(model.get_rope_index, **arguments)
    ahead = vars(model).get("_cached_decode_position_ids")
    ran = f"{cls.__module__}.{cls.__qualname__}.get_rope_index"
    return protocol.PromptTables(pack(table), pack(delta), None if ahead is None else pack(ahead), ran)


def crops(grids: tuple[tuple[int, int, int], ...] | None) -> list[tuple[int, int]] | None:
    """Heights and widths: a crop has no time."""
    return None if grids is None else [(h, w) for _, h, w in grids]


def pack(tensor: Any) -> protocol.Tensor:
    """A tensor as the protocol carries it."""
    host = tensor.cpu().contiguous()
    return protocol.Tensor(str(host.dtype).removeprefix("torch."), tuple(host.shape), host.numpy().tobytes())

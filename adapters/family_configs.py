"""The real configuration object of a model family, from transformers, with the fields that a step names.

| spec field | adapter field | engine field |
| --- | --- | --- |
| family | PromptTable.family | the configuration class in `CLASSES` |
| token ids, merges, rates | PromptTable.config | fields of that class, dotted where nested |

Nothing is faked: a configuration carries no weights. `EXTRA` holds fields that the published checkpoints' config.json
sets and the class does not declare.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

CLASSES: dict[str, tuple[str, str]] = {
    "qwen2_vl": ("qwen2_vl", "Qwen2VLConfig"),
    "qwen2_5_vl": ("qwen2_5_vl", "Qwen2_5_VLConfig"),
    "qwen3_vl": ("qwen3_vl", "Qwen3VLConfig"),
    "qwen3_vl_moe": ("qwen3_vl_moe", "Qwen3VLMoeConfig"),
    "qwen3_5": ("qwen3_5", "Qwen3_5Config"),
    "qwen3_5_moe": ("qwen3_5_moe", "Qwen3_5MoeConfig"),
    "qwen4_exp": ("qwen4_exp", "Qwen4ExpConfig"),
    "cosmos3_omni": ("cosmos3_omni", "Cosmos3OmniConfig"),
    "cosmos3_edge": ("cosmos3_edge", "Cosmos3EdgeConfig"),
    "cohere_compass": ("cohere_compass", "CohereCompassConfig"),
    "qwen2_5_omni": ("qwen2_5_omni", "Qwen2_5OmniThinkerConfig"),
    "qwen3_omni": ("qwen3_omni_moe", "Qwen3OmniMoeThinkerConfig"),
    "qwen3_asr": ("qwen3_asr", "Qwen3ASRConfig"),
    "glm4_1v": ("glm4v", "Glm4vConfig"),
    "glm4_5v": ("glm4v_moe", "Glm4vMoeConfig"),
    "glm4_6v": ("glm46v", "Glm46VConfig"),
    "glm_ocr": ("glm_ocr", "GlmOcrConfig"),
    "ernie4_5_vl": ("ernie4_5_vl_moe", "Ernie4_5_VLMoeConfig"),
    "paddleocr_vl": ("paddleocr_vl", "PaddleOCRVLConfig"),
    "hunyuan_vl": ("hunyuan_vl", "HunYuanVLConfig"),
    "glm_image": ("glm_image", "GlmImageConfig"),
    "minicpm_v4_7": ("minicpmv4_7", "MiniCPMV4_7Config"),
}
"""family -> (module under transformers.models, class)."""

EXTRA: dict[str, dict[str, Any]] = {
    "hunyuan_vl": {
        "text_config": {
            "hidden_size": 64,
            "num_attention_heads": 1,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10000.0,
                "mrope_section": [8, 8, 8, 8],
            },
        }
    },
}


class NoConfiguration(LookupError):
    """The installed transformers has no configuration class of the family; the message names it."""


def build(family: str, fields: dict[str, int]) -> Any:
    """The configuration object, made once for each set of fields: builders only read it, and it takes longer than they.

    Raises KeyError for a family that is not in `CLASSES`, NoConfiguration for one that transformers lacks.
    """
    return _build(family, tuple(sorted(fields.items())))


@functools.lru_cache(maxsize=64)
def _build(family: str, fields: tuple[tuple[str, int], ...]) -> Any:
    module, name = CLASSES[family]
    arguments: dict[str, Any] = {}
    for key, value in EXTRA.get(family, {}).items():
        arguments[key] = dict(value) if isinstance(value, dict) else value
    for path, value in fields:
        *outer, field = path.split(".")
        place = arguments
        for part in outer:
            place = place.setdefault(part, {})
        place[field] = value
    try:
        package = importlib.import_module(f"transformers.models.{module}.configuration_{module}")
        cls = getattr(package, name)
    except (ImportError, AttributeError):
        import transformers

        raise NoConfiguration(f"transformers {transformers.__version__} has no {name}") from None
    return cls(**arguments)

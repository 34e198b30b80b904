"""Random networks of two layers, float32, in which positions matter: attention is sharp, so a token at a wrong
position changes what the network says."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ropecheck.adapters.toys import words

HIDDEN = 128
TEXT: dict[str, Any] = {
    "vocab_size": words.VOCABULARY,
    "hidden_size": HIDDEN,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": False,
    "bos_token_id": words.START,
    "eos_token_id": words.STOP,
    "pad_token_id": words.PAD,
}
IDS = {
    "image_token_id": words.SPECIAL["<|image_pad|>"],
    "video_token_id": words.SPECIAL["<|video_pad|>"],
    "vision_start_token_id": words.SPECIAL["<|vision_start|>"],
    "vision_end_token_id": words.SPECIAL["<|vision_end|>"],
}
SECTIONS = {"rope_type": "default", "rope_theta": 1000.0, "mrope_section": [4, 6, 6]}
"""Half a head: 16 frequencies. A small base, so that all of them turn within a toy prompt."""


def make(family: str, folder: Path, seed: int = 0) -> None:
    """Write a checkpoint of the family into the folder."""
    torch: Any = importlib.import_module("torch")
    torch.manual_seed(seed)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = words.save(folder, family)
    model = MAKERS[family](folder, tokenizer)
    sharpen(torch, model)
    model.to(torch.float32).save_pretrained(folder)


def sharpen(torch: Any, model: Any) -> None:
    """Weights of about unit gain; queries and keys four times that."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() < 2:
                continue
            gain = 4.0 if any(part in name for part in ("q_proj", "k_proj")) else 1.0
            std = 1.0 if "embed_tokens" in name else gain / weight[0].numel() ** 0.5
            weight.normal_(0.0, std)
            if name.startswith("lm_head"):  # it never says a special token: answers may stand in any prompt
                weight[sorted([words.PAD, words.START, words.STOP, *words.SPECIAL.values()])] = 0.0


VISION = {
    "depth": 2,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_heads": 4,
    "out_hidden_size": HIDDEN,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
}
"""Of every family's vision tower."""


def qwen2_5_vl(folder: Path, tokenizer: Any) -> Any:
    """Qwen2.5-VL: consecutive sections."""
    transformers: Any = importlib.import_module("transformers")
    config = transformers.Qwen2_5_VLConfig(
        text_config={**TEXT, "rope_parameters": SECTIONS},
        vision_config={
            **VISION,
            "patch_size": 14,
            "window_size": 112,
            "fullatt_block_indexes": [1],
            "tokens_per_second": 2,
        },
        **IDS,
        tie_word_embeddings=False,
    )
    config.architectures = ["Qwen2_5_VLForConditionalGeneration"]
    processor(folder, tokenizer, "Qwen2_5_VLProcessor", "Qwen2VLVideoProcessor", 14)
    return transformers.Qwen2_5_VLForConditionalGeneration(config)


def qwen3_vl(folder: Path, tokenizer: Any) -> Any:
    """Qwen3-VL: interleaved sections, features of an inner layer added to the first of the text's."""
    transformers: Any = importlib.import_module("transformers")
    config = transformers.Qwen3VLConfig(
        text_config={**TEXT, "head_dim": 32, "rope_parameters": {**SECTIONS, "mrope_interleaved": True}},
        vision_config={
            **VISION,
            "patch_size": 16,
            "num_position_embeddings": 256,
            "deepstack_visual_indexes": [0],
        },
        **IDS,
        tie_word_embeddings=False,
    )
    config.architectures = ["Qwen3VLForConditionalGeneration"]
    processor(folder, tokenizer, "Qwen3VLProcessor", "Qwen3VLVideoProcessor", 16)
    return transformers.Qwen3VLForConditionalGeneration(config)


def glm4_1v(folder: Path, tokenizer: Any) -> Any:
    """GLM-4.1V: half a head is turned, neighbours in pairs."""
    transformers: Any = importlib.import_module("transformers")
    rope = {**SECTIONS, "mrope_section": [2, 3, 3], "partial_rotary_factor": 0.5}
    config = transformers.Glm4vConfig(
        text_config={**TEXT, "rope_parameters": rope},
        vision_config={
            **VISION,
            "patch_size": 14,
            "image_size": 224,
        },
        image_token_id=words.GLM["image"],
        video_token_id=words.GLM["video"],
        **{
            f"{kind}_{end}_token_id": words.GLM[f"{name}_of_{kind}"]
            for kind in ("image", "video")
            for end, name in (("start", "begin"), ("end", "end"))
        },
        tie_word_embeddings=False,
    )
    config.architectures = ["Glm4vForConditionalGeneration"]
    processor(folder, tokenizer, "Glm4vProcessor", "Glm4vVideoProcessor", 14, images="Glm4vImageProcessor")
    return transformers.Glm4vForConditionalGeneration(config)


def processor(
    folder: Path, tokenizer: Any, name: str, videos: str, patch: int, images: str = "Qwen2VLImageProcessor"
) -> None:
    """The processor's files: nothing is resized beyond the merge."""
    transformers: Any = importlib.import_module("transformers")
    size = {"shortest_edge": (2 * patch) ** 2, "longest_edge": 1 << 22}
    settings: dict[str, Any] = {"patch_size": patch, "merge_size": 2, "temporal_patch_size": 2, "size": size}
    made = getattr(transformers, name)(
        image_processor=getattr(transformers, images)(**settings),
        tokenizer=tokenizer,
        video_processor=getattr(transformers, videos)(**settings),
    )
    made.save_pretrained(folder)


MAKERS: dict[str, Callable[[Path, Any], Any]] = {
    "qwen2_5_vl": qwen2_5_vl,
    "qwen3_vl": qwen3_vl,
    "glm4_1v": glm4_1v,
}
"""Family of the specification -> what writes its processor and returns its model."""

DRAFTS = {
    "eagle": "LlamaForCausalLMEagle",
    "eagle3": "LlamaForCausalLMEagle3",
    "dflash": "DFlashDraftModel",
    "dspark": "DSparkDraftModel",
}
"""Draft models, a configuration alone, to be loaded with random weights: name -> architecture."""


def draft(name: str, folder: Path) -> None:
    """Write a draft's configuration. It shares the toy's vocabulary and width."""
    folder.mkdir(parents=True, exist_ok=True)
    text = {**TEXT, "num_hidden_layers": 1, "rope_theta": 1000.0, "hidden_act": "silu", "rms_norm_eps": 1e-5}
    (folder / "config.json").write_text(json.dumps(draft_config(name, text) | {"torch_dtype": "float32"}), "utf-8")


def draft_config(name: str, text: dict[str, Any]) -> dict[str, Any]:
    """The smallest configuration of this kind that engines take, as wide as the text model of a target."""
    about = text | {"architectures": [DRAFTS[name]], "model_type": "llama", "tie_word_embeddings": False}
    if name == "eagle3":
        return about | {"draft_vocab_size": text["vocab_size"]}
    if name == "eagle":
        return about
    plain = {key: about[key] for key in about if key != "rope_scaling"} | {"model_type": "qwen3"}
    block = {"target_layer_ids": [0], "num_target_layers": 1, "mask_token_id": 500}
    if name == "dflash":
        return plain | {"block_size": 4, "dflash_config": block}
    return plain | block | {"block_size": 3, "markov_rank": 4, "markov_head_type": "vanilla"}

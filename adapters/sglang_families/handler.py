"""Calls SGLang's prompt-table builders, as the processors call them, on the family's real configuration.

| spec field | adapter field | engine field |
| --- | --- | --- |
| history | PromptTable.ids, grids, .. | arguments of `get_rope_index`, or `MultimodalDataItem`s |
| table, delta | PromptTables.table, delta | the two tensors that it returns |

Faked: the processor object. `Lender` carries the fields that its constructor would set from the configuration and
lends the class's own methods; whatever else a builder asks of it raises AttributeError.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from ropecheck.adapters import family_configs, protocol
from ropecheck.adapters.sglang.imports import imported

FAKED = ("the multimodal processor: a stand-in with the fields that its constructor takes from the configuration",)

ROPE_INDEX: dict[str, str] = {
    "qwen2_vl": "qwen2_vl",
    "qwen2_5_vl": "qwen2_5_vl",
    "qwen3_vl": "qwen3_vl",
    "paddleocr_vl": "paddleocr_vl",
    "qwen3_omni": "qwen3_omni_moe",
    **{name: name for name in ("qwen3_vl_moe", "qwen3_5", "qwen3_5_moe", "qwen4_exp", "cosmos3_omni", "cosmos3_edge")},
}
"""Families of `get_rope_index` -> the model_type that selects their branch."""

GLM = ("glm4_1v", "glm4_5v", "glm4_6v", "glm_ocr")

PROCESSORS: dict[str, tuple[str, str]] = {
    **dict.fromkeys(GLM, ("glm4v", "Glm4vImageProcessor")),
    "ernie4_5_vl": ("ernie45_vl", "Ernie4_5_VLImageProcessor"),
    "paddleocr_vl": ("paddleocr_vlm", "PaddleOCRVLImageProcessor"),
    **dict.fromkeys((name for name in ROPE_INDEX if name != "paddleocr_vl"), ("qwen_vl", "QwenVLImageProcessor")),
    "cosmos3_edge": ("cosmos3_edge", "Cosmos3EdgeProcessor"),
    "qwen3_asr": ("qwen3_asr", "Qwen3ASRMultimodalProcessor"),
    "minicpm_v4_7": ("minicpmv4_7", "MiniCPMV4_7MultimodalProcessor"),
    "glm_image": ("glm_image", "GlmImageProcessor"),
}
"""family -> module among the processors, and its class."""

PROCESSOR_PLACE = "sglang.srt.multimodal.processors.{}"

GLM_IMAGE_MODULE = "glm_image"

ABSENT: dict[str, str] = {
    "qwen2_5_omni": "SGLang has no Qwen2.5-Omni model: get_rope_index refuses its model_type",
    "hunyuan_vl": "SGLang has no HunYuan-VL model and no table of four rows",
    "cohere_compass": "SGLang has no Cohere Compass model: get_rope_index refuses its model_type",
}

NO_RATE = "rope_index without a rate"
"""As a processor calls it that knows no positions per second (MiMo-V2's)."""

ITEMS_ONLY = ("qwen3_asr", "minicpm_v4_7")
"""Families whose one builder is the processor's `compute_mrope_positions`."""


class Lender:
    """In a processor's place: fields set by hand and the class's own functions."""

    ropecheck_stand_in = True  # an AttributeError of this object is the adapter's fault

    def __init__(self, cls: type, **fields: Any) -> None:
        self._cls = cls
        vars(self).update(fields)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._cls, name, None)
        if isinstance(found, types.FunctionType):
            if isinstance(vars(self._cls).get(name), staticmethod):
                return found
            return types.MethodType(found, self)
        if isinstance(found, types.MethodType):
            return found
        raise AttributeError(f"the stand-in for {self._cls.__name__} has no {name}")


Call = Callable[..., Any]


def directly(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call it; the worker's meter also takes the time."""
    return function(*args, **kwargs)


def prompt_table(step: protocol.PromptTable, device: str = "cpu", call: Call = directly) -> protocol.Result:
    """The builder's answer, called through `call`. Whatever it raises passes through, and what `imported` raises."""
    if step.family in ABSENT:
        return protocol.NotOfferedAnswer(ABSENT[step.family])
    if step.family not in family_configs.CLASSES:
        return protocol.NotOfferedAnswer(f"this adapter knows no builder of {step.family}")
    try:
        config = family_configs.build(step.family, step.config)
    except family_configs.NoConfiguration as lacking:
        return protocol.NotOfferedAnswer(str(lacking))
    if step.builder in ("processor", "offsets") or (step.family in ITEMS_ONLY and not padded(step)):
        return _processor(step, config, call)
    if step.builder not in ("rope_index", NO_RATE):
        return protocol.NotOfferedAnswer(f"SGLang has no builder {step.builder!r}")
    if padded(step):
        return protocol.NotOfferedAnswer("SGLang builds the table of one prompt at a time, never padded")
    if step.family == "glm_image":
        return _glm_image(step, config, call)
    return _rope_index(step, config, device, call)


def padded(step: protocol.PromptTable) -> bool:
    """Whether it is a batch of prompts of different lengths."""
    return step.mask is not None and any(0 in row for row in step.mask)


def processor_module(name: str) -> Any:
    """The module; an empty one where the release lacks it. Raises what `imported` raises."""
    return imported(PROCESSOR_PLACE.format(name)) or types.ModuleType(name)


def _rope_index(step: protocol.PromptTable, config: Any, device: str, call: Call) -> protocol.Result:
    import torch

    MRotaryEmbedding = imported("sglang.srt.layers.rotary_embedding").MRotaryEmbedding

    def tensor(values: Any) -> Any:
        return None if values is None else torch.tensor(values, device=device)

    suffix = "_glm4v" if step.family in GLM else "_ernie45" if step.family == "ernie4_5_vl" else ""
    if not hasattr(MRotaryEmbedding, f"get_rope_index{suffix}"):
        return protocol.NotOfferedAnswer(f"this release has no get_rope_index{suffix}")
    ids, images, videos = tensor(step.ids), tensor(step.image_grids), tensor(step.video_grids)
    if step.family in GLM:
        name = "get_rope_index_glm4v"
        answer = call(
            MRotaryEmbedding.get_rope_index_glm4v,
            input_ids=ids,
            hf_config=config,
            image_grid_thw=images,
            video_grid_thw=videos,
            attention_mask=None,
        )
    elif step.family == "ernie4_5_vl":
        name = "get_rope_index_ernie45"
        answer = call(
            MRotaryEmbedding.get_rope_index_ernie45,
            input_ids=ids,
            hf_config=config,
            image_grid_thw=images,
            video_grid_thw=videos,
        )
    else:
        name = "get_rope_index"
        answer = call(
            MRotaryEmbedding.get_rope_index,
            spatial_merge_size=config.vision_config.spatial_merge_size,
            image_token_id=config.image_token_id,
            video_token_id=config.video_token_id,
            vision_start_token_id=step.config.get("vision_start_token_id"),
            model_type=ROPE_INDEX[step.family],
            tokens_per_second=None
            if step.builder == NO_RATE
            else getattr(config.vision_config, "tokens_per_second", None),
            input_ids=ids,
            image_grid_thw=images,
            video_grid_thw=videos,
            second_per_grid_ts=tensor(step.seconds_per_grid),
            use_audio_in_video=step.audio_in_video,
            audio_seqlens=tensor(step.audio_features),
            audio_token_id=getattr(config, "audio_token_id", None),
            audio_start_token_id=getattr(config, "audio_start_token_id", None),
            position_id_per_seconds=getattr(config, "position_id_per_seconds", None),
        )
    return _packed(answer, f"MRotaryEmbedding.{name}")


def _glm_image(step: protocol.PromptTable, config: Any, call: Call) -> protocol.Result:
    import torch

    found = vars(processor_module(GLM_IMAGE_MODULE)).values()
    classes = [c for c in found if hasattr(c, "_compute_glm_image_mrope_positions")]
    if not classes:
        return protocol.NotOfferedAnswer("this release has no builder for GLM-Image")
    processor = Lender(
        classes[0],
        IMAGE_START_TOKEN_ID=config.image_start_token_id,
        IMAGE_END_TOKEN_ID=config.image_end_token_id,
    )
    grids = None if step.image_grids is None else torch.tensor(step.image_grids)
    answer = call(processor._compute_glm_image_mrope_positions, torch.tensor(step.ids[0]), grids)
    return _packed(answer, f"{classes[0].__name__}._compute_glm_image_mrope_positions")


def _processor(step: protocol.PromptTable, config: Any, call: Call) -> protocol.Result:
    from sglang.srt.managers.schedule_batch import Modality

    if step.family not in PROCESSORS:
        return protocol.NotOfferedAnswer(f"no processor of SGLang computes positions of {step.family} from items")
    module, name = PROCESSORS[step.family]
    cls = getattr(processor_module(module), name, None)
    if step.builder != "offsets" and not hasattr(cls, "compute_mrope_positions"):
        return protocol.NotOfferedAnswer(f"this release has no {name} that computes positions from items")
    if cls is None:
        return protocol.NotOfferedAnswer(f"this release has no {name}")
    vision = getattr(config, "vision_config", None)
    processor = Lender(
        cls,
        hf_config=config,
        model_type=ROPE_INDEX.get(step.family),
        mm_tokens=types.SimpleNamespace(
            image_token_id=getattr(config, "image_token_id", None),
            video_token_id=getattr(config, "video_token_id", None),
        ),
        vision_start_token_id=step.config.get("vision_start_token_id"),
        _spatial_merge_size=getattr(vision, "spatial_merge_size", None),
        _tokens_per_second=getattr(vision, "tokens_per_second", None),
        canvas_token_ids=canvas_token_ids(config),
    )
    items = _items(step, {"image": Modality.IMAGE, "video": Modality.VIDEO, "audio": Modality.AUDIO})
    if step.builder == "offsets":
        return _from_offsets(step, processor, cls, items, call)
    answer = call(processor.compute_mrope_positions, list(step.ids[0]), items)
    return _packed(answer, f"{cls.__name__}.compute_mrope_positions")


def canvas_token_ids(config: Any) -> dict[str, int]:
    """MiniCPM-V's markers, as its processor keeps them; none of another family."""
    names = {"im_start_id": "image_start_id", "im_end_id": "image_end_id"}
    keys = ("im_start_id", "im_end_id", "slice_start_id", "slice_end_id", "newline_id")
    return {key: value for key in keys if (value := getattr(config, names.get(key, key), None)) is not None}


def _from_offsets(
    step: protocol.PromptTable, processor: Any, cls: type, items: list[Any], call: Call
) -> protocol.Result:
    """What `process_mm_data_async` tries first for a prompt without video and audio."""
    import torch

    name = "_compute_image_only_mrope_positions_from_offsets"
    if not hasattr(cls, name):
        return protocol.NotOfferedAnswer(f"{cls.__name__} has no short cut for images")
    answer = call(
        getattr(processor, name),
        input_len=len(step.ids[0]),
        mm_items=items,
        dtype=torch.int64,
        device=torch.device("cpu"),
    )
    if answer is None:
        return protocol.NotOfferedAnswer(f"{cls.__name__} takes its long way for this prompt")
    return _packed(answer, f"{cls.__name__}.{name}")


def _items(step: protocol.PromptTable, modalities: dict[str, Any]) -> list[Any]:
    """One real item per image or video, each with its own grid and interval, as the processors split them."""
    import torch
    from sglang.srt.managers.schedule_batch import MultimodalDataItem

    grids = {"image": iter(step.image_grids or ()), "video": iter(step.video_grids or ())}
    seconds = iter(step.seconds_per_grid or ())
    made = []
    for item in step.items:
        data: dict[str, Any] = {}
        if item.kind in grids and step.family == "minicpm_v4_7":
            if (grid := next(grids[item.kind], None)) is None:
                continue  # a crop comes with its grid or not at all
            data["tgt_size"] = torch.tensor([grid[1:]])
        elif item.kind in grids:
            data[f"{item.kind}_grid_thw"] = torch.tensor([next(grids[item.kind])])
        if item.kind == "video" and step.seconds_per_grid is not None:
            data["second_per_grid_ts"] = torch.tensor([next(seconds)])
        offsets = [(item.start, item.stop - 1)]
        made.append(MultimodalDataItem(modality=modalities[item.kind], offsets=offsets, model_specific_data=data))
    return made


def _packed(answer: Any, ran: str) -> protocol.Result:
    table, delta = answer
    if table is None:
        return protocol.NotOfferedAnswer(f"{ran} builds no table")
    return protocol.PromptTables(_tensor(table), _tensor(delta), None, ran)


def _tensor(tensor: Any) -> protocol.Tensor:
    host = tensor.cpu().contiguous()
    return protocol.Tensor(str(host.dtype).removeprefix("torch."), tuple(host.shape), host.numpy().tobytes())

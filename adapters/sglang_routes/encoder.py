"""The vision tower in another process (EPD): the encoder's own preprocessing, and what the receiver makes of it.

| spec field | adapter field | engine field |
| --- | --- | --- |
| grids, intervals | PromptTable.image_grids, .. | `EncoderPreprocessor.process_mm_items` on the client's files |
| table | PromptTables.table | `get_validated_mm_data` of what was received |

Faked: the towers (their embeddings are zeros of the right number of rows), the transport, and the constructor of the
preprocessor, which reads a checkpoint's files.
"""

from __future__ import annotations

import copy
import types
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ropecheck.adapters.sglang.imports import imported
from ropecheck.adapters.sglang_routes import media, models

FAKED = ("encoder disaggregation: the towers, the transport, and the files of the encoder's preprocessor",)

PLACE = "sglang.srt.disaggregation.encoder."


def received(processor: Any, sent: media.Message, call: Callable[..., Any]) -> Any:
    """The prompt and the items that the receiver builds from every part."""
    import torch

    Modality = imported("sglang.srt.managers.schedule_batch").Modality
    receiver, server = imported(PLACE + "receiver"), imported(PLACE + "server")
    encoder = preprocessor(processor)
    kinds = ((Modality.IMAGE, sent.images), (Modality.VIDEO, sent.videos), (Modality.AUDIO, sent.sounds))
    parts = [(modality, [item]) for modality, items in kinds for item in items]  # each by another encoder
    whole = None
    for number, (modality, items) in reversed([*enumerate(parts)]):  # and the last one first
        made = media.awaited(call(encoder.process_mm_items, items, modality))
        rows = sum(int(count) for count in made.token_counts)
        part = receiver.EmbeddingData(
            "r",
            len(parts),
            number,
            made.grid_thw,
            modality,
            torch.zeros(rows, 8),
            **server._build_mm_aux_data(made.mm_inputs, encoder.model_type),
        )
        whole = receiver._aggregate_embedding_part(whole, part, encoder.model_type)
    if whole is None:
        return call(processor.get_validated_mm_data, sent.text, {})
    return call(
        processor.get_validated_mm_data, sent.text, whole.get_embedding(is_concat=True), **whole.get_mm_extra_meta()
    )


def preprocessor(processor: Any) -> Any:
    """The encoder's preprocessor with the processors of transformers that the language side has."""
    module = imported(PLACE + "preprocessor")
    own_files(module)
    made = object.__new__(module.EncoderPreprocessor)
    inner = processor._processor
    made.model_config = types.SimpleNamespace(hf_config=processor.hf_config)
    made.model_type = processor.model_type
    made.encoder_media_processor_config = imported(
        "sglang.srt.multimodal.encoder_preprocessing"
    ).EncoderMediaProcessorConfig()
    made._model_preprocessor = None
    made.use_image_processor_gpu = False
    made.image_processor = getattr(inner, "image_processor", None)
    made.video_processor = getattr(inner, "video_processor", None)
    made.audio_processor = inner if hasattr(inner, "feature_extractor") else None
    made._build_vision_config({"vision_config": copy.deepcopy(models.MODELS[processor.ropecheck_family].flags)})
    made.model_audio_sr = made._resolve_audio_sr()
    made.preproc_executor = made.io_executor = _THREADS
    return made


_THREADS = ThreadPoolExecutor(max_workers=1)


def own_files(module: Any) -> None:
    """A clip or a sound that is decoded already is no file to be opened."""
    base = imported(models.MODULES + "base_processor")
    module.load_video, module.load_audio = base.load_video, base.load_audio

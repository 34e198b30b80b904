"""Drive one route: from what a client sends to the table that the scheduler gets.

| spec field | adapter field | engine field |
| --- | --- | --- |
| history | PromptTable.ids, items, grids, intervals | the request that `media.message` writes |
| table, delta | PromptTables.table, delta | `MultimodalInputs` of the processor's output |
| the prompt's kinds | PromptTables.kinds | the expanded input ids, by their placeholder tokens |

Faked: what `media` and `models` list; the scheduler of the fallback is a stand-in with its processor alone.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Callable
from typing import Any

from ropecheck.adapters import protocol
from ropecheck.adapters.sglang.imports import imported
from ropecheck.adapters.sglang_routes import identity, media, models

FAKED = (*media.FAKED, *models.FAKED, *identity.FAKED)

Call = Callable[..., Any]

PREFIX = "route: "


def drive(step: protocol.PromptTable, call: Call) -> protocol.Result:
    """The table of one route. Whatever the engine raises passes through, and what `imported` raises."""
    name = step.builder.removeprefix(PREFIX)
    base = name.removeprefix(TWICE)
    if step.family not in models.MODELS or base not in ROUTES:
        return protocol.NotOffered(f"this adapter drives no route {name!r} of {step.family}")
    try:
        if name.startswith(TWICE):
            return identity.drive(step, lambda one: sent_through(one, base, call, plain=True)[:2], call)
        output, inputs, processor = sent_through(step, base, call)
    except NoTable as missing:
        return protocol.Raised("engine", "NoTable", str(missing), "")
    kinds = {processor.mm_tokens.image_token_id: 1, processor.mm_tokens.video_token_id: 2}
    return protocol.PromptTables(
        pack(inputs.mrope_positions),
        pack(inputs.mrope_position_delta),
        None,
        f"{type(processor).__name__}.{RAN[name]}",
        tuple(kinds.get(int(token), 0) for token in output.input_ids),
    )


def sent_through(step: protocol.PromptTable, name: str, call: Call, plain: bool = False) -> tuple[Any, Any, Any]:
    """The processor's output, the scheduler's inputs, and the processor."""
    decoder = imported("sglang.srt.utils.video_decoder").VideoDecoderWrapper
    own_clips(decoder)
    fields = tuple(sorted(step.config.items()))
    processor = models.engine_processor(step.family, fields, *ENGINE.get(name, models.QWEN))
    marks = {kind: "".join(models.SPECIAL[part] for part in ("vision_start", kind, "vision_end")) for kind in MARKED}
    patch = models.MODELS[step.family].patch
    sent = media.message(step, patch, models.FRAMES_PER_STEP, marks, decoder, plain)
    output = ROUTES[name](processor, sent, call)
    inputs = call(imported("sglang.srt.managers.schedule_batch").MultimodalInputs.from_processor_output, output)
    if name == "scheduler":
        inputs = fallback(processor, output, inputs, call)
    if inputs.mrope_positions is None:
        raise NoTable(f"{type(processor).__name__} hands over no table")
    return output, inputs, processor


class NoTable(Exception):
    """A route ended without a table: the engine's fault, told like an exception of its own."""


TWICE = "two requests, "
"""Before a route's name: two requests through it, and the prefix cache between them."""

MARKED = ("image", "video")


def own_clips(decoder: Any) -> None:
    """A clip that is decoded already is no file to be opened."""
    base = imported(models.PROCESSORS + "base_processor")
    opened = base.load_video
    if getattr(opened, "ropecheck_stand_in", False):
        return

    def load_video(source: Any, *args: Any, **kwargs: Any) -> Any:
        return source if isinstance(source, decoder) else opened(source, *args, **kwargs)

    load_video.ropecheck_stand_in = True  # type: ignore[attr-defined]
    base.load_video = load_video


def request(sent: media.Message) -> Any:
    """The fields of a request that processors read."""
    return types.SimpleNamespace(
        image_data=list(sent.images) or None,
        video_data=list(sent.videos) or None,
        audio_data=None,
        rid="r",
        mm_content_hashes=None,
        mm_processor_kwargs=None,
    )


def process(processor: Any, sent: media.Message, call: Call, text: Any = None, images: Any = None) -> Any:
    asked = request(sent)
    pictures = list(sent.images) if images is None else images
    given = {"image_data": pictures, "audio_data": None, "input_text": sent.text if text is None else text}
    return asyncio.run(call(processor.process_mm_data_async, **given, request_obj=asked))


def client(processor: Any, sent: media.Message, call: Call) -> Any:
    """Pictures and clips as a client sends them."""
    return process(processor, sent, call)


def token_prompt(processor: Any, sent: media.Message, call: Call) -> Any:
    """The same with a prompt of token ids."""
    return process(processor, sent, call, text=processor._tokenizer.encode(sent.text))


def cached(processor: Any, sent: media.Message, call: Call) -> Any:
    """Through the cache of preprocessed pictures, twice: the second answer comes out of it."""
    cache = imported("sglang.srt.multimodal.cache")
    held = processor.mm_preprocess_cache, processor.processor_fingerprint
    processor.mm_preprocess_cache = cache.MultimodalPreprocessCache(max_size_bytes=1 << 26, max_entries=64)
    processor.processor_fingerprint = cache.build_processor_fingerprint(processor, processor.hf_config)
    try:
        process(processor, sent, call)
        return process(processor, sent, call)
    finally:
        processor.mm_preprocess_cache, processor.processor_fingerprint = held


def preprocessed(processor: Any, sent: media.Message, call: Call) -> Any:
    """Pictures that a client ran through the model's processor itself ("processor_output")."""
    loaded = [imported("sglang.srt.utils").load_image(one)[0].convert("RGB") for one in sent.images]
    made = processor._processor(text=[sent.text], images=loaded, return_tensors="pt")
    first = {
        "format": "processor_output",
        "pixel_values": made["pixel_values"],
        "image_grid_thw": made["image_grid_thw"],
    }
    return process(processor, sent, call, text=made["input_ids"][0].tolist(), images=[first])


def embedded(processor: Any, sent: media.Message, call: Call) -> Any:
    """Pictures that a client ran through the vision tower itself ("precomputed_embedding")."""
    import torch

    loaded = [imported("sglang.srt.utils").load_image(one)[0].convert("RGB") for one in sent.images]
    made = processor._processor(text=[sent.text], images=loaded, return_tensors="pt")
    grids = made["image_grid_thw"]
    tokens = int(grids.prod(dim=1).sum()) // 4
    first = {"format": "precomputed_embedding", "feature": torch.zeros(tokens, 8), "image_grid_thw": grids}
    return process(processor, sent, call, text=made["input_ids"][0].tolist(), images=[first])


def encoder_apart(processor: Any, sent: media.Message, call: Call) -> Any:
    """The vision tower in another process (EPD): grids and embeddings come back, the prompt is expanded here."""
    import torch

    Modality = imported("sglang.srt.managers.schedule_batch").Modality
    merge = processor.spatial_merge_size**2
    images = [imported("sglang.srt.utils").load_image(one)[0].convert("RGB") for one in sent.images]
    grids: dict[str, Any] = {}
    embeddings = {}
    if images:
        made = processor._processor.image_processor(images=images, return_tensors="pt")
        grids["img_grid_thw"] = made["image_grid_thw"]
        embeddings[Modality.IMAGE] = torch.zeros(int(made["image_grid_thw"].prod(dim=1).sum()) // merge, 8)
    if sent.videos:
        patch = models.MODELS[processor.ropecheck_family].patch
        steps = [(len(one) // models.FRAMES_PER_STEP, one.height // patch, one.width // patch) for one in sent.videos]
        grids["video_grid_thw"] = torch.tensor(steps)
        intervals = [models.FRAMES_PER_STEP / one.avg_fps for one in sent.videos]
        if sent.apart:
            times = [[k * gap for k in range(t)] for (t, _, _), gap in zip(steps, intervals, strict=True)]
            grids["video_timestamps"] = times
        else:
            grids["second_per_grid_ts"] = torch.tensor(intervals)
        embeddings[Modality.VIDEO] = torch.zeros(int(grids["video_grid_thw"].prod(dim=1).sum()) // merge, 8)
    return call(processor.get_validated_mm_data, sent.text, embeddings, **grids)


def fallback(processor: Any, output: Any, inputs: Any, call: Call) -> Any:
    """What the scheduler does with a request that came without a table."""
    Scheduler = imported("sglang.srt.managers.scheduler").Scheduler
    inputs.mrope_positions = inputs.mrope_position_delta = None
    waiting = types.SimpleNamespace(multimodal_inputs=inputs, origin_input_ids=list(output.input_ids))
    here = types.SimpleNamespace(_mm_processor=processor)
    call(Scheduler._maybe_compute_mrope_positions, here, waiting)
    return inputs


ROUTES: dict[str, Callable[[Any, media.Message, Call], Any]] = {
    "client": client,
    "token prompt": token_prompt,
    "cache": cached,
    "processor output": preprocessed,
    "embeddings": embedded,
    "encoder apart": encoder_apart,
    "scheduler": client,
    "transformers back end": client,
}

RAN = {
    **dict.fromkeys(ROUTES, "process_mm_data_async"),
    "encoder apart": "get_mm_data",
    "scheduler": "compute_mrope_positions",
}

ENGINE = {"transformers back end": ("transformers_auto", "TransformersAutoMultimodalProcessor")}


def pack(tensor: Any) -> protocol.Tensor:
    """A tensor as the protocol carries it."""
    host = tensor.cpu().contiguous()
    return protocol.Tensor(str(host.dtype).removeprefix("torch."), tuple(host.shape), host.numpy().tobytes())

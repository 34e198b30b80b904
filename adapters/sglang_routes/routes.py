"""Drive one route: from what a client sends to the table that the scheduler gets.

| spec field | adapter field | engine field |
| --- | --- | --- |
| history | PromptTable.ids, items, grids, intervals | the request that `media.message` writes |
| table, delta | PromptTables.table, delta | `MultimodalInputs` of the processor's output |
| the prompt's kinds | PromptTables.kinds | the expanded input ids, by their placeholder tokens |

Faked: what `media` and `models` list; the scheduler of the fallback is a stand-in with its processor alone.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import types
from array import array
from collections.abc import Callable
from typing import Any

from ropecheck.adapters import family_configs, protocol
from ropecheck.adapters.sglang.imports import imported
from ropecheck.adapters.sglang_routes import encoder, identity, media, models, turns

FAKED = (*media.FAKED, *models.FAKED, *identity.FAKED, *encoder.FAKED, *turns.FAKED)

Call = Callable[..., Any]

PREFIX = "route: "


def drive(step: protocol.PromptTable, call: Call) -> protocol.Result:
    """The table of one route. Whatever the engine raises passes through, and what `imported` raises."""
    name = step.builder.removeprefix(PREFIX)
    base = name.removeprefix(TWICE)
    if step.family not in models.MODELS or base not in ROUTES:
        return protocol.NotOfferedAnswer(f"this adapter drives no route {name!r} of {step.family}")
    try:
        if name.startswith(TWICE):
            return identity.drive(step, lambda one: sent_through(one, base, call, plain=True)[:2], call)
        output, inputs, processor = sent_through(step, base, call)
    except NoTable as missing:
        return protocol.Raised("engine", "NoTable", str(missing), "")
    except (family_configs.NoConfiguration, models.Lacking) as lacking:
        return protocol.NotOfferedAnswer(str(lacking))
    return protocol.PromptTables(
        pack(inputs.mrope_positions),
        pack(inputs.mrope_position_delta),
        None,
        f"{type(processor).__name__}.{RAN[name]}",
        kinds_of(models.MODELS[step.family], processor, output.input_ids),
    )


def kinds_of(model: models.Model, processor: Any, ids: Any) -> tuple[int, ...]:
    """Per token of the expanded prompt 0 text, 1 image, 2 video, 3 audio, 4 a word of the client's.

    A placeholder that pictures and clips share is a clip's between the clip's markers.
    """
    named = models.token_ids(processor._tokenizer, model)
    starts, ends = named.get("video_start_token_id"), named.get("video_end_token_id")
    codes = {named.get(f"{kind}_token_id"): code for code, kind in ((2, "video"), (1, "image"), (3, "audio"))}
    codes |= dict.fromkeys(processor._tokenizer.convert_tokens_to_ids(models.CLIENTS), 4)
    found, inside = [], False
    for token in map(int, ids):
        inside = token == starts or (inside and token != ends)
        code = codes.get(token, 0)
        found.append(2 if code == 1 and inside else code)
    return tuple(found)


def sent_through(step: protocol.PromptTable, name: str, call: Call, plain: bool = False) -> tuple[Any, Any, Any]:
    """The processor's output, the scheduler's inputs, and the processor."""
    decoder = imported("sglang.srt.utils.video_decoder").VideoDecoderWrapper
    own_files(decoder)

    times = 1 + name.endswith("every other frame")

    def process(part: protocol.PromptTable) -> Any:
        sent = media.message(part, model.patch, model.per_step, model.marks, decoder, plain, times)
        return ROUTES[name](processor, sent, call)

    fields = tuple(sorted(step.config.items()))
    model = models.MODELS[step.family]
    place = BACK_END if name == "transformers back end" else models.engine_class(step.family)
    processor = models.engine_processor(step.family, fields, *place)
    if name.startswith(TURNS):
        inputs, ids = turns.drive(step, process, padding(processor), processor, name.endswith("without a table"), call)
        return types.SimpleNamespace(input_ids=unpadded(ids, inputs.mm_items, model, processor)), inputs, processor
    output = process(step)
    inputs = call(imported("sglang.srt.managers.schedule_batch").MultimodalInputs.from_processor_output, output)
    if name == "scheduler":
        inputs.mrope_positions = inputs.mrope_position_delta = None
    if inputs.mrope_positions is None:
        fallback(processor, output, inputs, call)
    if inputs.mrope_positions is None:
        raise NoTable(f"{type(processor).__name__} hands over no table")
    return output, inputs, processor


def unpadded(ids: list[int], items: Any, model: models.Model, processor: Any) -> list[int]:
    """A request's tokens with placeholders where the engine has put hashes of its items."""
    named = models.token_ids(processor._tokenizer, model)
    placeholders = {
        value: named[f"{item.modality.name.lower()}_token_id"]
        for item in items
        for value in (item.padding_values() if hasattr(item, "padding_values") else (item.pad_value,))
    }
    return [placeholders.get(token, token) for token in ids]


class NoTable(Exception):
    """A route ended without a table: the engine's fault, told like an exception of its own."""


TURNS = "second turn"
"""Begins the names of the routes on which a message comes as two turns of a session."""

TWICE = "two requests, "
"""Before a route's name: two requests through it, and the prefix cache between them."""


def own_files(decoder: Any) -> None:
    """A clip or a sound that is decoded already is no file to be opened."""
    base = imported(models.MODULES + "base_processor")
    if getattr(base.load_video, "ropecheck_stand_in", False):
        return
    opened, heard = base.load_video, base.load_audio

    def load_video(source: Any, *args: Any, **kwargs: Any) -> Any:
        return source if isinstance(source, decoder) else opened(source, *args, **kwargs)

    def load_audio(source: Any, *args: Any, **kwargs: Any) -> Any:
        return source.samples if isinstance(source, media.Sound) else heard(source, *args, **kwargs)

    load_video.ropecheck_stand_in = True  # type: ignore[attr-defined]
    base.load_video, base.load_audio = load_video, load_audio


def request(sent: media.Message) -> Any:
    """The fields of a request that processors read."""
    return types.SimpleNamespace(
        image_data=list(sent.images) or None,
        video_data=list(sent.videos) or None,
        audio_data=list(sent.sounds) or None,
        rid="r",
        mm_content_hashes=None,
        mm_processor_kwargs=None,
    )


def process(processor: Any, sent: media.Message, call: Call, text: Any = None, images: Any = None) -> Any:
    asked = request(sent)
    given = {
        "image_data": list(sent.images) if images is None else images,
        "audio_data": asked.audio_data,
        "input_text": sent.text if text is None else text,
    }
    return media.awaited(call(processor.process_mm_data_async, **given, request_obj=asked))


def client(processor: Any, sent: media.Message, call: Call) -> Any:
    """Pictures and clips as a client sends them."""
    return process(processor, sent, call)


def token_prompt(processor: Any, sent: media.Message, call: Call) -> Any:
    """The same with a prompt of token ids."""
    return process(processor, sent, call, text=processor._tokenizer.encode(sent.text))


def back_end(processor: Any, sent: media.Message, call: Call) -> Any:
    """The processor of the Transformers back end, which hands clips unopened to transformers' processor."""
    if sent.videos:
        from transformers.video_utils import VideoMetadata

        def fetch_videos(names: list[str], sample_indices_fn: Callable[..., Any] | None = None) -> Any:
            clips = [sent.videos[int(name)] for name in names]
            facts = [VideoMetadata(len(one), one.avg_fps, one.width, one.height) for one in clips]
            for one in facts:
                every = range(one.total_num_frames)
                one.frames_indices = list(map(int, sample_indices_fn(one) if sample_indices_fn else every))
            frames = [one.get_frames_as_tensor(f.frames_indices) for one, f in zip(clips, facts, strict=True)]
            return frames, facts

        processor._processor.video_processor.fetch_videos = fetch_videos
    return process(processor, dataclasses.replace(sent, videos=tuple(map(str, range(len(sent.videos))))), call)


def chat(processor: Any, sent: media.Message, call: Call) -> Any:
    """One message of a chat, in parts, as /v1/chat/completions takes it apart. The template writes texts and marks in
    their order, as the families' own do."""
    marks = models.MODELS[processor.ropecheck_family].marks
    given = {"image": iter(sent.images), "video": iter(sent.videos), "audio": iter(sent.sounds)}
    named = {mark: kind for kind, mark in marks.items()}
    parts = []
    for piece in re.split(f"({'|'.join(map(re.escape, named))})", sent.text):
        kind = named.get(piece, "")
        if kind:
            parts.append({"type": f"{kind}_url", f"{kind}_url": {"url": next(given[kind]), "detail": "high"}})
        elif piece:
            parts.append({"type": "text", "text": piece})
    lists: dict[str, list[Any]] = {"image": [], "video": [], "audio": [], "modalities": []}
    taken = imported("sglang.srt.parser.jinja_template_utils").process_content_for_template_format
    made = call(taken, {"role": "user", "content": parts}, "openai", *lists.values())
    text = "".join(part.get("text") or marks[part["type"]] for part in made["content"])
    whole = media.Message(text, *(tuple(lists[kind]) for kind in given))
    return process(processor, whole, call)


def batch(processor: Any, sent: media.Message, call: Call) -> Any:
    """The second of two requests that a client sends as one, in lists."""
    fields = {"image_data": list(sent.images), "video_data": list(sent.videos)}
    lists = {name: [[], items] for name, items in fields.items() if items}
    two = imported("sglang.srt.managers.io_struct").GenerateReqInput(text=["w", sent.text], rid="r", **lists)
    call(two.normalize_batch_and_arguments)
    one = call(two.__getitem__, 1)
    given = {"image_data": one.image_data, "audio_data": one.audio_data, "input_text": one.text}
    return media.awaited(call(processor.process_mm_data_async, **given, request_obj=one))


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


PROCESSED = {
    "image": ("pixel_values", "image_grid_thw"),
    "video": ("pixel_values_videos", "video_grid_thw", "second_per_grid_ts", "video_second_per_grid"),
}
"""What a client sends on of the output of the model's processor."""


def preprocessed(processor: Any, sent: media.Message, call: Call, lists: bool = False) -> Any:
    """Pictures and clips that a client ran through the model's processor itself ("processor_output"). lists: grids are
    lists."""
    ids, made = ran(processor, sent)
    if lists:
        made = {name: value.tolist() if name.endswith("grid_thw") else value for name, value in made.items()}
    given = {
        kind: [{"format": "processor_output", **{name: made[name] for name in names if name in made}}]
        for kind, names in PROCESSED.items()
    }
    asked = dataclasses.replace(sent, videos=tuple(given["video"]) if sent.videos else ())
    if not sent.images and sent.targets:  # in a request's JSON
        given["image"] = [{"image_grid_thw": made["image_grid_thw"].tolist()}]
    return process(processor, asked, call, text=ids, images=given["image"] if sent.images or sent.targets else [])


def embedded(processor: Any, sent: media.Message, call: Call) -> Any:
    """Pictures that a client ran through the vision tower itself ("precomputed_embedding")."""
    import torch

    ids, made = ran(processor, sent)
    grids = made["image_grid_thw"]
    tokens = int(grids.prod(dim=1).sum()) // processor.spatial_merge_size**2
    first = {"format": "precomputed_embedding", "feature": torch.zeros(tokens, 8), "image_grid_thw": grids}
    return process(processor, sent, call, text=ids, images=[first])


def opened(sent: media.Message) -> list[Any]:
    return [imported("sglang.srt.utils").load_image(one)[0].convert("RGB") for one in sent.images]


def ran(processor: Any, sent: media.Message) -> tuple[list[int], Any]:
    """The expanded prompt and the output of the model's processor, as a client gets them."""
    given: dict[str, Any] = {"text": [sent.text], "return_tensors": "pt"}
    if sent.images:
        given["images"] = opened(sent)
    if sent.targets:
        side = models.MODELS[processor.ropecheck_family].patch
        given |= {f"target_{name}": side * tokens for name, tokens in zip("hw", sent.targets[0][1:], strict=True)}
    if sent.videos:
        frames = [list(range(len(one))) for one in sent.videos]
        pixels = [one.get_frames_as_tensor(each) for one, each in zip(sent.videos, frames, strict=True)]
        given["videos"] = [one.permute(0, 3, 1, 2) for one in pixels]
        given["do_sample_frames"] = False
        given["video_metadata"] = [
            {"total_num_frames": len(one), "fps": one.avg_fps, "frames_indices": each}
            for one, each in zip(sent.videos, frames, strict=True)
        ]
        given |= models.MODELS[processor.ropecheck_family].flags.get("video", {})
        if processor.ropecheck_family == "qwen3_omni":  # one rate for all clips
            given["fps"] = sent.videos[0].avg_fps
    made = processor._processor(**given)
    return made["input_ids"][0].tolist(), made


def wrapped(processor: Any, sent: media.Message, call: Call) -> Any:
    """Media that the Rust server preprocessed: its buffers, with the table in them, as the scheduler unpacks them."""
    import msgspec
    import numpy as np

    made = process(processor, sent, call)
    rust = imported("sglang.srt.rust_server.multimodal")
    spec = types.SimpleNamespace(
        image_token_id=made.im_token_id,
        vision_start_token_id=made.im_start_id,
        vision_end_token_id=made.im_end_id,
        video_token_id=made.video_token_id,
    )
    items = [
        {
            "modality": item.modality.name.lower(),
            "hash": number + 1,
            "offsets": item.offsets,
            "model_specific_data": {"image_grid_thw": item.model_specific_data["image_grid_thw"].reshape(-1).tolist()},
        }
        for number, item in enumerate(made.mm_items)
    ]
    meta = {"items": items, "token_ids": made.input_ids, "mrope_delta": int(made.mrope_position_delta)}
    buffers = {f"mm.feature.{number}": np.zeros((1, 4), np.float32) for number in range(len(items))}
    buffers["mm.mrope"] = made.mrope_positions.numpy()
    buffers["mm.meta"] = np.frombuffer(msgspec.msgpack.encode(meta), np.uint8)
    output = call(rust.RustMmProcessor.wrap_encoded, spec, buffers)
    output.input_ids = made.input_ids
    return output


def dictionary(processor: Any, sent: media.Message, call: Call) -> Any:
    """The output as a dictionary, which processors outside the engine's own package may hand over."""
    made = process(processor, sent, call)
    fields = {name: getattr(made, name) for name in type(made).__annotations__}
    return call(type(made).from_dict, fields)


def fallback(processor: Any, output: Any, inputs: Any, call: Call) -> None:
    """What the scheduler does with a request that came without a table: after its placeholders were padded."""
    scheduler = imported("sglang.srt.managers.scheduler")
    ids = turns.padded(array("q", output.input_ids), inputs, padding(processor), call)
    waiting = types.SimpleNamespace(multimodal_inputs=inputs, origin_input_ids=ids)
    here = types.SimpleNamespace(_mm_processor=processor)
    call(scheduler.Scheduler._maybe_compute_mrope_positions, here, waiting)


def padding(processor: Any) -> Any:
    """The model's function that puts hashes in the place of placeholders."""
    return types.MethodType(model_class(processor).pad_input_ids, types.SimpleNamespace())


def model_class(processor: Any) -> Any:
    """The model that the processor serves. MiniCPM-V's are made by a class of another name, version by version."""
    if processor.ropecheck_family == "minicpm_v4_7":
        return imported("sglang.srt.models.minicpmv")._SUPPORT_VERSION[4, 7]
    return type(processor).models[0]


ROUTES: dict[str, Callable[[Any, media.Message, Call], Any]] = {
    "client": client,
    "token prompt": token_prompt,
    "batch": batch,
    "chat": chat,
    "client, every other frame": client,
    "cache": cached,
    "processor output": preprocessed,
    "processor output, grids in lists": functools.partial(preprocessed, lists=True),
    "embeddings": embedded,
    "encoder apart": encoder.received,
    "scheduler": client,
    "transformers back end": back_end,
    "rust server": wrapped,
    "dictionary": dictionary,
    "second turn": client,
    "second turn without a table": client,
    "second turn out of the cache": cached,
}

RAN = {
    **dict.fromkeys(ROUTES, "process_mm_data_async"),
    "encoder apart": "get_mm_data",
    "scheduler": "compute_mrope_positions",
    "rust server": "wrap_encoded",
    "second turn": "extend_image_inputs",
    "second turn without a table": "compute_mrope_positions",
    "second turn out of the cache": "extend_image_inputs",
}

BACK_END = ("transformers_auto", "TransformersAutoMultimodalProcessor")


def pack(tensor: Any) -> protocol.Tensor:
    """A tensor as the protocol carries it."""
    host = tensor.cpu().contiguous()
    return protocol.Tensor(str(host.dtype).removeprefix("torch."), tuple(host.shape), host.numpy().tobytes())

"""Two requests, one after the other, through one prefix cache: how much of the second is served from the first.

| spec field | adapter field | engine field |
| --- | --- | --- |
| two histories | PromptTable.ids, two rows | two requests through the same route |
| hit | PromptTables.hit | `RadixCache.match_prefix` after `insert`, on the engine's own padded ids |

Faked: the cache has no memory behind it. Pictures are one plain grey, so that sizes of equal area have equal bytes.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

import msgspec

from ropecheck.adapters import protocol
from ropecheck.adapters.sglang.imports import imported

FAKED = ("prefix cache of two requests: RadixCache.create_simulated()",)

Made = Callable[[protocol.PromptTable], tuple[Any, Any]]
"""A step of one prompt -> the processor's output and the scheduler's inputs."""


def drive(step: protocol.PromptTable, made: Made, call: Callable[..., Any]) -> protocol.Result:
    """The tables of both requests, side by side, and the hit."""
    import torch

    batch = imported("sglang.srt.managers.schedule_batch")
    radix = imported("sglang.srt.mem_cache.radix_cache")
    base = imported("sglang.srt.mem_cache.base_prefix_cache")
    tables, deltas, keys = [], [], []
    for one in requests(step):
        output, inputs = made(one)
        padded = call(batch.MultimodalProcessorOutput.build_padded_input_ids, output.input_ids, inputs.mm_items)
        keys.append(radix.RadixKey(array("q", padded or output.input_ids), None))
        tables.append(inputs.mrope_positions)
        deltas.append(inputs.mrope_position_delta.reshape(1, 1))
    cache = call(radix.RadixCache.create_simulated)
    held = torch.arange(len(tables[0][0]), dtype=torch.int64)
    call(cache.insert, base.InsertParams(key=keys[0], value=held))
    found = call(cache.match_prefix, base.MatchPrefixParams(key=keys[1]))
    table, delta = torch.stack(tables, dim=1), torch.cat(deltas)
    return protocol.PromptTables(
        _pack(table), _pack(delta), None, "RadixCache.match_prefix", None, int(found.device_prefix_len)
    )


def requests(step: protocol.PromptTable) -> list[protocol.PromptTable]:
    """Each row as a step of its own, with its share of the lists."""
    images, videos = iter(step.image_grids or ()), iter(step.video_grids or ())
    seconds = iter(step.seconds_per_grid or ())
    found = []
    for ids, kinds in zip(step.ids, step.kinds, strict=True):
        items = [protocol.Item(("", "image", "video")[kind], start, stop) for kind, start, stop in _stretches(kinds)]
        clips = [item for item in items if item.kind == "video"]
        found.append(
            msgspec.structs.replace(
                step,
                ids=(ids,),
                kinds=(kinds,),
                mask=None,
                items=tuple(items),
                image_grids=tuple(next(images) for item in items if item.kind == "image") or None,
                video_grids=tuple(next(videos) for _ in clips) or None,
                seconds_per_grid=tuple(next(seconds) for _ in clips) if step.seconds_per_grid else None,
            )
        )
    return found


def _stretches(kinds: tuple[int, ...]) -> list[tuple[int, int, int]]:
    """(kind, start, stop) of the placeholders."""
    found: list[tuple[int, int, int]] = []
    for place, kind in enumerate(kinds):
        if not kind:
            continue
        if found and found[-1][0] == kind and found[-1][2] == place:
            found[-1] = (kind, found[-1][1], place + 1)
        else:
            found.append((kind, place, place + 1))
    return found


def _pack(tensor: Any) -> protocol.Tensor:
    host = tensor.cpu().contiguous()
    return protocol.Tensor(str(host.dtype).removeprefix("torch."), tuple(host.shape), host.numpy().tobytes())

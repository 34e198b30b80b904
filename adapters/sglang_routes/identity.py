"""Two requests, one after the other, through one prefix cache: how much of the second is served from the first.

| spec field | adapter field | engine field |
| --- | --- | --- |
| two histories | PromptTable.parts | two requests through the same route |
| hit | PromptTables.hit | `RadixCache.match_prefix` after `insert`, on the engine's own padded ids |

Faked: the cache has no memory behind it. Pictures are one plain grey, so that sizes of equal area have equal bytes.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

from ropecheck.adapters import protocol
from ropecheck.adapters.sglang.imports import imported

FAKED = ("prefix cache of two requests: RadixCache.create_simulated()",)

Made = Callable[[protocol.PromptTable], tuple[Any, Any]]
"""A step of one prompt -> the processor's output and the scheduler's inputs."""


def drive(step: protocol.PromptTable, made: Made, call: Callable[..., Any]) -> protocol.Result:
    """The second request's table, and the hit."""
    import torch

    batch = imported("sglang.srt.managers.schedule_batch")
    radix = imported("sglang.srt.mem_cache.radix_cache")
    base = imported("sglang.srt.mem_cache.base_prefix_cache")
    keys = []
    for one in step.parts:
        output, inputs = made(one)
        padded = call(batch.MultimodalProcessorOutput.build_padded_input_ids, output.input_ids, inputs.mm_items)
        keys.append(radix.RadixKey(array("q", padded or output.input_ids), None))
    cache = call(radix.RadixCache.create_simulated)
    held = torch.arange(len(keys[0]), dtype=torch.int64)
    call(cache.insert, base.InsertParams(key=keys[0], value=held))
    found = call(cache.match_prefix, base.MatchPrefixParams(key=keys[1]))
    table, delta = inputs.mrope_positions, inputs.mrope_position_delta.reshape(1, 1)
    served = found.device_prefix_len if hasattr(found, "device_prefix_len") else len(found.device_indices)
    return protocol.PromptTables(_pack(table), _pack(delta), None, "RadixCache.match_prefix", None, int(served))


def _pack(tensor: Any) -> protocol.Tensor:
    host = tensor.cpu().contiguous()
    return protocol.Tensor(str(host.dtype).removeprefix("torch."), tuple(host.shape), host.numpy().tobytes())

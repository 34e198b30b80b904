"""The rotary embedding that reads the three-row table, without a model.

| spec field | adapter field | engine field |
| --- | --- | --- |
| sections | Rotary.sections | `MRotaryEmbedding(mrope_section=)` |
| interleaved | Rotary.interleaved | `mrope_interleaved=` |
| table, as a view | Rotary.buffer | `positions`, a slice of a wider tensor |

Faked on a CPU only: the embedding's module is told that it is an engine built for CPUs, or it asks for vllm's kernel.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from adapters.protocol import Rotary, Rotated, Tensor
from adapters.sglang import kernels
from adapters.sglang.capabilities import taken
from adapters.sglang.imports import imported
from adapters.sglang.state import Absent, JobState
from adapters.sglang.wire import pack, unpack

FAKED = ("rotary, cpu: rotary_embedding's _is_cpu is True (else it imports a kernel of vllm that is not used)",)

PLACES = ("sglang.srt.layers.rotary_embedding.mrope", "sglang.srt.layers.rotary_embedding")

FAR = 1 << 20
"""What the columns behind a view hold: far from every position of the table, yet inside no cache."""


def rotate(state: JobState, step: Rotary) -> Rotated:
    """Run the embedding. Raises Absent, and what `imported` raises."""
    cls = embedding_class()
    kernels.ran.clear()
    if state.device == "cpu":
        for base in (sys.modules[parent.__module__] for parent in cls.__mro__ if "sglang" in parent.__module__):
            if hasattr(base, "_is_cpu"):
                vars(base)["_is_cpu"] = True
    embedding = state.meter.call(
        cls,
        **taken(
            cls.__init__,
            head_size=step.head_size,
            rotary_dim=step.rotary_dim,
            max_position_embeddings=step.longest,
            base=step.base,
            is_neox_style=True,
            dtype=torch.float32,
            mrope_section=list(step.sections),
            mrope_interleaved=step.interleaved,
        ),
    ).to(state.device)
    if step.interleaved and not getattr(embedding, "mrope_interleaved", False):
        raise Absent("this release's MRotaryEmbedding knows no interleaved sections")
    method = embedding.forward_native if step.method == "native" else getattr(embedding, "forward_cuda", None)
    if method is None or (step.method != "native" and state.device == "cpu"):
        raise Absent("the GPU's forward needs a GPU")
    query, key = (unpack(heads).to(state.device) for heads in (step.query, step.key))
    with torch.no_grad():
        query, key = state.meter.call(method, positions(step, state.device), query, key)
    return Rotated(packed(query), packed(key), tuple(dict.fromkeys(kernels.ran)))


def embedding_class() -> Any:
    """This release's MRotaryEmbedding. Raises Absent, and what `imported` raises."""
    for place in PLACES:
        cls = getattr(imported(place), "MRotaryEmbedding", None)
        if cls is not None:
            return cls
    raise Absent("this release has no MRotaryEmbedding")


def positions(step: Rotary, device: str) -> Any:
    """The table, as the first columns of a wider buffer where the step says so."""
    table = unpack(step.table).to(device)
    if not step.buffer:
        return table
    wide = torch.full((table.shape[0], step.buffer), FAR, dtype=table.dtype, device=device)
    wide[:, : table.shape[1]] = table
    return wide[:, : table.shape[1]]


def packed(tensor: Any) -> Tensor:
    """A tensor that is there."""
    answer = pack(tensor)
    assert answer is not None
    return answer

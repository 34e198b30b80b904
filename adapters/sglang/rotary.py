"""The rotary embedding that reads the three-row table, without a model.

| spec field | adapter field | engine field |
| --- | --- | --- |
| sections | Rotary.sections | `MRotaryEmbedding(mrope_section=)` |
| interleaved | Rotary.interleaved | `mrope_interleaved=` |
| table, as a view | Rotary.buffer | `positions`, a slice of a wider tensor |

Faked on a CPU only: the embedding's module is told that it is an engine built for CPUs, or it asks for vllm's kernel.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import torch

from ropecheck.adapters.protocol import Rotary, Rotated, Tensor
from ropecheck.adapters.sglang import fused_rotary, kernels
from ropecheck.adapters.sglang.capabilities import Absent, Engine, taken
from ropecheck.adapters.sglang.imports import imported
from ropecheck.adapters.sglang.state import JobState
from ropecheck.adapters.sglang.wire import pack, unpack

FAKED = ("rotary, cpu: rotary_embedding's _is_cpu is True (else it imports a kernel of vllm that is not used)",)

PLACES = ("sglang.srt.layers.rotary_embedding.mrope", "sglang.srt.layers.rotary_embedding")

METHODS = {"native": "forward_native", "device": "forward_cuda"}

OLD_METHODS = {"native": "_forward_native", "device": "forward"}
"""Up to 0.5.7, where the names above are those of the base class, which knows no rows."""

FAR = 1 << 20
"""What the columns behind a view hold: far from every position of the table, yet inside no cache."""


def rotate(state: JobState, step: Rotary) -> Rotated:
    """Run the embedding. Raises Absent, and what `imported` raises."""
    cls = embedding_class(state.engine, class_of(step))
    kernels.ran.clear()
    arguments = taken(
        cls.__init__,
        head_size=step.head_size,
        rotary_dim=step.rotary_dim,
        max_position_embeddings=step.scaling[1] if step.scaling else step.longest,
        base=step.base,
        is_neox_style=True,
        dtype=torch.float32,
        mrope_section=in_its_order(step),
        mrope_interleaved=step.interleaved,
        mrope_interleaved_glm=step.cycled,
        scaling_factor=step.scaling[0] if step.scaling else None,
    )
    # All layers of a model share one embedding: what it keeps from one table must not show in the next.
    name = cls.__name__ + repr(sorted(arguments.items(), key=str))
    embedding = state.rotaries.get(name)
    if embedding is None:
        with built_for_cpus(cls) if state.device == "cpu" else contextlib.nullcontext():
            embedding = state.rotaries[name] = state.meter.call(cls, **arguments).to(state.device)
    if step.interleaved and "mrope_interleaved" not in arguments:
        raise state.engine.absent("mrope_interleaved", "this release's MRotaryEmbedding knows no interleaved sections")
    if step.cycled and "mrope_interleaved_glm" not in arguments:
        raise state.engine.absent("mrope_interleaved_glm", "this release's MRotaryEmbedding knows no sections of GLM-V")
    if step.method == "device" and state.device == "cpu" and not step.cycled:
        raise Absent("the GPU's forward needs a GPU")
    if step.method == "fused":
        method = fused_rotary.method(state.engine, embedding, step.head_size, state.device)
    else:
        names = OLD_METHODS if hasattr(embedding, OLD_METHODS["native"]) else METHODS
        method = getattr(embedding, names[step.method])
    heads = [unpack(part).to(state.device) for part in (step.query, step.key)]
    table = positions(step, state.device)
    before = table.clone()
    with torch.no_grad():
        query, key = state.meter.call(method, table, *heads)
    changed = not torch.equal(table, before)
    return Rotated(packed(query), packed(key), tuple(dict.fromkeys(kernels.ran)), changed)


CLASSES = ("MRotaryEmbedding", "YaRNScalingMRotaryEmbedding", "Ernie4_5_VLRotaryEmbedding")
"""The engine's readers of a three-row table that are driven."""


def class_of(step: Rotary) -> str:
    """The engine's class for such sections."""
    return CLASSES[2] if step.alternating else CLASSES[1] if step.scaling else CLASSES[0]


def in_its_order(step: Rotary) -> list[int]:
    """The sections as the class takes them: Ernie's has h, w, t."""
    t, h, w = step.sections
    return [h, w, t] if step.alternating else [t, h, w]


def embedding_class(engine: Engine, name: str = CLASSES[0]) -> Any:
    """This release's class. Raises Absent, and what `imported` raises."""
    for place in PLACES:
        cls = getattr(imported(place), name, None)
        if cls is not None:
            return cls
    raise engine.absent(name, f"this release has no {name}")


@contextlib.contextmanager
def built_for_cpus(cls: Any) -> Iterator[None]:
    """The modules of the class and its bases believe so for a while: other steps must not see it."""
    modules = (vars(sys.modules[name]) for name in {one.__module__ for one in cls.__mro__})
    held = [(module, module["_is_cpu"]) for module in modules if "_is_cpu" in module]
    try:
        for module, _ in held:
            module["_is_cpu"] = True
        yield
    finally:
        for module, value in held:
            module["_is_cpu"] = value


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

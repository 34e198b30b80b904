"""The rotary embedding inside a model's fused kernel: Qwen3.5's, which norms query and key and turns them at once.

| spec field | adapter field | engine field |
| --- | --- | --- |
| table [3, T] | Rotary.table | `positions` of `Qwen3_5AttentionDecoderLayer.forward_prepare_cuda_fused` |
| query, key | Rotary.query, .key | what `qkv_proj` gives |

The model's own method calls the kernel, so that what it hands over is what a server's forward hands over. Interpreted
on a CPU. The norm divides a head by its root mean square: heads of plus and minus one stay as they are.

Faked: see `FAKED`.
"""

from __future__ import annotations

from typing import Any

import torch

from ropecheck.adapters.sglang import kernels
from ropecheck.adapters.sglang.capabilities import Engine
from ropecheck.adapters.sglang.imports import imported
from ropecheck.adapters.sglang.stand_ins import StandIn

FAKED = (
    "Qwen3_5AttentionDecoderLayer: made without __init__; qkv_proj hands on the step's heads, norm weights are zero, "
    "no output gate",
)

MODEL = "sglang.srt.models.qwen3_5"
KERNEL = "sglang.kernels.ops.attention.fused_qk_rmsnorm_rope_gate"
NAME = "fused_qk_gemma_rmsnorm_rope_gate"


def method(engine: Engine, embedding: Any, head_size: int, device: str) -> Any:
    """(table, query, key) -> (query, key), through the model's layer. Raises Absent, and what `imported` raises."""
    layer: Any = getattr(imported(MODEL), "Qwen3_5AttentionDecoderLayer", None)
    prepare = getattr(layer, "forward_prepare_cuda_fused", None)
    if prepare is None:
        raise engine.absent("fused rotary kernel", "this release has no fused rotary kernel of Qwen3.5")
    module: Any = imported(MODEL)
    if not hasattr(module, NAME):  # imported by the model only where a GPU is
        setattr(module, NAME, getattr(imported(KERNEL), NAME))
    norm = StandIn(weight=StandIn(data=torch.zeros(head_size, device=device)), variance_epsilon=0.0)

    def turn(table: Any, query: Any, key: Any) -> tuple[Any, Any]:
        made = kernels.hollow(
            layer,
            qkv_proj=lambda hidden: (hidden, None),
            attn_output_gate=False,
            q_size=query.shape[1],
            kv_size=key.shape[1],
            q_norm=norm,
            k_norm=norm,
            rotary_emb=embedding,
            num_heads=query.shape[1] // head_size,
            num_kv_heads=key.shape[1] // head_size,
            head_dim=head_size,
        )
        kernels.ran.append(kernels.qualified(prepare))
        query, key, *_ = made.forward_prepare_cuda_fused(table, torch.cat((query, key, key), dim=-1))
        return query, key

    return turn

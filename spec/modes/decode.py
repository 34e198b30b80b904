"""DECODE: one token per request, the newest one."""

from __future__ import annotations

from ropecheck.spec.modes.declaration import RUNNING, SeqLen, Tokens, mode, span


@mode(
    "decode",
    reads=RUNNING,
    emits=1,
    buffers=("graph", "dp"),
    copies=(0, 1),
    source="definition: a decode computes the newest token",
    bugs={
        "table.width": ("xllm #885", "LightLLM #1377"),
        "table.index": ("mlx-vlm #1993", "ik_llama.cpp #988"),
        "table.past_table": (
            "sglang #8219",
            "sglang #33716",
            "vllm #10350",
            "TensorRT-LLM #15661",
            "mlx-vlm #1527",
            "mlx-vlm #1143",
        ),
        "table.text_only": ("vllm #9546",),
        "cost.text_only": ("sglang #11046", "sglang #9460"),
    },
)
def decode(seq_len: SeqLen) -> Tokens:
    """A decode reads the newest token of each request: seq_len counts it, so its index is seq_len - 1.

    >>> list(decode.tokens(seq_len=9))
    [8]
    """
    return span(seq_len - 1, 1)

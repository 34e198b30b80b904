"""Faults in functions of the real engine that make prompt tables: for each rule one that it must catch, and where."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ropecheck.adapters.sglang.mends import Mend

ROTARY = "sglang.srt.layers.rotary_embedding.mrope:MRotaryEmbedding"
ROPE = f"{ROTARY}.get_rope_index"
ERNIE = f"{ROTARY}.get_rope_index_ernie45"
GLM_IMAGE = "sglang.srt.multimodal.processors.glm_image:GlmImageProcessor._compute_glm_image_mrope_positions"
CANVAS = "sglang.srt.multimodal.processors.minicpmv4_7:compute_canvas_positions"
PADDED = "sglang.srt.managers.schedule_batch:MultimodalProcessorOutput.build_padded_input_ids"

Change = Callable[[Any, Any], tuple[Any, Any]]
"""(table, delta) -> what comes out instead."""


def made(place: str, change: Change) -> Mend:
    """A builder's table and delta come out changed."""

    def instead(original: Any, *args: Any, **kwargs: Any) -> Any:
        table, delta, *rest = original(*args, **kwargs)
        return (*change(table.clone(), delta), *rest)

    return {place: instead}


def cell(place: str, row: int, column: int) -> Mend:
    """One cell is one too large."""

    def change(table: Any, delta: Any) -> tuple[Any, Any]:
        table[row, ..., column] += 1
        return table, delta

    return made(place, change)


def later(table: Any, delta: Any) -> tuple[Any, Any]:
    """The last three tokens stand one position on."""
    table[..., -3:] += 1
    return table, delta


def another_canvas(original: Any, *args: Any, **kwargs: Any) -> Any:
    """A token of a picture stands a line lower."""
    table = original(*args, **kwargs).clone()
    table[1, 6] += 1
    return table


def never_refuses(original: Any, *args: Any, **kwargs: Any) -> Any:
    """Where it would raise, every token has its index."""
    try:
        return original(*args, **kwargs)
    except (IndexError, RuntimeError, TypeError):
        ids = kwargs["input_ids"]
        return torch.arange(ids.shape[-1]).expand(3, 1, -1), torch.zeros((1, 1), dtype=torch.int64)


def not_padded(original: Any, *args: Any, **kwargs: Any) -> Any:
    """An item has no value of its own in the prefix cache's key."""
    return None


FAULTS: dict[str, tuple[str, Mend]] = {
    "families.table": ("qwen2_vl: one image", cell(ROPE, 1, 5)),
    "families.text_rows_equal": ("qwen2_vl: one image", cell(ROPE, 1, 12)),
    "families.text_after_media": ("qwen2_vl: one image", made(ROPE, later)),
    "families.delta": ("qwen2_vl: one image", made(ROPE, lambda table, delta: (table, delta + 1))),
    "families.dtype_and_shape": ("qwen2_vl: one image", made(ROPE, lambda table, delta: (table.int(), delta))),
    "families.table_width": ("qwen2_vl: one image", made(ROPE, lambda table, delta: (table[..., :-1], delta))),
    "families.absolute_time": ("qwen2_5_vl: one video", cell(ROPE, 0, 34)),
    "families.temporal_merge": ("ernie4_5_vl: one video", cell(ERNIE, 0, 18)),
    "families.frame_per_run": ("qwen3_vl: one video", cell(ROPE, 0, 12)),
    "families.audio_in_video": ("qwen3_omni: video longer than track", cell(ROPE, 1, 20)),
    "families.one_continuation": (
        "qwen3_omni: wide frame, short track",
        made(ROPE, lambda table, delta: (table, delta + 1)),
    ),
    "families.glm_image.tabulated_ahead": ("glm_image: writes one image", cell(GLM_IMAGE, 1, 10)),
    "families.minicpm_v4_7.canvas": ("minicpm_v4_7: one image", {CANVAS: another_canvas}),
    "families.refuses_disagreeing_grids": ("qwen2_vl: grid missing", {ROPE: never_refuses}),
    "families.refuses_undivided_grid": ("qwen3_omni: grid undivided", {ROPE: never_refuses}),
    "families.refuses_missing_intervals": ("qwen3_omni: intervals missing", {ROPE: never_refuses}),
    "prefix.identity": ("qwen3_vl: a picture on its side (two requests, client)", {PADDED: not_padded}),
}
"""Rule -> a case, and what is called instead of which function of the engine."""

"""Ernie-4.5-VL: Qwen2-VL's blocks, with two temporal steps of a video merged into one token as well.

An image keeps its single step; a video of t x h x w has (t / 2) x (h / 2) x (w / 2) tokens, one time step per merged
step. A video's step count must be even: the family's processor pads it.

See: ERNIE 4.5 technical report (spatio-temporal adaptive merge, 3D-RoPE); the model's own
`get_rope_index` in transformers (`ernie4_5_vl_moe`), where images take temporal merge 1.
"""

from __future__ import annotations

from ropecheck.spec.families.declaration import GridFamily

ERNIE4_5_VL = GridFamily(
    name="ernie4_5_vl",
    source="https://github.com/huggingface/transformers/blob/main/src/transformers/models/ernie4_5_vl_moe",
    temporal_merge=2,
)

"""Qwen2.5-VL: as Qwen2-VL, but a video's temporal ids are aligned with absolute time.

Frame k of a video sits at floor(k * seconds_per_grid * tokens_per_second) after the block's start. The start itself
is never scaled, and images are never scaled. The released checkpoints set tokens_per_second to 2.

See: arXiv 2502.13923, section 2.1.2 (MRoPE aligned to absolute time).
"""

from __future__ import annotations

from ropecheck.spec.families.declaration import GridFamily

QWEN2_5_VL = GridFamily(
    name="qwen2_5_vl",
    source="arXiv 2502.13923 section 2.1.2 (MRoPE aligned to absolute time)",
    tokens_per_second=2,
)

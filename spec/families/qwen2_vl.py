"""Qwen2-VL: images and videos as blocks of t x (h / 2) x (w / 2) tokens, one time step per grid step.

See: arXiv 2409.12191, section 2.1 (M-RoPE): the temporal id is constant over an image and grows by one per frame of
a video; height and width ids are the token's place in the block; a modality starts at the largest id before it + 1.
"""

from __future__ import annotations

from ropecheck.spec.families.declaration import GridFamily, merged_grid

__all__ = ["QWEN2_VL", "merged_grid"]

QWEN2_VL = GridFamily(name="qwen2_vl", source="arXiv 2409.12191 section 2.1 (M-RoPE)")

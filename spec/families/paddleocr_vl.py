"""PaddleOCR-VL: Qwen2-VL's image blocks. Its processor takes document images only; a video is refused.

See: arXiv 2510.14528 (NaViT encoder and ERNIE-4.5-0.3B with 3D-RoPE); the model's own `get_rope_index` in
transformers (`paddleocr_vl`).
"""

from __future__ import annotations

from ropecheck.spec.families.declaration import GridFamily

PADDLEOCR_VL = GridFamily(name="paddleocr_vl", source="arXiv 2510.14528", kinds=("image",))

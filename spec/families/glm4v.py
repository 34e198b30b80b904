"""GLM-4.1V, GLM-4.5V, GLM-4.6V and GLM-OCR: Qwen2-VL's blocks; each temporal step of a video is a run of its own.

Between begin-of-video and end-of-video, every frame stands between image markers with its timestamp as text after
it. The prompt holds *image* placeholder ids there too: a frame is told from an image by the video markers around it.

See: GLM-4.1V-Thinking and GLM-4.5V, arXiv 2507.01006 (3D-RoPE; a time index token after each frame).
"""

from __future__ import annotations

from ropecheck.spec.families.declaration import GridFamily

_SOURCE = "arXiv 2507.01006"

GLM4_1V = GridFamily(name="glm4_1v", source=_SOURCE, frames_apart=True)
GLM4_5V = GridFamily(name="glm4_5v", source=_SOURCE, frames_apart=True)
GLM4_6V = GridFamily(
    name="glm4_6v",
    source="https://github.com/huggingface/transformers/blob/main/src/transformers/models/glm46v",
    frames_apart=True,
)
GLM_OCR = GridFamily(
    name="glm_ocr",
    source="https://github.com/huggingface/transformers/blob/main/src/transformers/models/glm_ocr",
    frames_apart=True,
)

"""One file per model family's rule for media runs."""

from __future__ import annotations

from ropecheck.spec.families.declaration import MediaFamily
from ropecheck.spec.families.ernie4_5_vl import ERNIE4_5_VL
from ropecheck.spec.families.glm4v import GLM4_1V, GLM4_5V, GLM4_6V, GLM_OCR
from ropecheck.spec.families.glm_image import GLM_IMAGE
from ropecheck.spec.families.hunyuan_vl import HUNYUAN_VL
from ropecheck.spec.families.minicpm_v import MINICPM_V4_7
from ropecheck.spec.families.paddleocr_vl import PADDLEOCR_VL
from ropecheck.spec.families.qwen2_5_omni import QWEN2_5_OMNI
from ropecheck.spec.families.qwen2_5_vl import QWEN2_5_VL
from ropecheck.spec.families.qwen2_vl import QWEN2_VL
from ropecheck.spec.families.qwen3_asr import QWEN3_ASR
from ropecheck.spec.families.qwen3_omni import QWEN3_OMNI
from ropecheck.spec.families.qwen3_vl import (
    COHERE_COMPASS,
    COSMOS3_EDGE,
    COSMOS3_OMNI,
    QWEN3_5,
    QWEN3_5_MOE,
    QWEN3_VL,
    QWEN3_VL_MOE,
    QWEN4_EXP,
)
from ropecheck.spec.history import OutOfDomain

_ALL: tuple[MediaFamily, ...] = (
    QWEN2_VL,
    QWEN2_5_VL,
    QWEN3_VL,
    QWEN3_VL_MOE,
    QWEN3_5,
    QWEN3_5_MOE,
    QWEN4_EXP,
    COSMOS3_OMNI,
    COSMOS3_EDGE,
    COHERE_COMPASS,
    QWEN2_5_OMNI,
    QWEN3_OMNI,
    QWEN3_ASR,
    GLM4_1V,
    GLM4_5V,
    GLM4_6V,
    GLM_OCR,
    ERNIE4_5_VL,
    PADDLEOCR_VL,
    HUNYUAN_VL,
    GLM_IMAGE,
    MINICPM_V4_7,
)

FAMILIES: dict[str, MediaFamily] = {family.name: family for family in _ALL}
"""Every family by its name."""


def family(name: str) -> MediaFamily:
    """The family of that name. Raises OutOfDomain, naming the known ones."""
    found = FAMILIES.get(name)
    if found is None:
        raise OutOfDomain(f"unknown family {name!r}; known: {', '.join(sorted(FAMILIES))}")
    return found

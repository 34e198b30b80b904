"""Token ids and configuration fields that the cases give a target: small, and the same in every family."""

from ropecheck.spec.families.qwen2_5_omni import QWEN2_5_OMNI
from ropecheck.spec.families.qwen3_omni import QWEN3_OMNI
from ropecheck.spec.families.resize import Limits

TEXT, IMAGE, VIDEO, AUDIO = 7, 101, 102, 103
VISION_START, VISION_END, AUDIO_START, AUDIO_END, VIDEO_START, VIDEO_END = 111, 112, 113, 114, 115, 116
SLICE_START, SLICE_END, NEWLINE = 117, 118, 119
PAD = 0
MARKERS = (
    *(VISION_START, VISION_END, AUDIO_START, AUDIO_END, VIDEO_START, VIDEO_END),
    *(SLICE_START, SLICE_END, NEWLINE),
)
"""What stands around media; the family's processor writes it."""

GLM = ("glm4_1v", "glm4_5v", "glm4_6v", "glm_ocr")
OMNI = ("qwen2_5_omni", "qwen3_omni")

_QWEN = {
    "image_token_id": IMAGE,
    "video_token_id": VIDEO,
    "vision_start_token_id": VISION_START,
    "vision_end_token_id": VISION_END,
    "vision_config.spatial_merge_size": 2,
}
_GLM = {
    "image_token_id": IMAGE,
    "video_token_id": VIDEO,
    "image_start_token_id": VISION_START,
    "image_end_token_id": VISION_END,
    "video_start_token_id": VIDEO_START,
    "video_end_token_id": VIDEO_END,
    "vision_config.spatial_merge_size": 2,
}
_OMNI = {
    "audio_start_token_id": AUDIO_START,
    "vision_start_token_id": VISION_START,
    "vision_config.spatial_merge_size": 2,
}

CONFIG: dict[str, dict[str, int]] = {
    "qwen2_vl": _QWEN,
    "qwen2_5_vl": _QWEN | {"vision_config.tokens_per_second": 2},
    **dict.fromkeys(
        (
            *("qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe", "qwen4_exp"),
            *("cosmos3_omni", "cosmos3_edge", "cohere_compass"),
        ),
        _QWEN,
    ),
    "qwen2_5_omni": _OMNI
    | {
        "image_token_index": IMAGE,
        "video_token_index": VIDEO,
        "audio_token_index": AUDIO,
        "position_id_per_seconds": QWEN2_5_OMNI.positions_per_second,
        "seconds_per_chunk": QWEN2_5_OMNI.seconds_per_chunk,
    },
    "qwen3_omni": _OMNI
    | {
        "image_token_id": IMAGE,
        "video_token_id": VIDEO,
        "audio_token_id": AUDIO,
        "position_id_per_seconds": QWEN3_OMNI.positions_per_second,
    },
    "glm4_1v": _GLM,
    "glm4_5v": _GLM,
    "glm4_6v": _GLM,
    "glm_ocr": _GLM,
    "ernie4_5_vl": {
        "image_token_id": IMAGE,
        "video_token_id": VIDEO,
        "im_patch_id": IMAGE,
        "image_start_token_id": VISION_START,
        "image_end_token_id": VISION_END,
        "video_start_token_id": VIDEO_START,
        "video_end_token_id": VIDEO_END,
        "vision_config.spatial_merge_size": 2,
        "vision_config.temporal_merge_size": 2,
        "spatial_conv_size": 2,
        "temporal_conv_size": 2,
    },
    "paddleocr_vl": _QWEN | {"vision_config.tokens_per_second": 2},
    "hunyuan_vl": {"image_token_id": IMAGE, "vision_config.spatial_merge_size": 2},
    "glm_image": {
        "image_token_id": IMAGE,
        "image_start_token_id": VISION_START,
        "image_end_token_id": VISION_END,
    },
    "qwen3_asr": {"audio_token_id": AUDIO},
    "minicpm_v4_7": {
        "image_start_id": VISION_START,
        "image_end_id": VISION_END,
        "slice_start_id": SLICE_START,
        "slice_end_id": SLICE_END,
        "newline_id": NEWLINE,
    },
}
"""Fields of each family's configuration class. The rates are those of the released checkpoints."""

_FOURTEEN = ("qwen2_vl", "qwen2_5_vl", "paddleocr_vl", "ernie4_5_vl", "minicpm_v4_7", *GLM)

PATCH: dict[str, int] = {name: 14 if name in _FOURTEEN else 16 for name in CONFIG}
"""Pixels along a side of a patch, in the processors that the routes build."""

LARGEST = 1 << 18
"""Pixels: the settings of those processors. A picture of 512 x 512 stays as it is."""


def limits(family: str, merge: int) -> Limits:
    """What those processors do to a picture's size."""
    side = PATCH[family] * merge
    if family == "ernie4_5_vl":  # the engine's own numbers, of the released checkpoint
        return Limits(side, 4 * side**2, 16384 * side**2)
    if family == "cosmos3_edge":
        return Limits(side, 1, LARGEST)
    return Limits(side, side**2, LARGEST, frames=2 if family in GLM else 1)

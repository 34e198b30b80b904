"""A prompt of a family as a list of segments, and what its processor would make of it: ids, kinds, grids.

Where a family puts markers around its media is written here, once; the histories come out of the same place, so that
ids and runs cannot disagree. Token ids are small and the same in every family; the target's configuration is told.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ropecheck.spec.families import FAMILIES
from ropecheck.spec.families.glm_image import GLM_IMAGE
from ropecheck.spec.families.omni import video_with_audio
from ropecheck.spec.families.qwen2_5_omni import QWEN2_5_OMNI, Qwen2_5Omni
from ropecheck.spec.families.qwen3_omni import QWEN3_OMNI, Qwen3Omni
from ropecheck.spec.history import History, OutOfDomain, Run, image, run_length, text, video

Grid = tuple[int, int, int]

TEXT, IMAGE, VIDEO, AUDIO = 7, 101, 102, 103
VISION_START, VISION_END, AUDIO_START, AUDIO_END, VIDEO_START, VIDEO_END = 111, 112, 113, 114, 115, 116
PAD = 0

GLM = ("glm4_1v", "glm4_5v", "glm4_6v")
OMNI = ("qwen2_5_omni", "qwen3_omni")

_QWEN = {
    "image_token_id": IMAGE,
    "video_token_id": VIDEO,
    "vision_start_token_id": VISION_START,
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
    "qwen3_vl": _QWEN,
    "qwen3_5": _QWEN,
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
}
"""Fields of each family's configuration class. The rates are those of the released checkpoints."""


class Segment(msgspec.Struct, frozen=True, tag="segment", omit_defaults=True):
    """A stretch of text, or a media item with the markers that its family puts around it."""

    kind: str
    """"text", "image", "video", "audio", "track" (a video with its audio) or "target" (an image to be written)."""
    tokens: int = 0
    """Text only."""
    grid: Grid | None = None
    seconds: float = 1.0
    features: int = 0
    """Audio: mel frames."""
    bare: bool = False
    """Without markers: the item touches what is beside it."""


class Laid(msgspec.Struct, frozen=True):
    """One prompt, laid out."""

    history: History
    ids: tuple[int, ...]
    kinds: tuple[int, ...]
    image_grids: tuple[Grid, ...]
    video_grids: tuple[Grid, ...]
    seconds: tuple[float, ...]
    features: tuple[int, ...]
    media: tuple[tuple[int, int], ...]
    """Per run of placeholders: the first and one past the last."""
    items: tuple[tuple[str, int, int], ...]
    """Per item (kind, first placeholder, one past the last); a video is one item, also where its frames are apart."""
    targets: tuple[Grid, ...]


class Writer:
    """Writes one prompt of one family."""

    def __init__(self, family: str) -> None:
        self.name = family
        self.family = FAMILIES[family]
        self.runs: list[Run] = []
        self.ids: list[int] = []
        self.kinds: list[int] = []
        self.placed: list[tuple[int, int]] = []
        self.items: list[tuple[str, int, int]] = []

    def text(self, *ids: int) -> None:
        if not ids:
            return
        if self.runs and self.runs[-1].is_text:
            self.runs[-1] = text(self.runs[-1].tokens + len(ids))
        else:
            self.runs.append(text(len(ids)))
        self.ids.extend(ids)
        self.kinds.extend([0] * len(ids))

    def media(self, run: Run, token: int, kind: int) -> None:
        count = run_length(self.family, run)
        self.items.append((run.kind, len(self.ids), len(self.ids) + count))
        self.placed.append((len(self.ids), len(self.ids) + count))
        self.runs.append(run)
        self.ids.extend([token] * count)
        self.kinds.extend([kind] * count)

    def around(self, start: int, end: int, bare: bool, body: Callable[[], None]) -> None:
        """The body between its markers."""
        if not bare:
            self.text(start)
        body()
        if not bare:
            self.text(end)

    def image(self, grid: Grid, bare: bool) -> None:
        self.around(VISION_START, VISION_END, bare, lambda: self.media(image(*grid), IMAGE, 1))

    def video(self, grid: Grid, seconds: float, bare: bool) -> None:
        before = len(self.items)
        self.frames(grid, seconds, bare)
        first, last = self.items[before], self.items[-1]
        self.items[before:] = [("video", first[1], last[2])]

    def frames(self, grid: Grid, seconds: float, bare: bool) -> None:
        if self.name in GLM:
            self.around(VIDEO_START, VIDEO_END, bare, lambda: self.glm_frames(grid))
        elif self.family.frames_apart:
            for frame in range(grid[0]):
                self.text(*[TEXT] * (2 + frame % 3))
                self.around(VISION_START, VISION_END, bare, lambda: self.media(video(1, *grid[1:]), VIDEO, 2))
        elif self.name == "ernie4_5_vl":
            self.around(VIDEO_START, VIDEO_END, bare, lambda: self.media(video(*grid), IMAGE, 2))
        else:
            self.around(VISION_START, VISION_END, bare, lambda: self.media(video(*grid, seconds), VIDEO, 2))

    def glm_frames(self, grid: Grid) -> None:
        for frame in range(grid[0]):
            self.text(VISION_START)
            self.media(video(1, *grid[1:]), IMAGE, 2)
            self.text(VISION_END, *[TEXT] * (1 + frame % 2))

    def track(self, grid: Grid, seconds: float, audio_tokens: int) -> None:
        """Both tracks; builders count these tokens and do not look at their order."""
        run = video_with_audio(*grid, seconds, audio_tokens)
        marked = isinstance(self.family, Qwen2_5Omni)  # its markers belong to the run
        frames = grid[0] * (grid[1] // 2) * (grid[2] // 2)
        if not marked:
            self.text(VISION_START, AUDIO_START)
        self.items.append(("track", len(self.ids), len(self.ids) + run_length(self.family, run)))
        self.placed.append(self.items[-1][1:])
        self.runs.append(run)
        inside = [VIDEO] * frames + [AUDIO] * audio_tokens
        kinds = [2] * frames + [3] * audio_tokens
        if marked:
            inside = [VISION_START, AUDIO_START, *inside, AUDIO_END, VISION_END]
            kinds = [0, 0, *kinds, 0, 0]
        self.ids.extend(inside)
        self.kinds.extend(kinds)
        if not marked:
            self.text(AUDIO_END, VISION_END)

    def audio(self, tokens: int) -> None:
        body = Run(kind="audio", tokens=tokens)
        self.around(AUDIO_START, AUDIO_END, False, lambda: self.media(body, AUDIO, 3))


def lay_out(family: str, segments: tuple[Segment, ...]) -> Laid:
    """One prompt. Raises OutOfDomain for a segment that the family does not have."""
    writer = Writer(family)
    images: list[Grid] = []
    videos: list[Grid] = []
    seconds: list[float] = []
    features: list[int] = []
    targets: list[Grid] = []
    for segment in segments:
        grid = segment.grid or (1, 1, 1)
        if segment.kind == "text":
            writer.text(*[TEXT] * segment.tokens)
        elif segment.kind == "image":
            images.append(grid)
            writer.image(grid, segment.bare)
        elif segment.kind in ("video", "track"):
            videos.append(grid)
            seconds.append(segment.seconds)
            if segment.kind == "video":
                writer.video(grid, segment.seconds, segment.bare)
            else:
                features.append(segment.features)
                writer.track(grid, segment.seconds, audio_tokens(family, segment.features))
        elif segment.kind == "audio":
            features.append(segment.features)
            writer.audio(audio_tokens(family, segment.features))
        elif segment.kind == "target":
            targets.append(grid)
        else:
            raise OutOfDomain(f"a segment of kind {segment.kind!r}")
    if targets:
        if family != GLM_IMAGE.name:
            raise OutOfDomain(f"{family} writes no images")
        writer.text(VISION_START)
    return Laid(
        history=tuple(writer.runs),
        ids=tuple(writer.ids),
        kinds=tuple(writer.kinds),
        image_grids=(*images, *targets),
        video_grids=tuple(videos),
        seconds=tuple(seconds),
        features=tuple(features),
        media=tuple(writer.placed),
        items=tuple(writer.items),
        targets=tuple(targets),
    )


def audio_tokens(family: str, features: int) -> int:
    """Tokens of an audio of so many mel frames."""
    found = FAMILIES[family]
    if not isinstance(found, Qwen2_5Omni | Qwen3Omni):
        raise OutOfDomain(f"{family} hears no audio")
    return found.audio_tokens(features)

"""A prompt of a family as a list of segments, and what its processor would make of it: ids, kinds, grids.

Where a family puts markers around its media is written here, once; the histories come out of the same place, so that
ids and runs cannot disagree.
"""

from collections.abc import Callable

import msgspec

from ropecheck.conformance.families.fields import (
    AUDIO,
    AUDIO_END,
    AUDIO_START,
    GLM,
    IMAGE,
    NEWLINE,
    PATCH,
    SLICE_END,
    SLICE_START,
    TEXT,
    VIDEO,
    VIDEO_END,
    VIDEO_START,
    VISION_END,
    VISION_START,
    limits,
)
from ropecheck.spec.families import FAMILIES
from ropecheck.spec.families.glm_image import GLM_IMAGE
from ropecheck.spec.families.minicpm_v import MINICPM_V4_7, MiniCPMV, Picture
from ropecheck.spec.families.omni import video_with_audio
from ropecheck.spec.families.qwen2_5_omni import Qwen2_5Omni
from ropecheck.spec.families.qwen3_asr import Qwen3ASR
from ropecheck.spec.families.qwen3_omni import Qwen3Omni
from ropecheck.spec.families.resize import crops, tokens
from ropecheck.spec.history import History, OutOfDomain, Run, image, run_length, text, video

Grid = tuple[int, int, int]


class Segment(msgspec.Struct, frozen=True, tag="segment", omit_defaults=True):
    """A stretch of text, or a media item with the markers that its family puts around it."""

    kind: str
    """"text", "image", "video", "audio", "track" (a video with its audio), "target" (an image to be written) or
    "newline" (text; MiniCPM-V)."""
    tokens: int = 0
    """Text, or what the processor writes about a target: its size, between marks."""
    grid: Grid | None = None
    seconds: float = 1.0
    features: int = 0
    """Audio: mel frames."""
    slices: tuple[int, int, int, int] | None = None
    """MiniCPM-V: rows and columns of an image's slices, height and width of each in patches."""
    bare: bool = False
    """Without markers: the item touches what is beside it."""
    pixels: tuple[int, int] | None = None
    """An image's (height, width) as a client sends it: the family's resize rule says the grid."""


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
    """Per item (kind, first placeholder, one past the last); a video is one item, also where its frames are apart.
    MiniCPM-V: per crop."""
    targets: tuple[Grid, ...]
    pixels: tuple[tuple[int, int] | None, ...] = ()
    """Per image as a client sends it; None: its grid's."""


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

    def picture(self, run: Run, token: int, kind: int) -> list[Grid]:
        """A canvas with its markers. Returns the grids of its crops, the thumbnail's first."""
        if not isinstance(self.family, MiniCPMV):
            raise OutOfDomain(f"{self.name} has no slices")
        (_, h, w), (rows, cols, slice_h, slice_w) = self.family.grids(run)
        start = len(self.ids)
        self.runs.append(run)
        grids = [run.grid or (1, 1, 1)]
        self.crop(VISION_START, token, kind, h * w, VISION_END)
        for number in range(rows * cols):
            if number and number % cols == 0:
                self.ids.append(NEWLINE)
                self.kinds.append(0)
            self.crop(SLICE_START, token, kind, slice_h * slice_w, SLICE_END)
            grids.append((1, slice_h * self.family.merge, slice_w * self.family.merge))
        self.placed.append((start, len(self.ids)))
        return grids

    def crop(self, start: int, token: int, kind: int, count: int, end: int) -> None:
        self.items.append(("video" if kind == 2 else "image", len(self.ids) + 1, len(self.ids) + 1 + count))
        self.ids.extend([start, *[token] * count, end])
        self.kinds.extend([0, *[kind] * count, 0])

    def after_newline(self) -> bool:
        """Only newlines stand between here and the last picture."""
        before = len(self.ids)
        while before and self.ids[before - 1] == NEWLINE:
            before -= 1
        return before < len(self.ids) and bool(self.placed) and self.placed[-1][1] == before

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
    pixels: list[tuple[int, int] | None] = []
    for segment in segments:
        if segment.pixels is not None:
            segment = sized(family, segment, segment.pixels)
        if segment.kind == "image":
            pixels.append(segment.pixels)
        grid = segment.grid or (1, 1, 1)
        if segment.kind == "text":
            writer.text(*[TEXT] * segment.tokens)
        elif segment.kind == "newline" and family == MINICPM_V4_7.name:
            writer.text(NEWLINE)
        elif family == MINICPM_V4_7.name and segment.kind == "image":
            rows, cols, *size = segment.slices or (0, 0, 0, 0)
            apart = writer.after_newline()
            run = Picture(
                kind="image", grid=grid, rows=rows, cols=cols, slice_grid=(size[0], size[1]), after_newline=apart
            )
            images += writer.picture(run, IMAGE, 1)
        elif family == MINICPM_V4_7.name and segment.kind == "video":
            for _ in range(grid[0]):
                apart = writer.after_newline()
                run = Picture(kind="video", grid=(1, *grid[1:]), after_newline=apart)
                videos += writer.picture(run, VIDEO, 2)
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
            writer.text(*[VISION_START] * segment.tokens)
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
        pixels=tuple(pixels),
    )


def sized(family: str, segment: Segment, pixels: tuple[int, int]) -> Segment:
    """The segment with the grid, and the slices, that the family's resize rule gives so many pixels."""
    merge = getattr(FAMILIES[family], "merge", 2)
    if family == MINICPM_V4_7.name:
        found = crops(pixels, PATCH[family] * merge)
        (high, wide), (rows, cols), (slice_high, slice_wide) = found.thumbnail, found.grid, found.slice
        slices = (rows, cols, slice_high * merge, slice_wide * merge) if rows else None
        return msgspec.structs.replace(segment, grid=(1, high * merge, wide * merge), slices=slices)
    high, wide = tokens(limits(family, merge), pixels)
    return msgspec.structs.replace(segment, grid=(1, high * merge, wide * merge))


def audio_tokens(family: str, features: int) -> int:
    """Tokens of an audio of so many mel frames."""
    found = FAMILIES[family]
    if not isinstance(found, Qwen2_5Omni | Qwen3Omni | Qwen3ASR):
        raise OutOfDomain(f"{family} hears no audio")
    return found.audio_tokens(features)

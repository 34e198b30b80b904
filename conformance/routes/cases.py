"""What is sent through every route: pictures, clips and sounds. Expected: the family's table of what was sent, with the
sizes that its resize rule gives.

A clip's frames are two per temporal step, at most two a second, so that sampling at two a second keeps every one; or
four a second, of which it keeps every other.
"""

from collections.abc import Iterator

import msgspec

from ropecheck.conformance.families.case import Case, offered
from ropecheck.conformance.families.cases import Prompt, film, picture, sound, target, words
from ropecheck.conformance.families.layout import Segment
from ropecheck.conformance.families.routes import IDENTITY_ROUTES, PREFIX, TWICE
from ropecheck.spec.families import FAMILIES

QWEN = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe", "qwen4_exp", "cosmos3_omni")
"""Families of Qwen-VL's processor."""
DRIVEN = (
    *QWEN,
    *("cosmos3_edge", "qwen3_omni", "qwen3_asr", "glm4_1v", "glm4_5v", "glm4_6v", "glm_ocr"),
    *("paddleocr_vl", "ernie4_5_vl", "minicpm_v4_7", "glm_image"),
)
"""Families whose processors can be built here."""

BACK_END = "transformers back end"


def routes_of(family: str, kind: str) -> tuple[str, ...]:
    """The routes of a family that media of a kind can take; what one class does for many families is asked of three."""
    if family == "minicpm_v4_7":  # its table is always the scheduler's
        return ("client", "token prompt")
    found = ["client", "scheduler"]
    if family not in QWEN or family in PAIRED:
        found += ["token prompt"]
    if family in (*QWEN, "qwen3_omni") and family not in ("qwen4_exp", "cosmos3_omni"):  # which the engine refuses
        found += ["encoder apart"]
    if family == "qwen2_vl":
        found += ["batch"]
    if kind != "audio" and family in (*PAIRED, "qwen3_omni", "paddleocr_vl", "glm4_1v", "glm4_6v"):
        found += ["processor output"]
    if kind == "image" and family in PAIRED:
        found += ["cache", "embeddings", "rust server", "dictionary"]
    return tuple(found)


IN_LISTS = {
    "qwen2_vl": ("one clip", "a picture, then a clip"),
    "qwen3_vl": ("one picture", "one clip", "a picture, then a clip"),
    "qwen3_omni": ("one picture", "one clip"),
}
"""Prompts whose preprocessed media come with lists for grids: one of each way that a grid takes to the builder."""

TURNS = ("second turn", "second turn without a table")


def turns() -> dict[str, Prompt]:
    """Media on both sides of words: the second turn begins with the words behind the first item."""
    return {name: (images() | videos())[name] for name in ("two pictures", "two clips", "a picture, then a clip")}


PAIRED = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")
"""Families whose pairs of requests go through one prefix cache."""


def pairs(family: str) -> Iterator[Case]:
    """Two requests of equal pixels, plain grey, with columns that agree or do not."""

    def case(name: str, route: str, first: Prompt, second: Prompt) -> Case:
        return Case(f"{family}: {name} (two requests, {route})", family, (first, second), PREFIX + TWICE + route)

    if family not in PAIRED:
        last = (words(2), sound(300), words(1))
        yield case("two sounds, another first one", "client", (sound(120), *last), (sound(200), *last))
        return
    last = (words(2), picture(4, 4), words(1))
    yield case("two pictures, another first one", "client", (picture(4, 6), *last), (picture(8, 6), *last))
    flat = (words(2), picture(4, 6), words(3))
    tall = (words(2), picture(6, 4), words(3))
    for route in IDENTITY_ROUTES:
        yield case("the same picture", route, flat, flat)
        if route != "encoder apart":  # a vision tower would tell them apart, and none runs here
            yield case("a picture on its side", route, flat, tall)
    if family != "qwen3_vl":  # there the time of a frame is text, and the tokens differ
        slow, fast = ((words(2), film(3, 2, 2, seconds), words(2)) for seconds in (1.0, 2.0))
        yield case("the same clip", "processor output", slow, slow)
        yield case("the clip at another rate", "processor output", slow, fast)


def images() -> dict[str, Prompt]:
    return {
        "one picture": (words(2), picture(4, 6), words(3)),
        "a picture first": (picture(4, 4), words(3)),
        "a picture last": (words(3), picture(6, 4)),
        "two pictures": (words(1), picture(4, 6), words(2), picture(8, 2), words(1)),
        "two pictures of one grid, then another": (words(1), *2 * (picture(4, 4),), words(1), picture(2, 8), words(1)),
        "one token": (words(1), picture(2, 2), words(1)),
    }


def cropped() -> dict[str, Prompt]:
    """MiniCPM-V: pictures by their pixels, with slices and without."""
    return {
        "one square": (words(2), Segment(kind="image", pixels=(448, 448)), words(3)),
        "a small picture": (words(2), Segment(kind="image", pixels=(60, 100)), words(3)),
        "slices below each other": (words(1), Segment(kind="image", pixels=(896, 560)), words(1)),
        "slices beside each other": (words(1), Segment(kind="image", pixels=(420, 900)), words(1)),
        "six slices, then a square": (
            words(1),
            Segment(kind="image", pixels=(900, 1300)),
            words(2),
            Segment(kind="image", pixels=(300, 300)),
            words(1),
        ),
        "two frames, then a picture": (
            words(1),
            film(2, 32, 32),
            words(1),
            Segment(kind="image", pixels=(448, 448)),
            words(1),
        ),
    }


def drawn() -> dict[str, Prompt]:
    """GLM-Image: what the model is told to draw. Without a picture it draws a preview first, of a size that follows."""
    return {
        "draws a picture": (words(4), said(4, 6), said(13, 19)),
        "draws another picture": (words(2), picture(4, 6), words(3), said(4, 4)),
        "draws one picture of two": (words(1), picture(3, 5), words(1), picture(4, 2), words(1), said(2, 5)),
    }


def said(height: int, width: int) -> Segment:
    """A target whose size stands in the prompt: two numbers between two marks."""
    return msgspec.structs.replace(target(height, width), tokens=4)


DEFAULT = said(36, 24)
"""What GLM-Image's processor lets the model draw unless it is told: 1152 x 768 pixels, 32 a token."""


def drawn_by_default() -> dict[str, Prompt]:
    return {name: (*prompt, DEFAULT) for name, prompt in images().items()}


def resized() -> dict[str, Prompt]:
    """Pictures whose sides are no whole tokens, or outside the limits."""

    def sized(height: int, width: int) -> Segment:
        return Segment(kind="image", pixels=(height, width))

    return {
        "a picture of odd sides": (words(1), sized(61, 130), words(2)),
        "a small and a large picture": (words(1), sized(33, 95), words(1), sized(600, 480), words(1)),
    }


def videos() -> dict[str, Prompt]:
    return {
        "one clip": (words(2), film(2, 4, 6, 1.0), words(2)),
        "a slow clip": (words(1), film(2, 4, 4, 3.0), words(2)),
        "two clips": (words(1), film(1, 4, 4, 1.0), words(1), film(3, 4, 6, 2.0), words(1)),
        "a picture, then a clip": (words(1), picture(4, 6), words(1), film(2, 4, 4, 2.0), words(1)),
        "a clip, then a picture": (words(1), film(2, 4, 4, 2.0), words(1), picture(4, 6), words(1)),
    }


def sounds(pictures: bool) -> dict[str, Prompt]:
    found = {
        "a sound": (words(2), sound(250), words(2)),
        "a short sound": (words(1), sound(3), words(1)),
        "two sounds": (words(1), sound(120), words(2), sound(300), words(1)),
    }
    if pictures:
        found["a picture, then a sound"] = (words(1), picture(4, 6), words(1), sound(80), words(1))
        found["a sound, then a clip"] = (words(1), sound(80), words(1), film(2, 4, 4, 2.0), words(1))
    return found


def cases(target: str) -> Iterator[Case]:
    """Everything that the routes phase sends to a target."""
    for family in DRIVEN:
        if offered(family, target) == "checked" and target == "sglang":
            yield from routed(family)


def routed(family: str) -> Iterator[Case]:
    """The cases of one family; none of a family whose processors are not built."""
    if family not in DRIVEN:
        return
    if family == "minicpm_v4_7":
        yield from _of(family, cropped(), routes_of(family, "image"))
        return
    if family == "glm_image":
        yield from _of(family, drawn(), ("processor output",))
        yield from _of(family, drawn_by_default(), ("client",))
        yield from _of(family, {"one picture": drawn_by_default()["one picture"]}, ("token prompt",))
        return
    kinds = FAMILIES[family].kinds
    for kind, prompts in (("image", images() | resized()), ("video", videos()), ("audio", sounds("image" in kinds))):
        if kind in kinds and (family, kind) not in UNSENT:
            yield from _of(family, prompts, routes_of(family, kind))
    listed = {name: (images() | videos())[name] for name in IN_LISTS.get(family, ())}
    yield from _of(family, listed, ("processor output, grids in lists",))
    if family in QWEN:
        yield from _of(family, images() | (videos() if family in PAIRED else {}), (BACK_END,))
    if family in ("qwen2_vl", "qwen2_5_vl"):  # Qwen3-VL writes the frames' times, which are those of the frames kept
        clips: dict[str, Prompt] = {
            f"a clip of {steps} s": (words(1), film(steps, 4, 6, 1.0), words(2)) for steps in (2, 5)
        }
        yield from _of(family, clips, ("client, every other frame",))
    if family in PAIRED:
        narrow = (words(1), Segment(kind="image", pixels=(17, 130)), words(2))  # one side is less than a token's
        yield from _of(family, {"a narrow picture": narrow}, ("client",))
        yield from _of(family, turns(), (*TURNS, "chat"))
        two = {name: prompt for name, prompt in turns().items() if name == "two pictures"}
        yield from _of(family, two, ("second turn out of the cache",))
    if family == "qwen3_omni":
        between = (words(1), sound(120), words(1), picture(4, 6), words(1), sound(300), words(1))
        yield from _of(family, {"a picture between two sounds": between}, ("client", "token prompt", "encoder apart"))
        yield from _of(family, {"a picture and three sounds": (*between, sound(80))}, ("client",))
    if family in PAIRED or "audio" in kinds:
        yield from pairs(family)


UNSENT = (("paddleocr_vl", "video"),)
"""Kinds that a family's builder places and its processor does not take."""


def _of(family: str, prompts: dict[str, Prompt], routes: tuple[str, ...]) -> Iterator[Case]:
    for route in routes:
        for name, prompt in prompts.items():
            if (family, route, name) == ("qwen3_omni", "processor output", "two clips"):
                continue  # its processor takes one rate for all clips
            if family == "ernie4_5_vl":
                prompt = tuple(map(for_ernie, prompt))
            yield Case(f"{family}: {name} ({route})", family, (prompt,), PREFIX + route)


def for_ernie(segment: Segment) -> Segment:
    """Two steps of a clip make a token, and a picture has four at least."""
    if segment.grid is None:
        return segment
    t, h, w = segment.grid
    grid = (t + t % 2, h, w) if segment.kind == "video" else (t, max(h, 4), max(w, 4))
    return msgspec.structs.replace(segment, grid=grid)

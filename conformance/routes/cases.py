"""What is sent through every route: pictures and clips that no resize rule changes, so that what the client sent says
everything. Expected: the family's table of that.

A clip's frames are two per temporal step, at most two a second, so that sampling at two a second keeps every one.
"""

from __future__ import annotations

from collections.abc import Iterator

from ropecheck.conformance.families.case import Case, offered
from ropecheck.conformance.families.cases import Prompt, film, picture, words
from ropecheck.conformance.families.routes import IDENTITY_ROUTES, PREFIX, TWICE
from ropecheck.spec.families import FAMILIES

IMAGE_ROUTES = ("client", "token prompt", "cache", "processor output", "embeddings", "encoder apart", "scheduler")
VIDEO_ROUTES = ("client", "token prompt", "encoder apart", "scheduler")
BACK_END = "transformers back end"

DRIVEN = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe", "qwen4_exp", "cosmos3_omni")
"""Families whose processors can be built here."""


PAIRED = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")
"""Families whose pairs of requests go through one prefix cache."""


def pairs(family: str) -> Iterator[Case]:
    """Two requests of equal tokens and equal pixels, plain grey, with columns that agree or do not."""
    rule = "prefix.identity"

    def case(name: str, route: str, first: Prompt, second: Prompt) -> Case:
        return Case(f"{family}: {name} (two requests, {route})", family, (first, second), rule, PREFIX + TWICE + route)

    flat = (words(2), picture(4, 6), words(3))
    tall = (words(2), picture(6, 4), words(3))
    for route in IDENTITY_ROUTES:
        yield case("the same picture", route, flat, flat)
        if route != "encoder apart":  # a vision tower would tell them apart, and none runs here
            yield case("a picture on its side", route, flat, tall)
    if family != "qwen3_vl":  # there the time of a frame is text, and the tokens differ
        slow, fast = ((words(2), film(3, 2, 2, seconds), words(2)) for seconds in (1.0, 2.0))
        yield case("the same clip", "encoder apart", slow, slow)
        yield case("the clip at another rate", "encoder apart", slow, fast)


def images() -> dict[str, Prompt]:
    return {
        "one picture": (words(2), picture(4, 6), words(3)),
        "a picture first": (picture(4, 4), words(3)),
        "a picture last": (words(3), picture(6, 4)),
        "two pictures": (words(1), picture(4, 6), words(2), picture(8, 2), words(1)),
        "three pictures of one grid": (words(1), picture(4, 4), picture(4, 4), words(1), picture(4, 4), words(1)),
        "one token": (words(1), picture(2, 2), words(1)),
    }


def videos() -> dict[str, Prompt]:
    return {
        "one clip": (words(2), film(2, 4, 6, 1.0), words(2)),
        "a slow clip": (words(1), film(2, 4, 4, 3.0), words(2)),
        "two clips": (words(1), film(2, 4, 4, 1.0), words(1), film(3, 4, 6, 2.0), words(1)),
        "a picture, then a clip": (words(1), picture(4, 6), words(1), film(2, 4, 4, 2.0), words(1)),
        "a clip, then a picture": (words(1), film(2, 4, 4, 2.0), words(1), picture(4, 6), words(1)),
    }


def cases(target: str) -> Iterator[Case]:
    """Everything that the routes phase sends to a target."""
    for family in DRIVEN:
        if offered(family, target) == "checked" and target == "sglang":
            yield from routed(family)


def routed(family: str) -> Iterator[Case]:
    """The cases of one family; none of a family whose processors are not built."""
    if family not in DRIVEN:
        return
    yield from _of(family, images(), IMAGE_ROUTES)
    if "video" in FAMILIES[family].kinds:
        yield from _of(family, videos(), VIDEO_ROUTES)
    yield from _of(family, images(), (BACK_END,))
    if family in PAIRED:
        yield from pairs(family)


def _of(family: str, prompts: dict[str, Prompt], routes: tuple[str, ...]) -> Iterator[Case]:
    rule = "families.absolute_time" if FAMILIES[family].absolute_time else "families.table"
    for route in routes:
        for name, prompt in prompts.items():
            clips = any(segment.kind == "video" for segment in prompt)
            yield Case(
                f"{family}: {name} ({route})", family, (prompt,), rule if clips else "families.table", PREFIX + route
            )

"""Pixels to grids: values worked out by hand, and what a case makes of them."""

from __future__ import annotations

import pytest

from ropecheck.conformance.families.case import Case, step
from ropecheck.conformance.families.files import described, refuse_wrong
from ropecheck.conformance.families.layout import Segment
from ropecheck.spec.families.canvas import canvases, pattern
from ropecheck.spec.families.minicpm_v import sliced
from ropecheck.spec.families.resize import Crops, Limits, crops, slicing, tokens
from ropecheck.spec.history import OutOfDomain, image, text

LIMITS = Limits(side=28, smallest=4 * 28 * 28, largest=10 * 28 * 28)


@pytest.mark.parametrize(
    ("size", "grid"),
    [
        ((56, 84), (2, 3)),
        ((60, 90), (2, 3)),  # 2.14 and 3.21 tokens
        ((69, 99), (2, 4)),  # 2.46 and 3.54
        ((20, 100), (1, 4)),  # 0.71 and 3.57
        ((28, 28), (2, 2)),  # one token, and four are the least: sides times 2
        ((28, 84), (2, 4)),  # three, of four: sides times sqrt(4 / 3), 1.15 and 3.46 tokens, rounded up
        ((112, 112), (3, 3)),  # sixteen, and ten are the most: sides times sqrt(10 / 16), 3.16 tokens
        ((56, 280), (1, 7)),  # twenty: sides times sqrt(1 / 2), 1.41 and 7.07 tokens, rounded down
    ],
)
def test_a_picture_becomes_whole_tokens_within_the_limits(size: tuple[int, int], grid: tuple[int, int]) -> None:
    assert tokens(LIMITS, size) == grid


def test_frames_share_the_limits() -> None:
    assert tokens(Limits(28, 28 * 28, 10 * 28 * 28, frames=2), (84, 84)) == (2, 2)  # 18 of 10: 3 times sqrt(10 / 18)


@pytest.mark.parametrize(("size", "frames"), [((70, 56), 1), ((13, 56), 1), ((27, 56), 2)])
def test_half_a_token_and_less_are_refused_and_for_glm_less_than_one(size: tuple[int, int], frames: int) -> None:
    with pytest.raises(OutOfDomain):
        tokens(Limits(28, 784, 7840, frames), size)


def test_slices_have_the_shape_of_the_picture() -> None:
    assert slicing((448, 896), 2) == (1, 2)
    assert slicing((896, 448), 2) == (2, 1)
    assert slicing((448, 448), 2) == (2, 1)  # one beside the other is as near: more rows
    assert slicing((900, 1300), 6) == (2, 3)
    assert crops((300, 300), 56) == Crops(thumbnail=(8, 8))  # small pictures are enlarged


def test_a_case_says_pixels_and_the_family_the_grid() -> None:
    case = Case("x", "qwen2_vl", ((Segment(kind="text", tokens=1), Segment(kind="image", pixels=(61, 130))),))
    sent = step(case)
    refuse_wrong(case)
    assert described(case) == "1 text, image 61 x 130 pixels"
    assert (sent.image_grids, sent.image_pixels) == (((1, 4, 10),), ((61, 130),))
    huge = Case("x", "qwen2_vl", ((Segment(kind="image", pixels=(1 << 40, 1)),),))
    with pytest.raises(OutOfDomain, match=r"pixels\[0\]"):
        refuse_wrong(huge)


def test_crops_stand_where_the_client_put_their_picture() -> None:
    run = sliced(8, 4, 2, 1, 4, 4)  # two tokens, and two slices of one
    assert [kind == "image" for kind in pattern(run)] == [bool(one) for one in (0, 1, 1, 0, 0, 1, 0, 0, 0, 1, 0)]
    kinds = ("text", "text", *pattern(run), "text")
    assert canvases((text(1), run), kinds) == (text(2), run, text(1))
    for sent, torn, words in (
        ((text(1), run), kinds[:-3], "from token 2 on there is no image of 11 tokens"),
        ((), kinds, "more media than the client sent"),
        ((image(1, 4, 4),), kinds, "there is no image"),
    ):
        with pytest.raises(OutOfDomain, match=words):
            canvases(sent, torn)

"""The families' own columns, worked out by hand, and what each family refuses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from ropecheck.spec.families import FAMILIES
from ropecheck.spec.families.canvas import canvases, pattern
from ropecheck.spec.families.declaration import GridFamily, MediaFamily, block, frame_times, merged_grid, ramp
from ropecheck.spec.families.hunyuan_vl import HUNYUAN_VL
from ropecheck.spec.families.minicpm_v import MINICPM_V4_7, sliced, stretched
from ropecheck.spec.families.omni import audio, has_track, video_with_audio
from ropecheck.spec.families.prompt import Prompt, history_of, items_in_order, order, spans
from ropecheck.spec.families.qwen2_5_omni import QWEN2_5_OMNI
from ropecheck.spec.families.qwen2_5_vl import QWEN2_5_VL
from ropecheck.spec.families.qwen2_vl import QWEN2_VL
from ropecheck.spec.families.qwen3_asr import QWEN3_ASR
from ropecheck.spec.families.qwen3_omni import QWEN3_OMNI, by_time
from ropecheck.spec.families.qwen3_vl import QWEN3_VL, video_frames
from ropecheck.spec.families.resize import Crops, Limits, crops, nearest, nearest_of, reaching, scaled, slicing, tokens
from ropecheck.spec.history import (
    Column,
    History,
    OutOfDomain,
    Run,
    TokenIndex,
    cut,
    delta_of,
    ideal_column,
    image,
    length,
    prompt_table,
    text,
    video,
)


def flat(*values: int) -> tuple[Column, ...]:
    """Columns of equal rows."""
    return tuple((value,) * 3 for value in values)


# ---------------------------------------------------------------- blocks of tokens


def test_a_block_is_time_then_height_then_width() -> None:
    assert block(5, (0, 2), 2, 1) == ((5, 5, 5), (5, 6, 5), (7, 5, 5), (7, 6, 5))
    assert ramp(5, 2) == flat(5, 6) and ramp(5, 1, axes=4) == ((5,) * 4,) and ramp(5, 0) == ()


@pytest.mark.parametrize(
    ("run", "merge", "temporal", "grid"),
    [
        (image(1, 4, 8), 2, 1, (1, 2, 4)),
        (image(1, 4, 8), 4, 2, (1, 1, 2)),
        (video(4, 4, 8), 2, 2, (2, 2, 4)),
        (video(1, 1, 1), 1, 1, (1, 1, 1)),
    ],
)
def test_a_grid_in_tokens(run: Run, merge: int, temporal: int, grid: tuple[int, int, int]) -> None:
    assert merged_grid(run, merge, temporal) == grid


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (audio(3), "needs a grid"),
        (Run(kind="video"), "needs a grid"),
        (Run(kind="audio", grid=(1, 2, 2)), "needs a grid"),
        (image(1, 0, 4), "an empty axis"),
        (video(0, 4, 4), "an empty axis"),
        (image(1, 3, 4), "spatial merge 2"),
        (image(1, 4, 3), "spatial merge 2"),
        (image(2, 4, 4), "one temporal step"),
        (video(3, 4, 4), "temporal merge 2"),
    ],
)
def test_a_grid_that_no_processor_makes(run: Run, reason: str) -> None:
    with pytest.raises(OutOfDomain, match=reason):
        merged_grid(run, 2, 2)


def test_frames_in_time() -> None:
    assert frame_times(video(3, 2, 2, 1.5), 3, 2) == (0, 3, 6)
    assert frame_times(video(3, 2, 2, 1.5), 3, None) == frame_times(image(1, 2, 2), 3, 2) == (0, 1, 2)
    assert frame_times(video(3, 2, 2, 0.0), 3, 2) == (0, 0, 0)
    for seconds in (-0.5, float("nan"), float("inf")):
        with pytest.raises(OutOfDomain, match="is not a duration"):
            frame_times(video(3, 2, 2, seconds), 3, 2)


def test_what_a_family_of_blocks_refuses() -> None:
    for family, run, reason in (
        (QWEN2_VL, audio(2), "no media of kind 'audio'"),
        (QWEN2_VL, video_with_audio(1, 2, 2, 1.0, 3), "3 were given"),
        (QWEN3_VL, video(2, 2, 2), "each of a video's 2 frames"),
    ):
        with pytest.raises(OutOfDomain, match=reason):
            family.media_columns(run, 0)
    assert QWEN3_VL.token_count(video(1, 4, 4)) == 4 and QWEN2_VL.token_count(video(2, 4, 4)) == 8


def test_which_families_know_time() -> None:
    timed = {name for name, family in FAMILIES.items() if family.absolute_time}
    assert timed == {"qwen2_5_vl", "qwen2_5_omni", "qwen3_omni"}
    assert not GridFamily(name="x", source="").absolute_time


def test_frames_and_their_timestamps() -> None:
    assert video_frames((2, 4, 6), (3, 5), after=2) == (
        text(3),
        video(1, 4, 6),
        text(2),
        text(5),
        video(1, 4, 6),
        text(2),
    )
    with pytest.raises(OutOfDomain, match="2 temporal steps needs 2 timestamps; 3 were given"):
        video_frames((2, 4, 6), (1, 1, 1))


# ---------------------------------------------------------------- sound, alone and beside a video


@pytest.mark.parametrize("family", [QWEN2_5_OMNI, QWEN3_OMNI, QWEN3_ASR])
def test_sound_is_a_line(family: MediaFamily) -> None:
    assert family.media_columns(audio(3), 4) == flat(4, 5, 6) and family.token_count(audio(3)) == 3
    assert family.media_columns(audio(1), 4) == flat(4)
    with pytest.raises(OutOfDomain, match="it has 0"):
        family.media_columns(audio(0), 4)


@pytest.mark.parametrize("family", [QWEN2_5_OMNI, QWEN3_OMNI])
def test_pictures_and_videos_of_an_omni_family(family: MediaFamily) -> None:
    assert family.media_columns(image(1, 4, 2), 4) == ((4, 4, 4), (4, 5, 4)) and family.token_count(image(1, 4, 2)) == 2
    second = 29 if family is QWEN2_5_OMNI else 17
    assert family.media_columns(video(2, 2, 2, 1.0), 4) == ((4, 4, 4), (second, 4, 4))
    with pytest.raises(OutOfDomain, match="from its grid"):
        family.media_columns(Run(kind="image", grid=(1, 2, 2), tokens=1), 0)
    assert has_track(video_with_audio(1, 2, 2, 1.0, 1)) and not has_track(video(1, 2, 2))
    assert not has_track(audio(4)) and not has_track(Run(kind="video", grid=(1, 2, 2), tokens=0))


def test_qwen3_asr_hears_and_does_not_see() -> None:
    with pytest.raises(OutOfDomain, match="'image'"):
        QWEN3_ASR.media_columns(image(1, 2, 2), 0)
    assert QWEN3_ASR.audio_tokens(108) == 14


def test_chunks_of_two_seconds() -> None:
    """25 positions a second: frames at 0, 50 and 100, three chunks; the sound ends in the second one."""
    run = video_with_audio(3, 2, 2, 2.0, 51)
    pieces = QWEN2_5_OMNI.pieces(run, 10)
    assert pieces == [
        ((10, 10, 10),),
        flat(*range(10, 60)),
        ((60, 10, 10),),
        flat(60),
        ((110, 10, 10),),
    ]
    columns = QWEN2_5_OMNI.media_columns(run, 9)
    assert columns[:3] == (*flat(9, 9), (10, 10, 10)) and columns[-3:] == ((110, 10, 10), *flat(111, 111))
    assert len(columns) == QWEN2_5_OMNI.token_count(run) == 3 + 51 + 4
    assert QWEN2_5_OMNI.released_columns(run, 9) == (columns, 112)


def test_of_the_released_code_the_end_markers_stand_behind_the_last_piece() -> None:
    """A frame of four rows reaches 13, the sound 11."""
    run = video_with_audio(1, 8, 2, 1.0, 2)
    content = ((10, 10, 10), (10, 11, 10), (10, 12, 10), (10, 13, 10), *flat(10, 11))
    assert QWEN2_5_OMNI.media_columns(run, 9) == (*flat(9, 9), *content, *flat(14, 14))
    assert QWEN2_5_OMNI.released_columns(run, 9) == ((*flat(9, 9), *content, *flat(12, 12)), 13)


def test_token_by_token_in_time() -> None:
    """13 positions a second."""
    run = video_with_audio(2, 4, 2, 1.0, 15)
    frame = ((5, 5, 5), (5, 6, 5)), ((18, 5, 5), (18, 6, 5))
    columns = (*frame[0], *flat(*range(5, 18)), *frame[1], *flat(18, 19))
    assert QWEN3_OMNI.media_columns(run, 5) == columns and QWEN3_OMNI.token_count(run) == len(columns)
    assert QWEN3_OMNI.released_columns(run, 5) == (columns, 20)
    assert by_time(flat(1, 3), flat(1, 2)) == (flat(1, 1, 2, 3), 1)
    assert by_time(flat(4), flat(1, 2, 5, 6)) == (flat(1, 2, 4, 5, 6), 2)
    assert by_time((), flat(1)) == (flat(1), 1)


def test_qwen3_omni_refuses_a_frame_between_two_positions() -> None:
    for run in (video(2, 2, 2, 0.5), video_with_audio(2, 2, 2, 0.5, 3)):
        for columns in (QWEN3_OMNI.media_columns, QWEN3_OMNI.released_columns):
            with pytest.raises(OutOfDomain, match=r"frame 1 at 6\.5 positions"):
                columns(run, 0)
    QWEN3_OMNI.check_whole(video(1, 2, 2, 0.5))  # the first frame is at 0
    QWEN3_OMNI.check_whole(audio(3))
    QWEN3_OMNI.check_whole(video(3, 2, 2, 2.0))
    QWEN3_OMNI.check_whole(video(2, 2, 2, 3 / 13))  # 3, but for the last bits


@pytest.mark.parametrize(
    ("count", "features"),
    [
        (QWEN2_5_OMNI.audio_tokens, {1: 0, 2: 0, 3: 1, 4: 1, 7: 2, 100: 25}),
        (QWEN3_OMNI.audio_tokens, {1: 1, 8: 1, 9: 2, 100: 13, 108: 14, 199: 26, 200: 26}),
    ],
)
def test_tokens_of_sound(count: Callable[[int], int], features: dict[int, int]) -> None:
    assert {one: count(one) for one in features} == features


# ---------------------------------------------------------------- four rows, canvases


def test_hunyuan_counts_its_pictures_and_ends_its_lines() -> None:
    run = image(1, 4, 2)  # two lines of one token and a newline
    assert HUNYUAN_VL.token_count(run) == 6 and HUNYUAN_VL.lines(run) == (2, 1)
    assert HUNYUAN_VL.numbered_columns(run, 7, 3) == (
        (7, 7, 7, 7),
        (8, 0, 0, 3),
        (9, 1, 0, 3),
        (10, 0, 1, 3),
        (11, 1, 1, 3),
        (12, 12, 12, 12),
    )
    assert HUNYUAN_VL.media_columns(run, 7) == HUNYUAN_VL.numbered_columns(run, 7, 0)
    for odd in (video(1, 2, 2), Run(kind="image", grid=(1, 2, 2), tokens=1)):
        with pytest.raises(OutOfDomain, match="no media of kind"):
            HUNYUAN_VL.lines(odd)


def test_a_pictures_number_counts_the_pictures_before_it() -> None:
    table = prompt_table(HUNYUAN_VL, (image(1, 2, 2), text(1), image(1, 2, 2)))
    assert [column[3] for column in table] == [0, 0, 0, 3, 4, 5, 1, 1, 8] and delta_of(table) == 0


def test_a_canvas_with_slices() -> None:
    """A thumbnail of 1 x 1, slices 2 x 2 of 1 x 2 tokens: a canvas of 2 x 4 from 5 on."""
    run = sliced(4, 4, 2, 2, 4, 8)
    columns = MINICPM_V4_7.media_columns(run, 5)
    assert columns == (
        (5, 4, 4),
        (5, 5, 5),
        (5, 7, 9),
        *((5, 5, 5), (5, 5, 5), (5, 5, 6), (5, 5, 6)),
        *((5, 5, 7), (5, 5, 7), (5, 5, 8), (5, 5, 8)),
        (5, 5, 9),  # the newline behind the first row of slices
        *((5, 6, 5), (5, 6, 5), (5, 6, 6), (5, 6, 6)),
        *((5, 6, 7), (5, 6, 7), (5, 6, 8), (5, 6, 8)),
    )
    assert MINICPM_V4_7.token_count(run) == len(columns) == len(pattern(run))
    assert prompt_table(MINICPM_V4_7, (text(5), run, text(1)))[-1] == (10, 10, 10)
    moved = MINICPM_V4_7.media_columns(replace(run, after_newline=True), 4)
    assert moved == columns


def test_a_canvas_of_a_thumbnail() -> None:
    assert MINICPM_V4_7.media_columns(image(1, 8, 4), 0) == ((0, 0, 0), (0, 0, 0), (0, 1, 0), (0, 2, 1))
    assert MINICPM_V4_7.media_columns(image(1, 8, 4), 1)[0] == (1, 0, 0)
    stretched_over = MINICPM_V4_7.media_columns(sliced(8, 12, 1, 2, 8, 8), 1)
    assert stretched_over[1:7] == ((1, 1, 1), (1, 1, 3), (1, 1, 4), (1, 2, 1), (1, 2, 3), (1, 2, 4))


@pytest.mark.parametrize(
    ("count", "size", "places"),
    [
        (1, 5, [0]),
        (3, 5, [0, 2, 4]),
        (4, 4, [0, 1, 2, 3]),
        (3, 2, [0, 0, 1]),  # half way: the even one
        (3, 4, [0, 2, 3]),  # 1.5
        (3, 8, [0, 4, 7]),  # 3.5
        (3, 6, [0, 2, 5]),  # 2.5
        (4, 6, [0, 2, 3, 5]),  # 1.67 and 3.33
        (6, 8, [0, 1, 3, 4, 6, 7]),  # 1.4, 2.8, 4.2, 5.6
    ],
)
def test_places_are_spread_evenly(count: int, size: int, places: list[int]) -> None:
    assert [stretched(place, count, size) for place in range(count)] == places


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (audio(2), "no media of kind 'audio'"),
        (Run(kind="image", grid=(1, 4, 4), tokens=1), "1 tokens of its own"),
        (video(2, 4, 4), "each of a video's 2 frames"),
        (sliced(4, 4, 0, 2, 4, 4), "0 x 2 slices"),
        (sliced(4, 4, 2, 0, 4, 4), "2 x 0 slices"),
        (sliced(4, 4, 1, 1, 4, 6), "spatial merge 4"),
        (image(1, 4, 6), "spatial merge 4"),
    ],
)
def test_what_minicpm_refuses(run: Run, reason: str) -> None:
    with pytest.raises(OutOfDomain, match=reason):
        MINICPM_V4_7.grids(run)


def test_the_pattern_of_a_picture_and_its_slices() -> None:
    words = {"t": "text", "i": "image"}
    whole = pattern(sliced(4, 4, 2, 2, 4, 8))
    assert whole == tuple(words[one] for one in "tit" + "tiit" * 2 + "t" + "tiit" * 2)
    assert pattern(video(1, 4, 8)) == ("text", "video", "video", "text")
    two: History = (image(1, 4, 4), image(1, 4, 4))
    assert canvases(two, ("text", "image", "text") * 2) == two
    assert canvases((), ("text",) * 2) == (text(2),) and canvases((), ()) == ()


# ---------------------------------------------------------------- from a processor's words to a history


def test_stretches_and_words() -> None:
    assert spans(("text", "text", "image", "text")) == [("text", 2), ("image", 1), ("text", 1)] and spans(()) == []
    assert order(("word", "word", "image", "text", "image", "video")) == ("word", "word", "image", "video")


GRIDS = Prompt(kinds=(), image_grids=((1, 4, 4),), video_grids=((2, 4, 4), (1, 4, 4)), audio_tokens=(3,))


def test_items_by_kind() -> None:
    timed = replace(GRIDS, seconds_per_grid=(0.5, 2.0))
    images, sounds = [image(1, 4, 4)], [audio(3)]
    videos = [video(2, 4, 4), video(1, 4, 4)]
    assert items_in_order(QWEN2_VL, GRIDS) == {"image": images, "video": videos, "audio": sounds}
    assert items_in_order(QWEN2_VL, timed)["video"] == videos  # it does not know time
    assert items_in_order(QWEN2_5_VL, timed)["video"] == [video(2, 4, 4, 0.5), video(1, 4, 4, 2.0)]
    assert items_in_order(QWEN3_VL, GRIDS)["video"] == [video(1, 4, 4)] * 3
    for family, prompt, reason in (
        (QWEN2_5_VL, GRIDS, "their intervals are missing"),
        (QWEN2_VL, replace(GRIDS, seconds_per_grid=(1.0,)), "2 videos but 1 intervals"),
    ):
        with pytest.raises(OutOfDomain, match=reason):
            items_in_order(family, prompt)
    assert items_in_order(QWEN2_5_VL, replace(GRIDS, video_grids=()))["video"] == []


@pytest.mark.parametrize(
    ("kinds", "reason"),
    [
        (("image",) * 4 + ("text",) + ("image",) * 4, "more image runs than its 1 image items"),
        (("image",) * 3, "image 0 has 3 placeholder tokens; its item has 4"),
        (("text",), "the prompt has 0 image runs for 1 image items"),
        (("image",) * 4 + ("audio",), "qwen2_vl has no media of kind 'audio'"),
        (("image",) * 4 + ("smell",), "qwen2_vl has no media of kind 'smell'"),
    ],
)
def test_stretches_that_are_no_items(kinds: tuple[str, ...], reason: str) -> None:
    with pytest.raises(OutOfDomain, match=reason):
        history_of(
            QWEN2_VL, Prompt(kinds=kinds, image_grids=((1, 4, 4),), audio_tokens=(1,) if "audio" in kinds else ())
        )
    two = Prompt(kinds=("image", "text", "image", "image"), image_grids=((1, 2, 2), (1, 2, 4)))
    assert history_of(QWEN2_VL, two) == (image(1, 2, 2), text(1), image(1, 2, 4))


@pytest.mark.parametrize(
    ("tokens", "kept"),
    [
        (0, ()),
        (2, (text(2),)),
        (3, (text(3),)),
        (5, (text(3), replace(image(1, 4, 4), kept=2))),
        (7, (text(3), image(1, 4, 4))),
        (8, (text(3), image(1, 4, 4), text(1))),
    ],
)
def test_a_cut(tokens: int, kept: History) -> None:
    whole: History = (text(3), image(1, 4, 4), text(2))
    assert cut(QWEN2_VL, whole, tokens) == kept and length(QWEN2_VL, kept) == tokens
    table = prompt_table(QWEN2_VL, whole)
    assert prompt_table(QWEN2_VL, kept) == table[:tokens] and ideal_column(table, TokenIndex(tokens)) == table[tokens]
    assert ideal_column(table, TokenIndex(9)) == (7, 7, 7) and ideal_column(table, TokenIndex(11)) == (9, 9, 9)
    with pytest.raises(OutOfDomain, match="cannot keep 11 tokens of a history of 9"):
        cut(QWEN2_VL, whole, 11)


# ---------------------------------------------------------------- pixels


def test_a_side_is_a_token_at_least() -> None:
    limits = Limits(side=10, smallest=100, largest=400)
    # twenty tokens, and four are the most: sides times sqrt(400 / 1200), 0.35 and 11.5 tokens
    assert tokens(limits, (6, 200)) == (1, 11) and tokens(limits, (200, 6)) == (11, 1)
    assert tokens(replace(limits, frames=2), (10, 20)) == (1, 2)  # two frames of two tokens: all that there may be


def test_whole_tokens() -> None:
    assert [nearest(length, 10) for length in (4, 6, 14, 16, 20)] == [0, 1, 1, 2, 2]
    with pytest.raises(OutOfDomain, match="25 pixels are half way between 2 and 3 tokens of 10"):
        nearest(25, 10)
    assert [reaching(number, 1) for number in (1, 2, 4, 5, 9)] == [1, 2, 2, 3, 3]
    assert reaching(9, 2) == 3 and reaching(8, 2) == 2 and reaching(17, 4) == 3  # 4.5, 4 and 4.25
    assert [nearest_of(length, 3) for length in (1, 4, 5, 9, 10, 11)] == [3, 3, 6, 9, 9, 12]


def test_a_picture_and_its_crops() -> None:
    assert scaled((448, 448), 56) == (8, 8) and scaled((100, 400), 56) == (4, 16) and scaled((10, 9000), 56) == (1, 225)
    assert scaled((9000, 10), 56) == (240, 1)
    assert slicing((448, 4480), 9) == (1, 9) and slicing((4480, 448), 9) == (9, 1)
    assert slicing((448, 1344), 2) == (1, 3)  # one more than wanted, and the shape
    assert slicing((448, 896), 3) == (1, 2)  # a row of three is farther from twice as wide
    assert crops((448, 449), 56) == Crops((8, 8), (1, 2), (11, 6))
    assert crops((4480, 4480), 56) == Crops((8, 8), (3, 3), (8, 8))

"""What builders with the known differences answer, worked out by hand, and when two answers say the same."""

from __future__ import annotations

from dataclasses import replace as changed

import numpy as np
import pytest
from msgspec.structs import replace

from ropecheck.adapters.protocol import NotOfferedAnswer, PromptTables, Raised, Result
from ropecheck.conformance.families.case import Case
from ropecheck.conformance.families.fields import NEWLINE
from ropecheck.conformance.families.layout import Laid, Segment
from ropecheck.conformance.families.verdict import array
from ropecheck.conformance.known import builders
from ropecheck.conformance.known.builders import (
    CHUNKS,
    FILMS,
    FLAT,
    FLOATS,
    FRAME_ONLY,
    LINES,
    NEWLINES,
    ONE_FRAME,
    ONE_SECOND,
    ORDINALS,
    PADDED,
    RELEASED,
    SINGLE,
    SLIPPED,
    agree,
    counted,
    each_prompt,
    packed,
    slipped,
    swallowed,
    tables_of,
    walked,
)
from ropecheck.conformance.reference_engine import tensor
from ropecheck.spec.families import FAMILIES
from ropecheck.spec.families.minicpm_v import sliced
from ropecheck.spec.families.omni import video_with_audio
from ropecheck.spec.history import Column, History, Run, image, length, text, video


def laid(family: str, *history: Run, ids: tuple[int, ...] = ()) -> Laid:
    """A prompt; its ids do not count where none are given."""
    tokens = length(FAMILIES[family], history)
    return Laid(history, ids or (9,) * tokens, (), (), (), (), (), (), (), ())


def rows(family: str, *history: Run, traits: set[str], images: int = 0) -> list[list[int]]:
    """Column by column."""
    columns: list[list[int]] = walked(family, laid(family, *history), traits, images).T.tolist()
    return columns


def flat(*values: int) -> list[list[int]]:
    return [[value] * 3 for value in values]


CLIP = video(3, 4, 2, 1.5)
"""Three frames of two tokens."""


def test_text_behind_the_frame_alone() -> None:
    """Two text tokens, then frames from 2 on; a frame is two high, so text goes on at 4 and not at 5."""
    assert rows("qwen2_vl", text(2), CLIP, text(1), traits={FRAME_ONLY})[-1] == [4] * 3
    assert rows("qwen2_vl", text(2), CLIP, text(1), traits={ORDINALS})[-1] == [5] * 3
    assert rows("qwen2_vl", text(2), image(1, 4, 8), text(1), traits={FRAME_ONLY})[-1] == [6] * 3
    assert rows("ernie4_5_vl", video(6, 4, 4), text(1), traits={FRAME_ONLY})[-1] == [2] * 3


@pytest.mark.parametrize(
    ("traits", "times"),
    [
        (set(), [0, 0, 3, 3, 6, 6]),
        ({ONE_SECOND}, [0, 0, 2, 2, 4, 4]),
        ({ONE_FRAME}, [0, 0, 4, 4, 8, 8]),
        ({FILMS}, [0, 0, 0, 0, 0, 0]),
    ],
)
def test_times_of_another_interval(traits: set[str], times: list[int]) -> None:
    table = rows("qwen2_5_vl", CLIP, image(1, 2, 2), traits=traits | {ORDINALS})
    assert [column[0] for column in table[:-1]] == times and table[-1] == [max(*times, 1) + 1] * 3


def test_times_in_single_precision() -> None:
    """2/25 s and 25 positions a second: frame k is at 2 k; in float32 some fall short."""
    clip = video(30, 2, 2, 2 / 25)
    exact = rows("qwen2_5_omni", clip, traits={ORDINALS})
    single = rows("qwen2_5_omni", text(1), clip, text(1), traits={SINGLE})
    times = [int(np.float32(k) * np.float32(0.08) * np.float32(25)) for k in range(30)]
    assert [column[0] for column in exact] == [2 * k for k in range(30)]
    assert [column[0] - 1 for column in single[1:-1]] == times and single[-1] == [times[-1] + 2] * 3
    assert {tuple(column[1:]) for column in single[1:-1]} == {(1, 1)}
    assert rows("qwen2_5_vl", CLIP, traits={SINGLE}) == rows("qwen2_5_vl", CLIP, traits={ORDINALS})


def test_every_token_at_its_index() -> None:
    assert rows("qwen2_vl", text(1), image(1, 4, 4), traits={LINES}) == flat(0, 1, 2, 3, 4)
    assert rows("hunyuan_vl", text(2), traits={LINES, SINGLE}) == [[0] * 4, [1] * 4]


def test_pictures_are_numbered_over_a_batch() -> None:
    table = rows("hunyuan_vl", image(1, 2, 2), text(1), image(1, 2, 2), traits={ORDINALS}, images=4)
    assert [table[1][3], table[6][3]] == [4, 5]
    case = Case("x", "hunyuan_vl", ())
    prompts = [replace(laid("hunyuan_vl", image(1, 2, 2)), image_grids=((1, 2, 2),)) for _ in range(2)]
    for gives, number in (({ORDINALS}, 1), ({FLOATS}, 0)):
        tables, deltas = tables_of(case, prompts, gives)
        assert [one[3, 1] for one in tables] == [0, number] and deltas == [0, 0]


WORDS: list[Column] = [(0, 0, 0), (1, 0, 0), (1, 1, 1)]


@pytest.mark.parametrize(
    ("ids", "at", "found"),
    [
        ((9, 9, 9, NEWLINE, NEWLINE, 9), 3, ((1, 1, 1), (1, 1, 1), (7, 7, 7))),
        ((9, 9, 9, 9, NEWLINE, 9), 3, ((7, 7, 7), (8, 8, 8), (9, 9, 9))),
        ((9, 9, 9, NEWLINE, NEWLINE, NEWLINE), 3, ((1, 1, 1),) * 3),
        ((9, 9, NEWLINE, NEWLINE, NEWLINE, 9), 2, ((7, 7, 7), (8, 8, 8), (9, 9, 9))),  # behind no picture
    ],
)
def test_newlines_behind_a_picture(ids: tuple[int, ...], at: int, found: tuple[Column, ...]) -> None:
    prompt = replace(laid("minicpm_v4_7", text(6), ids=ids), media=((1, 3),))
    assert swallowed(prompt, at, 3, WORDS[:at], 7) == found


def test_a_picture_after_a_newline_is_not_moved_where_newlines_are_swallowed() -> None:
    first, second = sliced(4, 4, 1, 1, 4, 4), sliced(4, 4, 1, 1, 4, 4)
    history: History = (first, text(1), changed(second, after_newline=True))
    prompt = laid("minicpm_v4_7", *history)
    moved, still = (walked("minicpm_v4_7", prompt, traits, 0).T.tolist() for traits in ({ORDINALS}, {NEWLINES}))
    assert moved[7][0] == still[7][0] + 1


def test_a_track_as_the_released_code_has_it() -> None:
    """A frame of four rows reaches 10 + 3, two tokens of sound 11."""
    run = video_with_audio(1, 8, 2, 1.0, 2)
    assert rows("qwen2_5_omni", text(9), run, text(1), traits={RELEASED})[-3:] == flat(12, 12, 13)
    assert rows("qwen2_5_omni", text(9), run, text(1), traits={ORDINALS})[-3:] == flat(14, 14, 15)
    assert rows("qwen3_omni", text(9), run, text(1), traits={RELEASED, CHUNKS})[-1] == [11] * 3
    assert rows("qwen3_omni", text(9), run, text(1), traits={ORDINALS})[-1] == [13] * 3


def test_a_chunk_a_token() -> None:
    """Frames at 0 and 100 of chunks of 50: the second opens the second chunk, and not the third."""
    track: list[Column] = [(7, 0, 0), (107, 0, 0), (207, 0, 0), (208, 0, 0)]
    assert counted(track, 7, 50) == [track[:1], track[1:2], track[2:3], track[3:]]
    assert counted([(7, 0, 0), (56, 0, 0), (57, 0, 0), (106, 0, 0)], 7, 50) == [
        [(7, 0, 0), (56, 0, 0)],
        [(57, 0, 0), (106, 0, 0)],
    ]
    run = video_with_audio(2, 2, 2, 4.0, 120)
    table = rows("qwen2_5_omni", run, text(1), traits={RELEASED, CHUNKS})
    times = [column[0] for column in table]
    # begin markers at 0; frame, 50 of sound; the frame at 101, 50 of sound; the rest of it: 20
    assert times[:3] == [0, 0, 1] and times[3:53] == list(range(1, 51)) and times[53] == 101
    assert times[54:104] == list(range(51, 101)) and times[104:124] == list(range(101, 121))
    assert times[124:] == [121, 121, 122]
    paper = [column[0] for column in rows("qwen2_5_omni", run, text(1), traits={RELEASED})]
    assert paper[53:103] == list(range(51, 101)) and paper[103] == 101 and paper[-1] == 122


# ---------------------------------------------------------------- batches


def test_a_batch_is_padded_on_the_left() -> None:
    one, two = np.arange(6).reshape(3, 2), np.arange(12).reshape(3, 4)
    table, ahead = packed([one, two], [2, 3])
    assert table[:, 0].tolist() == [[0, 0, 1], [0, 2, 3], [0, 4, 5]] and table[:, 1].tolist() == two[:, :3].tolist()
    assert ahead is not None and ahead.tolist() == [[[0], [0], [0]], [[3], [7], [11]]]
    assert packed([one], [2])[1] is None and table.dtype == np.int64


def test_padding_in_a_delta() -> None:
    """A batch of sound and words alone: the padded columns hold 1."""
    case = Case("x", "qwen3_omni", ())
    short, long = laid("qwen3_omni", text(1)), laid("qwen3_omni", text(4))
    assert tables_of(case, [short, long], {PADDED})[1] == [1, 0] and tables_of(case, [short, long], {FLOATS})[1] == [
        0,
        0,
    ]
    assert tables_of(case, [laid("qwen3_omni", text(3)), long], {PADDED})[1] == [0, 0]
    for more in ({"image_grids": ((1, 2, 2),)}, {"video_grids": ((1, 2, 2),)}):
        assert tables_of(case, [short, replace(long, **more)], {PADDED})[1] == [0, 0]


def test_columns_ahead_that_slip() -> None:
    """Of prompts with pictures alone, one after the other; a row that ends early is filled with its end."""
    none = laid("glm_image", text(2))
    first, second = (replace(laid("glm_image", text(n)), image_grids=((1, 1, 1),)) for n in (2, 1))
    tables = [np.array([[0, 1, 2, 5]] * 3), np.array([[0, 1]] * 3), np.array([[0, 4]] * 3)]
    found = slipped(tables, [first, none, second])
    assert found is not None and found[:, 0].tolist() == [[2, 5], [4, 4]] and found.shape == (2, 3, 2)
    found = slipped([tables[0], np.array([[0]] * 3)], [first, second])
    assert found is not None and found[1, 2].tolist() == [1, 1]  # nothing ahead: behind its end
    assert slipped([np.array([[0, 1]] * 3)], [first]) is None and slipped([tables[1]], [none]) is None


def test_the_columns_of_each_prompt() -> None:
    table = np.arange(18).reshape(3, 2, 3)
    ahead = np.arange(12).reshape(2, 3, 2)
    ends = replace(laid("glm_image", text(2)), targets=((1, 1, 1),))  # one token, and the end marker
    prompts = [ends, laid("glm_image", text(3))]
    given = PromptTables(tensor(table), tensor(np.zeros((2, 1), np.int64)), tensor(ahead))
    first, second = each_prompt(given, prompts)
    assert first.tolist() == [[1, 2, 0, 1], [7, 8, 2, 3], [13, 14, 4, 5]] and second.tolist() == table[:, 1].tolist()
    assert [one.shape for one in each_prompt(replace(given, ahead=None), prompts)] == [(3, 2), (3, 3)]
    alone = PromptTables(tensor(table[:, 0]), given.delta)
    assert [one.tolist() for one in each_prompt(alone, prompts[1:])] == [table[:, 0].tolist()]


CASE = Case("x", "qwen2_vl", ((Segment(kind="text", tokens=3),),))
ROUTED = replace(CASE, builder="route: client")


def tables(values: object = ((0, 1, 2),) * 3, delta: object = ((0,),), kind: str = "int64") -> PromptTables:
    return PromptTables(tensor(np.array(values, dtype=kind)), tensor(np.array(delta, dtype=kind)))


RAISED = Raised("engine", "ValueError", "x", "f.py:1 f")


@pytest.mark.parametrize(
    ("seen", "so"),
    [
        (tables(), True),
        (replace(tables(), ran="f", kinds=(0, 0, 0)), True),
        (tables([[[0, 1, 2]]] * 3), True),
        (tables(((0, 1, 2),) * 2 + ((0, 1, 3),)), False),
        (tables(delta=((1,),)), False),
        (tables(delta=(0,)), False),
        (tables(kind="float32"), False),
        (replace(tables(), delta=tables(kind="int32").delta), False),
        (replace(tables(), hit=0), False),
        (RAISED, False),
        (NotOfferedAnswer("none"), False),
    ],
)
def test_two_answers_say_the_same(seen: Result, so: bool) -> None:
    assert agree(CASE, CASE.laid, tables(), seen) is so and agree(CASE, CASE.laid, seen, tables()) is so


def test_two_errors_or_hits_say_the_same() -> None:
    assert agree(CASE, CASE.laid, RAISED, replace(RAISED, where="elsewhere"))
    assert not agree(CASE, CASE.laid, RAISED, replace(RAISED, message="y"))
    assert not agree(CASE, CASE.laid, RAISED, replace(RAISED, type="KeyError"))
    hit = replace(tables(), hit=3)
    assert agree(CASE, CASE.laid, hit, replace(tables(delta=((5,),)), hit=3))
    assert not agree(CASE, CASE.laid, hit, replace(hit, hit=4))


def test_what_is_answered_in_another_form() -> None:
    prompts = CASE.laid

    def answered(*gives: str) -> PromptTables:
        found = builders.answer(CASE, prompts, tables(), gives)
        assert isinstance(found, PromptTables)
        return found

    plain = answered(ORDINALS)
    assert (plain.table.dtype, plain.delta.shape, plain.ahead) == ("int64", (1, 1), None)
    assert array(plain.table).tolist() == [[[0, 1, 2]]] * 3
    floats = answered(FLOATS)
    assert (floats.table.dtype, floats.delta.dtype) == ("float32", "float32")
    assert answered(FLAT).delta.shape == (1,) and answered(SLIPPED).ahead is None
    assert builders.answer(CASE, prompts, tables(), {"KeyError: it: is"}) == Raised("engine", "KeyError", "it: is", "")


def test_columns_ahead_of_a_batch() -> None:
    """One prompt writes a picture of two tokens; the other has one, and nothing ahead but what a slip fills in."""
    target, picture = Segment(kind="target", grid=(1, 1, 2)), Segment(kind="image", grid=(1, 2, 2))
    words = Segment(kind="text", tokens=2)
    case = replace(CASE, family="glm_image", prompts=((words, target), (picture, words)))
    for gives, filled in ((FLAT, False), (SLIPPED, True)):
        found = builders.answer(case, case.laid, tables(), {gives})
        assert isinstance(found, PromptTables) and found.ahead is not None and found.ahead.shape == (2, 3, 3)
        assert array(found.ahead)[0].any() and bool(array(found.ahead)[1].any()) is filled


def test_what_is_predicted_is_what_was_answered() -> None:
    lines = builders.predicted(CASE, tables(), {LINES})
    assert lines == ()  # right either way
    case = replace(CASE, prompts=((Segment(kind="image", grid=(1, 4, 4)),),))
    wrong = builders.answer(case, case.laid, tables(), {LINES})
    found = builders.predicted(case, wrong, {LINES})
    assert found and builders.predicted(case, wrong, set()) == () == builders.predicted(case, wrong, {FLOATS})
    right = builders.answer(case, case.laid, tables(), {ORDINALS})
    assert builders.predicted(case, right, {LINES}) == found  # what it would give, told as overdue
    assert builders.predicted(case, right, {FRAME_ONLY}) == ()


def test_a_right_answer_beside_what_the_released_code_would_give() -> None:
    case = Case(
        "x",
        "qwen3_omni",
        ((Segment(kind="track", grid=(1, 40, 2), seconds=1.0, features=100), Segment(kind="text", tokens=2)),),
    )
    right = builders.answer(case, case.laid, tables(), set[str]())
    found = builders.predicted(case, right, {RELEASED})
    released = builders.answer(case, case.laid, tables(), {RELEASED})
    assert found and not agree(case, case.laid, right, released)
    assert builders.predicted(case, released, {RELEASED}) == found

"""The rules of prompt tables, one by one: what each finds, where, and in which words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ropecheck.spec.families.declaration import MediaFamily
from ropecheck.spec.families.ernie4_5_vl import ERNIE4_5_VL
from ropecheck.spec.families.glm_image import GLM_IMAGE, ahead_table
from ropecheck.spec.families.hunyuan_vl import HUNYUAN_VL
from ropecheck.spec.families.minicpm_v import MINICPM_V4_7, Picture, sliced
from ropecheck.spec.families.omni import video_with_audio
from ropecheck.spec.families.prompt import Prompt
from ropecheck.spec.families.qwen2_5_omni import QWEN2_5_OMNI
from ropecheck.spec.families.qwen2_5_vl import QWEN2_5_VL
from ropecheck.spec.families.qwen2_vl import QWEN2_VL
from ropecheck.spec.families.qwen3_omni import QWEN3_OMNI
from ropecheck.spec.families.qwen3_vl import QWEN3_VL
from ropecheck.spec.families.released import continued, released_table
from ropecheck.spec.families.rules import RELEASED, BuiltTable, BuiltTensor, ExpandedPrompt, Seen, TornPrompt
from ropecheck.spec.history import History, Run, delta_of, image, prompt_table, text, video
from ropecheck.spec.rules import Violation
from tests.spec.support import broken, said, wrong

WIDTH = {"families.table_width", "families.table", "families.delta"}
TEXT = {*WIDTH, "families.text_after_media", "families.text_rows_equal"}


def built(family: MediaFamily, *history: Run) -> BuiltTable:
    """A right answer."""
    table = prompt_table(family, history)
    return BuiltTable(family=family, history=history, columns=table, delta=delta_of(table))


def at(one: BuiltTable, index: int, column: Seen) -> BuiltTable:
    """The same with one other column."""
    columns = list(one.columns or ())
    columns[index] = column
    return replace(one, columns=tuple(columns))


QWEN = built(QWEN2_VL, text(1), image(1, 4, 4), text(2))
"""(0 0 0) (1 1 1) (1 1 2) (1 2 1) (1 2 2) (3 3 3) (4 4 4), delta -2."""
TIMED = built(QWEN2_5_VL, text(1), video(2, 4, 2, 1.5), text(1))
"""Two frames of two tokens: (0 0 0) (1 1 1) (1 2 1) (4 1 1) (4 2 1) (5 5 5)."""
MERGED = built(ERNIE4_5_VL, video(4, 4, 2))
"""Two steps of two tokens: (0 0 0) (0 1 0) (1 0 0) (1 1 0)."""
FRAME = built(QWEN3_VL, text(1), video(1, 4, 2))
NUMBERED = built(HUNYUAN_VL, text(1), image(1, 2, 2), text(1))
"""(0 0 0 0) (1 1 1 1) (2 0 0 0) (3 1 0 0) (4 4 4 4) (5 5 5 5)."""
CANVAS = built(MINICPM_V4_7, text(1), image(1, 8, 4))
"""(0 0 0) (1 0 0) (1 1 1) (1 2 1) (1 3 2)."""
TRACK = built(QWEN3_OMNI, video_with_audio(1, 8, 2, 1.0, 2), text(1))
"""Four rows of a frame, two tokens of sound: (0 0 0) (0 1 0) (0 2 0) (0 3 0) (0 0 0) (1 1 1) (4 4 4), delta -2."""


@pytest.mark.parametrize(
    ("right", "rules"),
    [
        (QWEN, TEXT),
        (built(QWEN2_VL, image(1, 4, 4)), TEXT - {"families.text_rows_equal"}),
        (built(QWEN2_VL), TEXT - {"families.text_rows_equal"}),
        (TIMED, {*TEXT, "families.absolute_time"}),
        (MERGED, {*TEXT, "families.temporal_merge"} - {"families.text_rows_equal"}),
        (FRAME, {*TEXT, "families.frame_per_run"}),
        (built(QWEN3_VL, text(1), video(1, 2, 2)), TEXT),
        (NUMBERED, {*TEXT, "families.hunyuan_vl.four_rows"}),
        (CANVAS, {*TEXT, "families.minicpm_v4_7.canvas"}),
        (built(MINICPM_V4_7, text(3)), TEXT),
        (TRACK, {*TEXT, "families.audio_in_video", "families.one_continuation"}),
        (built(QWEN3_OMNI, text(1), video_with_audio(1, 8, 2, 1.0, 2)), {*TEXT, "families.audio_in_video"}),
    ],
)
def test_a_right_table_and_the_rules_that_speak_of_it(right: BuiltTable, rules: set[str]) -> None:
    assert said(right) == dict.fromkeys(rules)


def test_a_prompt_without_a_table_is_unanswered() -> None:
    missing = wrong("table", shape="prompts unanswered", message="the prompt has no table")
    assert broken(replace(QWEN, columns=None)) == {"families.table": missing}
    assert broken(replace(QWEN, delta=None)) == {
        "families.delta": wrong("delta", -2, shape="delta missing", message="the prompt has no delta")
    }


@pytest.mark.parametrize(("columns", "found"), [(6, "too few columns"), (8, "too many columns")])
def test_a_table_has_a_column_per_token(columns: int, found: str) -> None:
    table = (*(QWEN.columns or ()), (5, 5, 5))[:columns]
    assert broken(replace(QWEN, columns=table)) == {
        "families.table_width": wrong("t", 7, columns, found, f"{columns} columns for 7 tokens", at=min(columns, 7))
    }


@pytest.mark.parametrize(
    ("delta", "shape", "shown"), [(-1, "other value", -1), (-1.5, "delta between positions", "-1.5")]
)
def test_a_delta_is_a_whole_number_and_the_tables(delta: float, shape: str, shown: int | str) -> None:
    found = wrong("delta", -2, shown, shape, f"delta {shown}, not -2")
    assert broken(replace(QWEN, delta=delta)) == {"families.delta": found}


def place(axis: str, index: int, right: int | str, seen: int | str, shape: str = "") -> Violation:
    return wrong(axis, right, seen, shape, f"{axis} is {seen}, the family says {right}", at=index)


@pytest.mark.parametrize(
    ("table", "found"),
    [
        (at(QWEN, 3, (1, 1, 1)), {"families.table": place("h", 3, 2, 1)}),
        (at(QWEN, 3, (1, 2, 1.5)), {"families.table": place("w", 3, 1, "1.5")}),
        (
            at(QWEN, 6, (4, 4, 5)),
            {"families.table": place("w", 6, 4, 5), "families.text_rows_equal": place("w", 6, 4, 5)},
        ),
        (
            at(QWEN, 5, (4, 4, 4)),
            {
                "families.table": place("t", 5, 3, 4),
                "families.text_after_media": place("t", 5, 3, 4),
                # the second word is no more than the first one, and where the family has it
                "families.text_rows_equal": wrong("t", 4, 4, "", "t is 4, the family says 4", at=6),
            },
        ),
        (
            at(at(QWEN, 5, (2, 2, 2)), 6, (3, 3, 3)),
            {"families.table": place("t", 5, 3, 2), "families.text_after_media": place("t", 5, 3, 2)},
        ),
        (
            at(TIMED, 3, (3, 1, 1)),
            {"families.table": place("t", 3, 4, 3), "families.absolute_time": place("t", 3, 4, 3)},
        ),
        (
            at(MERGED, 1, (1, 1, 0)),
            {"families.table": place("t", 1, 0, 1), "families.temporal_merge": place("t", 1, 0, 1)},
        ),
        (
            at(MERGED, 2, (0, 0, 0)),
            {"families.table": place("t", 2, 1, 0), "families.temporal_merge": place("t", 2, 1, 0)},
        ),
        (
            at(FRAME, 2, (2, 2, 1)),
            {"families.table": place("t", 2, 1, 2), "families.frame_per_run": place("t", 2, 1, 2)},
        ),
        (
            at(FRAME, 1, (2, 1, 1)),
            {
                "families.table": place("t", 1, 1, 2),
                "families.text_after_media": place("t", 1, 1, 2),
                "families.frame_per_run": wrong("t", 1, 1, "", "t is 1, the family says 1", at=2),
            },
        ),
        (
            at(NUMBERED, 2, (3, 0, 0, 0)),
            {
                "families.table": place("index", 2, 2, 3),
                "families.hunyuan_vl.four_rows": place("index", 2, 2, 3),
            },
        ),
        (at(NUMBERED, 3, (3, 1, 0, 1)), {"families.table": place("image", 3, 0, 1)}),
        (at(NUMBERED, 3, (3, 0, 0, 0)), {"families.table": place("w", 3, 1, 0)}),
        (at(NUMBERED, 3, (3, 1, 1, 0)), {"families.table": place("h", 3, 0, 1)}),
        (
            at(CANVAS, 4, (1, 3, 3)),
            {"families.table": place("w", 4, 2, 3), "families.minicpm_v4_7.canvas": place("w", 4, 2, 3)},
        ),
        (
            at(TRACK, 4, (0, 0, 1)),
            {"families.table": place("w", 4, 0, 1), "families.audio_in_video": place("w", 4, 0, 1)},
        ),
    ],
)
def test_a_wrong_column(table: BuiltTable, found: dict[str, Violation]) -> None:
    assert broken(table) == found


def test_hunyuan_goes_on_at_its_index() -> None:
    found = wrong("delta", 0, -1, "other value", "delta -1, not 0")
    assert broken(replace(NUMBERED, delta=-1)) == {"families.hunyuan_vl.four_rows": found, "families.delta": found}
    three = replace(NUMBERED, columns=tuple(column[:3] for column in NUMBERED.columns or ()))
    assert broken(three)["families.hunyuan_vl.four_rows"] == place("index", 0, 0, 0)
    assert broken(at(NUMBERED, 2, (2, 0, 0)))["families.hunyuan_vl.four_rows"] == place("index", 2, 2, 2)


def test_only_a_video_is_timed_or_merged() -> None:
    """A picture in between counts for the start of what follows alone, and a track is another rule's."""
    later = built(QWEN2_5_VL, text(2), image(1, 4, 4), video(2, 2, 2, 1.5))
    assert [column[0] for column in later.columns or ()] == [0, 1, 2, 2, 2, 2, 4, 7]
    assert not broken(later)
    assert broken(at(later, 7, (6, 4, 4)))["families.absolute_time"] == place("t", 7, 7, 6)
    omni = built(QWEN2_5_OMNI, text(1), video(2, 2, 2, 1.0))
    assert [column[0] for column in omni.columns or ()] == [0, 1, 26]
    assert broken(at(omni, 2, (25, 1, 1)))["families.absolute_time"] == place("t", 2, 26, 25)
    assert "families.absolute_time" not in said(TRACK)
    again = built(ERNIE4_5_VL, video(4, 2, 2), text(1), video(4, 2, 2))
    assert [column[0] for column in again.columns or ()] == [0, 1, 2, 3, 4] and not broken(again)
    assert broken(at(again, 4, (3, 3, 3)))["families.temporal_merge"] == place("t", 4, 4, 3)
    three = built(QWEN3_OMNI, video(2, 2, 2, 1.0))
    assert broken(at(three, 1, (12, 0, 0)))["families.absolute_time"] == place("t", 1, 13, 12)


def test_of_several_items_each_is_looked_at() -> None:
    tracks = built(QWEN3_OMNI, video_with_audio(1, 2, 2, 1.0, 1), text(1), video_with_audio(1, 2, 2, 1.0, 1))
    assert not broken(tracks) and tracks.columns is not None and tracks.columns[3:] == ((2, 2, 2), (2, 2, 2))
    assert broken(at(tracks, 4, (2, 2, 3)))["families.audio_in_video"] == place("w", 4, 2, 3)
    frames = built(QWEN3_VL, text(1), video(1, 4, 2), text(1), video(1, 4, 2))
    assert broken(at(frames, 5, (5, 4, 4)))["families.frame_per_run"].at == 5


def test_glm_image_knows_what_it_will_write() -> None:
    history: History = (text(1), image(1, 2, 2), text(1))
    targets = ((1, 1, 2),)
    table = ahead_table(history, targets)
    assert table[6:] == ((4, 4, 4), (4, 4, 5), (6, 6, 6))
    right = BuiltTable(family=GLM_IMAGE, history=history, columns=table, delta=0, targets=targets)
    assert said(right) == dict.fromkeys({*TEXT, "families.glm_image.tabulated_ahead"})
    found = place("w", 7, 5, 4)
    assert broken(at(right, 7, (4, 4, 4))) == {
        "families.table": found,
        "families.glm_image.tabulated_ahead": found,
    }
    assert broken(at(right, 2, (1, 1, 1))) == {"families.table": place("w", 2, 2, 1)}  # the prompt's own
    assert broken(replace(right, delta=delta_of(table)))["families.delta"].expected == 0


# ---------------------------------------------------------------- the paper's and the released code's


def test_the_released_code_goes_on_from_what_it_placed_last() -> None:
    released = released_table(QWEN3_OMNI, TRACK.history)
    assert released == (*(TRACK.columns or ())[:-1], (2, 2, 2))
    table = replace(TRACK, columns=released, delta=-4)
    assert table.released and not TRACK.released
    assert broken(table) == {"families.text_after_media": replace(place("t", 6, 4, 2), shape=RELEASED)}
    assert "families.delta" not in said(table) and "families.audio_in_video" not in said(table)
    message = "its text ends at 4, its delta -4 goes on at 3; behind its own text is -2"
    assert broken(replace(TRACK, delta=-4))["families.one_continuation"] == wrong(
        "delta", -2, -4, "contradicts its own table", message
    )
    assert not replace(table, columns=released[:-1]).released


@pytest.mark.parametrize(
    ("family", "run", "start"),
    [
        # the last chunk's audio ends at 1 + 60, behind its marker; both frames lie before it
        (QWEN2_5_OMNI, video_with_audio(2, 2, 2, 2.0, 60), 62),
        # one chunk: four rows of a frame reach 1 + 3, two tokens of sound 1 + 1: the end marker is at 3
        (QWEN2_5_OMNI, video_with_audio(1, 8, 2, 1.0, 2), 4),
        (QWEN3_OMNI, video_with_audio(1, 8, 2, 1.0, 2), 2),
        (QWEN3_OMNI, video_with_audio(2, 8, 2, 1.0, 2), 14),  # the rest is the second frame, at 13
        (QWEN3_OMNI, video(1, 8, 2, 1.0), 4),
        (QWEN2_VL, image(1, 8, 2), 4),
    ],
)
def test_where_the_released_code_goes_on(family: MediaFamily, run: Run, start: int) -> None:
    history: History = (run, text(2))
    table = released_table(family, history)
    assert table[-2:] == ((start,) * 3, (start + 1,) * 3)
    assert len(table) == len(prompt_table(family, history))


def test_the_next_token_follows_the_last_one() -> None:
    assert continued(((0, 0, 0), (1, 4, 1), (2, 2, 2))) == 0
    assert continued(((5, 5, 7),)) == 7 and continued(()) == 0
    assert continued(((0.5, 0.5, 0.5),)) == 0.5


# ---------------------------------------------------------------- shapes, torn inputs, expanded prompts

TABLE = BuiltTensor(name="table", dtype="int64", shape=(3, 6), right=((3, 6), (3, 1, 6)))
DELTA = BuiltTensor(name="delta", dtype="int64", shape=(1, 1), right=((1, 1),))


@pytest.mark.parametrize(
    ("tensor", "shape"),
    [
        (TABLE, None),
        (replace(TABLE, shape=(3, 1, 6)), None),
        (replace(TABLE, shape=(3, 7)), None),  # the width is looked at elsewhere
        (replace(TABLE, shape=(4, 6)), "wrong number of rows"),
        (replace(TABLE, shape=(3, 2, 7), right=((3, 2, 6),)), None),
        (replace(TABLE, shape=(2, 2, 6), right=((3, 2, 6),)), "wrong number of rows"),
        (replace(TABLE, shape=(6,)), "table shape"),
        (DELTA, None),
        (replace(DELTA, shape=(1,)), "delta shape"),
    ],
)
def test_shapes(tensor: BuiltTensor, shape: str | None) -> None:
    right, seen = str(list(tensor.right[0])), str(list(tensor.shape))
    found = shape and wrong(tensor.name, right, seen, shape, f"the {tensor.name} is {seen}, not {right}")
    assert said(tensor) == {"families.dtype_and_shape": found}
    assert broken(replace(tensor, dtype="int32")) == {
        "families.dtype_and_shape": wrong(
            tensor.name,
            "int64",
            "int32",
            f"{tensor.name} is int32",
            f"the {tensor.name} is int32, not int64",
        )
    }


@pytest.mark.parametrize(
    ("torn", "rule"),
    [
        ("run cut short", "refuses_disagreeing_grids"),
        ("grid undivided", "refuses_undivided_grid"),
        ("intervals missing", "refuses_missing_intervals"),
        ("interval left over", "refuses_missing_intervals"),
    ],
)
def test_a_torn_input_is_refused(torn: str, rule: str) -> None:
    assert said(TornPrompt(torn=torn, refused=True)) == {f"families.{rule}": None}
    message = f"a table of 7 columns though the input is torn: {torn}"
    assert broken(TornPrompt(torn=torn, refused=False, tokens=7)) == {
        f"families.{rule}": wrong("input", shape="accepts", message=message)
    }


SENT: History = (text(1), image(1, 4, 4), video(1, 4, 4), text(1))
KINDS = ("text", *["image"] * 4, *["video"] * 4, "text")
WRITTEN = ("word", "image", "video", "word")


def expanded(
    kinds: tuple[str, ...] = KINDS, kept: tuple[str, ...] = WRITTEN, family: MediaFamily = QWEN2_VL
) -> ExpandedPrompt:
    prompt = Prompt(kinds=kinds, image_grids=((1, 4, 4),), video_grids=((1, 4, 4),))
    return ExpandedPrompt(family=family, sent=SENT, prompt=prompt, written=WRITTEN, kept=kept)


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        (expanded(), None),
        (expanded(("text", "text", *KINDS[1:]), family=QWEN3_VL), None),  # timestamps come in
        (
            expanded((*KINDS[:4], *KINDS[5:])),
            "image 0 has 3 placeholder tokens; its item has 4",
        ),
        (
            expanded(("text", *["video"] * 4, *["image"] * 4, "text")),
            "the prompt has video, image; the client sent image, video",
        ),
        (expanded(("text", *KINDS)), "the prompt has 11 tokens, the client's message 10"),
        (
            expanded(kept=("image", "word", "video", "word")),
            "the prompt has image word video word; the client sent word image video word",
        ),
    ],
)
def test_an_expanded_prompt_is_the_clients(prompt: ExpandedPrompt, message: str | None) -> None:
    found = message and wrong("prompt", shape="prompt laid out otherwise", message=message)
    assert said(prompt) == {"families.route_layout": found}


def test_minicpms_pictures_bring_their_markers() -> None:
    run: Picture = sliced(4, 4, 1, 2, 4, 4)
    kinds = ("text", *("text", "image", "text") * 3, "text")
    prompt = ExpandedPrompt(
        family=MINICPM_V4_7, sent=(text(1), run, text(1)), prompt=Prompt(kinds=kinds), written=(), kept=()
    )
    assert prompt.history == (text(1), run, text(1))
    assert said(prompt) == {"families.route_layout": None}

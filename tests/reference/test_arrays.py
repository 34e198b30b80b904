"""The reference's arrays: timelines, composed tables, blocks of runs, turned heads."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ropecheck.reference import compose, prompt_tables
from ropecheck.reference.blocks import AnyShape, GridOfTokens, Line, PlacedRun, block_of, ramp, write_numbered
from ropecheck.reference.requests import State
from ropecheck.reference.rotary import LAYOUTS, LONGEST, MOST, bounded, rotated, table_of, turned
from ropecheck.reference.timeline import LOOKAHEAD, Timeline, laid, run_lengths, timeline, token_count
from ropecheck.reference.turns import submit
from ropecheck.spec.families import family
from ropecheck.spec.families.declaration import MediaFamily
from ropecheck.spec.families.omni import audio
from ropecheck.spec.families.qwen2_vl import QWEN2_VL
from ropecheck.spec.history import History, OutOfDomain, Run, image, text, video
from ropecheck.spec.rotary import Layout
from tests.reference.support import PICTURE, WORDS, waiting, with_status

COLUMNS = [[0, 0, 0], [1, 1, 1], [1, 1, 2], [1, 2, 1], [1, 2, 2], [3, 3, 3]]


def test_a_timeline() -> None:
    line = timeline("qwen2_vl", PICTURE, 2)
    assert line.table.T.tolist() == COLUMNS and not line.table.flags.writeable and line.table.dtype == np.int64
    assert (line.width, line.delta, line.tabulated, line.has_media) == (6, -2, 5, True)
    assert line.ahead.shape == (3, 6 + LOOKAHEAD) and line.ahead[:, 6].tolist() == [4, 4, 4]
    assert line.place.rows == tuple(line.table.tolist()) and line.place.delta == -2 and line.place.tabulated == 5
    assert line.place.has_media and not timeline("qwen2_vl", WORDS, 1).place.has_media


@pytest.mark.parametrize(
    "indices", [[], [0], [69, 500], [5, 0, 3], [6], [69], [70], [71], [70, 0], [0, 70], [0, 500, 4], [500, 501]]
)
def test_a_timeline_goes_on_wherever_it_is_read(indices: list[int]) -> None:
    """Up to 6 + LOOKAHEAD - 1 = 69 its columns are kept."""
    line = timeline("qwen2_vl", PICTURE, 3)
    right = [COLUMNS[at] if at < 6 else [at - 2] * 3 for at in indices]
    taken = line.take(np.array(indices, dtype=np.int64))
    assert taken.T.tolist() == right and taken.shape == (3, len(indices))


def test_what_is_written_is_tabulated_ahead() -> None:
    line = timeline("glm_image", (text(1),), 1, (image(1, 2, 2), text(1)))
    assert (line.width, line.delta, line.tabulated, line.has_media) == (6, 0, 6, True)
    assert line.table.T.tolist() == COLUMNS
    empty = timeline("hunyuan_vl", (), 0)
    assert empty.table.shape == (4, 0) and empty.delta == 0


def test_the_runs_of_a_history() -> None:
    assert run_lengths("qwen2_vl", PICTURE) == (1, 4, 1) and token_count("qwen2_vl", PICTURE) == 6
    assert laid("qwen2_vl", PICTURE) == ((PICTURE[0], 0, 1), (PICTURE[1], 1, 5), (PICTURE[2], 5, 6))
    assert laid("qwen2_vl", ()) == ()


def test_turns_are_composed() -> None:
    table = timeline("qwen2_vl", PICTURE[:2], 0).table
    assert compose.free_position(table) == 3 and compose.delta(table) == -2
    assert compose.text_table(2).tolist() == [[0, 1]] * 3 and compose.text_table(2, axes=4).shape == (4, 2)
    assert compose.appended(table, compose.text_table(1)).T.tolist() == COLUMNS
    empty = compose.text_table(0)
    assert compose.free_position(empty) == 0 and compose.delta(empty) == 0
    assert compose.appended(empty, table).T.tolist() == COLUMNS[:5]


# ---------------------------------------------------------------- blocks


def written(block: PlacedRun, start: int, axes: int = 3) -> list[list[int]]:
    table = np.full((axes, block.tokens), -1, dtype=np.int64)
    block.write(table, start)
    return table.T.tolist()


@pytest.mark.parametrize(
    ("block", "extent", "columns"),
    [
        (Line(3, 2), 2, [[0] * 3, [1] * 3]),
        (Line(3, 0), 0, []),
        (GridOfTokens((0, 5), 1, 2), 6, [[0, 0, 0], [0, 0, 1], [5, 0, 0], [5, 0, 1]]),
        (GridOfTokens((2,), 1, 1), 3, [[2, 0, 0]]),
        (GridOfTokens((0,), 3, 1), 3, [[0, 0, 0], [0, 1, 0], [0, 2, 0]]),
        (GridOfTokens((0,), 1, 2), 2, [[0, 0, 0], [0, 0, 1]]),
        (AnyShape(np.array([[0, 1], [4, 0], [0, 0]])), 5, [[0, 4, 0], [1, 0, 0]]),
        (AnyShape(np.zeros((3, 0), dtype=np.int64)), 0, []),
    ],
)
def test_a_block_is_its_columns_moved(block: PlacedRun, extent: int, columns: list[list[int]]) -> None:
    assert (block.tokens, block.extent) == (len(columns), extent)
    assert block.columns.T.tolist() == columns
    assert written(block, 7) == [[value + 7 for value in column] for column in columns]


def test_a_ramp_grows_and_is_nobodys_to_write() -> None:
    assert ramp(3, 4).tolist() == [3, 4, 5, 6]
    far = 3 * (1 << 14)
    assert ramp(far, 2).tolist() == [far, far + 1] and not ramp(0, 1).flags.writeable
    assert ramp(1 << 20, 1).tolist() == [1 << 20] and ramp(0, 2).tolist() == [0, 1]
    assert len(ramp(0, 1 << 22)) == 1 << 22 and ramp(0, 1 << 22)[-1] == (1 << 22) - 1


def test_a_block_of_a_run_cut_short() -> None:
    whole, part = block_of(QWEN2_VL, image(1, 4, 4)), block_of(QWEN2_VL, replace(image(1, 4, 4), kept=3))
    assert part.columns.T.tolist() == whole.columns.T.tolist()[:3] and (part.tokens, part.extent) == (3, 2)
    assert block_of(QWEN2_VL, replace(image(1, 4, 4), kept=0)).extent == 0


@pytest.mark.parametrize("name", ["qwen2_5_omni", "qwen3_omni"])
def test_what_an_omni_family_refuses(name: str) -> None:
    with pytest.raises(OutOfDomain, match="from its grid"):
        block_of(family(name), Run(kind="image", grid=(1, 2, 2), tokens=2))
    with pytest.raises(OutOfDomain, match="needs tokens"):
        block_of(family(name), audio(0))
    assert block_of(family(name), audio(3)).columns.tolist() == [[0, 1, 2]] * 3


def test_a_family_that_numbers_nothing_is_an_error() -> None:
    with pytest.raises(AssertionError, match="qwen2_vl does not number"):
        write_numbered(QWEN2_VL, image(1, 2, 2), 0, np.zeros((4, 1), dtype=np.int64))
    with pytest.raises(OutOfDomain, match="does not round"):
        block_of(family("qwen3_omni"), video(2, 2, 2, 0.5))


@pytest.mark.parametrize("long", [0, 10**6])
def test_both_ways_of_writing_a_table(long: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt_tables, "_LONG_RUNS", long)
    history: History = (*PICTURE, image(1, 4, 4), text(1), text(1))
    table = prompt_tables.prompt_table(QWEN2_VL, history)
    picture = [[a + 4, b + 4, c + 4] for a, b, c in ([0, 0, 0], [0, 0, 1], [0, 1, 0], [0, 1, 1])]
    assert table.T.tolist() == [*COLUMNS, *picture, [6] * 3, [7] * 3]
    assert prompt_tables.delta(table) == 8 - 12


def test_runs_that_are_alike_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Run] = []

    def watched(family: MediaFamily, run: Run) -> PlacedRun:
        made.append(run)
        return block_of(family, run)

    monkeypatch.setattr(prompt_tables, "block_of", watched)
    prompt_tables.prompt_table(QWEN2_VL, (image(1, 4, 4), text(1)) * 3)
    assert made == [image(1, 4, 4)]


# ---------------------------------------------------------------- heads

TINY = Layout(6, 4, (1, 1, 0), "contiguous", 4.0)
"""Two pairs and two dimensions behind them: angles 1 and 1 / 2 at position 1."""


def test_a_pair_is_turned_by_its_rows_position() -> None:
    table = np.array([[1], [3], [9]], dtype=np.int64)
    heads = np.array([[[1.0, 1.0, 0.0, 0.0, 7.0, 8.0]]])
    turned_heads = rotated(table, heads, TINY)[0, 0].tolist()
    assert turned_heads == pytest.approx([np.cos(1.0), np.cos(1.5), np.sin(1.0), np.sin(1.5), 7.0, 8.0])
    assert heads[0, 0].tolist() == [1.0, 1.0, 0.0, 0.0, 7.0, 8.0]
    other = turned(table, np.array([[[0.0, 0.0, 1.0, 1.0, 7.0, 8.0]]]), (2, 0), 4.0)[0, 0].tolist()
    assert other == pytest.approx([-np.sin(9.0), -np.sin(0.5), np.cos(9.0), np.cos(0.5), 7.0, 8.0])


def test_the_table_that_turns_is_that_of_the_history_so_far() -> None:
    state = with_status(waiting(PICTURE, WORDS), 0, "running", 2)
    assert table_of(state, 0, "contiguous", "").T.tolist() == [*COLUMNS, [4] * 3, [5] * 3]
    assert table_of(state, 1, "contiguous", "native").tolist() == [[0, 1, 2]] * 3


def test_a_layout_that_may_be_left_has_an_end_of_its_own() -> None:
    assert {name for name in LAYOUTS if bounded(name)} == {"short", "served"}


@pytest.mark.parametrize(
    ("prompt", "layout", "reason"),
    [
        ((text(LAYOUTS["short"].longest + 1),), "short", "33 tokens, more than 'short' has positions"),
        ((text(MOST + 1),), "contiguous", "1025 tokens; one rotation turns at most 1024"),
        ((text(2), video(2, 2, 2, (LONGEST - 50 - 2) / 2)), "contiguous", "positions below 4046"),
    ],
)
def test_a_history_that_is_too_long_to_turn(prompt: History, layout: str, reason: str) -> None:
    state = submit(State(family="qwen2_5_vl"), 0, prompt, 8)
    with pytest.raises(OutOfDomain, match=reason):
        table_of(state, 0, layout, "")


def test_a_history_that_is_just_short_enough_to_turn() -> None:
    for prompt, layout in (
        ((text(32),), "short"),
        ((text(MOST),), "contiguous"),
        ((text(2), video(2, 2, 2, (LONGEST - 50 - 3) / 2)), "contiguous"),
        ((text(2), video(2, 2, 2, 9000.0)), "short"),  # past its end: the point of it
    ):
        state = submit(State(family="qwen2_5_vl"), 0, prompt, 8)
        assert table_of(state, 0, layout, "").shape[0] == 3
    with pytest.raises(OutOfDomain, match="three rows"):
        table_of(submit(State(family="hunyuan_vl"), 0, (text(3),), 8), 0, "contiguous", "")


def test_a_timeline_by_hand() -> None:
    line = Timeline(table=np.zeros((2, 1), dtype=np.int64), delta=4, tabulated=1, has_media=True)
    assert line.take(np.array([0, 1, 200])).tolist() == [[0, 5, 204]] * 2

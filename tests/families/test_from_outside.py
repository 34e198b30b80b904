"""Small inputs with right values that came from outside, family by family (the kinds are covered by the cases)."""

from __future__ import annotations

import numpy as np
import pytest

from ropecheck.conformance.families.case import expected
from ropecheck.conformance.families.cases import without_a_rate
from ropecheck.reference.prompt_tables import prompt_table as fast
from ropecheck.spec.families import rules
from ropecheck.spec.families.minicpm_v import MINICPM_V4_7, Picture, sliced, stretched
from ropecheck.spec.families.qwen2_5_vl import QWEN2_5_VL
from ropecheck.spec.history import History, OutOfDomain, Run, TokenIndex, delta_of, ideal_column, image, text, video
from ropecheck.spec.history import prompt_table as table_of

PICTURE = image(1, 8, 12)

CANVASES: dict[str, tuple[History, tuple[str, str, str], int]] = {
    "a picture with its markers": (
        (text(1), PICTURE, text(1)),
        ("0 1 1 1 1 1 1 1 1 5", "0 0 1 1 1 2 2 2 3 5", "0 0 1 2 3 1 2 3 4 5"),
        -4,
    ),
    "a thumbnail and a row of two slices": (
        (text(1), sliced(4, 8, 1, 2, 4, 4), text(1)),
        ("0 1 1 1 1 1 1 1 1 1 1 4", "0 0 1 1 2 1 1 1 1 1 1 4", "0 0 1 2 3 1 1 1 2 2 2 4"),
        -7,
    ),
    "two pictures and no text between": (
        (text(1), PICTURE, PICTURE, text(1)),
        (
            "0 1 1 1 1 1 1 1 1 5 5 5 5 5 5 5 5 9",
            "0 0 1 1 1 2 2 2 3 4 5 5 5 6 6 6 7 9",
            "0 0 1 2 3 1 2 3 4 4 5 6 7 5 6 7 8 9",
        ),
        -8,
    ),
    "two rows of slices, a newline between": (
        (text(1), sliced(4, 8, 2, 1, 4, 4), text(1)),
        ("0 1 1 1 1 1 1 1 1 1 1 1 4", "0 0 1 1 3 1 1 1 1 2 2 2 4", "0 0 1 1 2 1 1 1 2 1 1 1 4"),
        -8,
    ),
    "a newline between two pictures": (
        (text(1), PICTURE, text(1), Picture(kind="image", grid=(1, 4, 4), after_newline=True), text(1)),
        ("0 1 1 1 1 1 1 1 1 5 7 7 7 9", "0 0 1 1 1 2 2 2 3 5 6 7 8 9", "0 0 1 2 3 1 2 3 4 5 6 7 8 9"),
        -4,
    ),
    "at the start": (
        (PICTURE, text(1)),
        ("0 0 0 0 0 0 0 0 4", "0 0 0 0 1 1 1 2 4", "0 0 1 2 0 1 2 3 4"),
        -4,
    ),
}


@pytest.mark.parametrize("name", CANVASES)
def test_canvas(name: str) -> None:
    history, rows, delta = CANVASES[name]
    table = table_of(MINICPM_V4_7, history)
    assert [" ".join(map(str, row)) for row in zip(*table, strict=True)] == list(rows)
    assert delta_of(table) == delta
    np.testing.assert_array_equal(fast(MINICPM_V4_7, history), np.array(table).T)


def test_canvas_rule_sees_a_marker_in_the_wrong_corner() -> None:
    history = (text(1), PICTURE)
    columns = table_of(MINICPM_V4_7, history)
    for last, right in ((columns[-1], True), ((1, 2, 4), False)):
        built = rules.BuiltTable(family=MINICPM_V4_7, history=history, columns=(*columns[:-1], last), delta=0)
        assert (rules.canvas(built) is None) is right


def test_a_thumbnail_is_stretched_over_its_canvas() -> None:
    assert [stretched(i, 3, 4) for i in range(3)] == [0, 2, 3]  # 1.5: to the even one
    assert [stretched(i, 2, 5) for i in range(2)] == [0, 4]
    assert [stretched(i, 4, 2) for i in range(4)] == [0, 0, 1, 1]
    assert stretched(0, 1, 9) == 0


@pytest.mark.parametrize(
    "run",
    [
        Run(kind="audio", tokens=3),
        video(2, 8, 8),
        sliced(8, 8, 1, 0, 4, 4),
        sliced(8, 8, 1, 2, 4, 6),
        image(1, 8, 6),
    ],
)
def test_canvas_refuses(run: Run) -> None:
    with pytest.raises(OutOfDomain):
        MINICPM_V4_7.token_count(run)


def test_a_slow_clip_runs_ahead_of_its_indices() -> None:
    table = table_of(QWEN2_5_VL, (text(1), video(2, 2, 2, 3.0), text(1)))
    assert table == ((0, 0, 0), (1, 1, 1), (7, 1, 1), (8, 8, 8))
    assert delta_of(table) == 5
    assert [ideal_column(table, TokenIndex(i)) for i in (4, 5)] == [(9, 9, 9), (10, 10, 10)]


def test_a_picture_needs_no_rate() -> None:
    """Text, a start marker, six tokens of a picture, an end marker, text, from a builder that is told no rate."""
    (case,) = without_a_rate("qwen2_5_vl")
    right = expected(case)
    assert right.tables[0].tolist() == [
        [0, 1, 2, 2, 2, 2, 2, 2, 5, 6],
        [0, 1, 2, 2, 2, 3, 3, 3, 5, 6],
        [0, 1, 2, 3, 4, 2, 3, 4, 5, 6],
    ]
    assert right.deltas == (-3,)


def test_a_long_recording_is_far_away() -> None:
    table = table_of(QWEN2_5_VL, (text(2), video(384, 2, 2, 187.5), text(3)))
    assert len(table) == 389
    assert table[385] == (143_627, 2, 2)
    assert [column[0] for column in table[386:]] == [143_628, 143_629, 143_630]
    assert delta_of(table) == 143_242
    behind = table_of(QWEN2_5_VL, (text(70_000), image(1, 4, 6), text(1)))
    assert (behind[70_000], behind[70_005], behind[70_006]) == ((70_000,) * 3, (70_000, 70_001, 70_002), (70_003,) * 3)

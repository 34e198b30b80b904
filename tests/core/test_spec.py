"""The specification by itself: the worked examples, the ideal position function, cuts, and the registry."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ropecheck.conformance.scenarios.random import histories
from ropecheck.spec.families import FAMILIES, family
from ropecheck.spec.history import (
    Delta,
    History,
    OutOfDomain,
    TokenIndex,
    cut,
    delta_of,
    ideal_column,
    image,
    length,
    next_position,
    prompt_table,
    text,
    video,
)
from ropecheck.spec.modes import composed, mode_of
from ropecheck.spec.rules import all_rules
from ropecheck.spec.views import Place

QWEN = family("qwen2_vl")


def test_the_worked_example() -> None:
    table = prompt_table(QWEN, (text(2), image(1, 4, 6), text(1)))
    rows = list(zip(*table, strict=True))
    assert rows == [(0, 1, 2, 2, 2, 2, 2, 2, 5), (0, 1, 2, 2, 2, 3, 3, 3, 5), (0, 1, 2, 3, 4, 2, 3, 4, 5)]
    assert delta_of(table) == -3
    assert ideal_column(table, TokenIndex(9)) == (6, 6, 6)


def test_text_after_a_video_follows_its_longest_axis() -> None:
    table = prompt_table(QWEN, (text(2), video(8, 2, 2), text(2)))
    assert table[-2:] == ((10, 10, 10), (11, 11, 11))


def test_absolute_time_never_scales_the_start() -> None:
    table = prompt_table(family("qwen2_5_vl"), (text(3), video(3, 2, 2, 1.5)))
    assert [column[0] for column in table] == [0, 1, 2, 3, 6, 9]
    half = prompt_table(family("qwen2_5_vl"), (text(1), video(4, 2, 2, 0.25)))
    assert [column[0] for column in half] == [0, 1, 1, 2, 2]


@given(histories(), st.integers(0, 50))
def test_text_only_is_the_identity_and_generated_text_goes_on(history: History, more: int) -> None:
    table = prompt_table(QWEN, history)
    assert len(table) == length(QWEN, history)
    index = TokenIndex(len(table) + more)
    assert ideal_column(table, index) == prompt_table(QWEN, (*history, text(more + 1)))[-1]
    words = prompt_table(QWEN, (text(len(table)),))
    assert words == tuple((i, i, i) for i in range(len(table))) and delta_of(words) == 0


@given(histories(), histories())
def test_a_turn_moves_as_a_whole(before: History, turn: History) -> None:
    """The translation law: a turn's own table, moved to the first free position, is its part of the whole."""
    whole = prompt_table(QWEN, (*before, *turn))
    start = next_position(prompt_table(QWEN, before))
    moved = tuple(tuple(p + start for p in column) for column in prompt_table(QWEN, turn))
    assert whole[len(whole) - len(moved) :] == moved


@given(histories(), st.data())
def test_a_cut_keeps_columns_and_lengths(history: History, data: st.DataObject) -> None:
    whole = prompt_table(QWEN, history)
    keep = data.draw(st.integers(0, len(whole)))
    assert prompt_table(QWEN, cut(QWEN, history, keep)) == whole[:keep]
    with pytest.raises(OutOfDomain):
        cut(QWEN, history, len(whole) + 1)


@pytest.mark.parametrize("grid", [(1, 3, 4), (1, 4, 3), (0, 4, 4), (1, 0, 4)])
def test_a_grid_that_the_merge_does_not_divide_is_refused(grid: tuple[int, int, int]) -> None:
    with pytest.raises(OutOfDomain):
        prompt_table(QWEN, (image(*grid),))


def test_negative_indices_and_unknown_families_are_refused() -> None:
    with pytest.raises(OutOfDomain):
        ideal_column(((0, 0, 0),), TokenIndex(-1))
    with pytest.raises(OutOfDomain, match="known: "):
        family("qwen9_vl")


def test_the_registry_is_whole() -> None:
    rules = all_rules()
    assert len(rules) >= 60
    for id, rule in rules.items():
        assert " must " in f" {rule.must} ", id
        assert rule.source and rule.stated.startswith("ropecheck.spec."), id
        assert id == id.lower() and id.startswith(f"{rule.topic}.") and "." not in rule.topic
    assert FAMILIES["qwen2_vl"].axes == 3


@pytest.mark.parametrize(("behind", "gap"), [((), 2), ((text(1),), 0), ((text(1), image(1, 6, 4)), 2)])
def test_how_far_the_largest_coordinate_is_ahead_of_t(behind: History, gap: int) -> None:
    """Behind a picture of 2 x 3 tokens t is at its first column, w two further."""
    table = prompt_table(QWEN, (text(2), image(1, 4, 6), *behind))
    rows = tuple(zip(*table, strict=True))
    assert Place(rows=rows, tabulated=len(table), delta=Delta(0), has_media=True).gap == gap
    assert Place(rows=rows, tabulated=0, delta=Delta(0), has_media=False).gap == 0


def test_a_mode_of_other_modes_rows_is_composite() -> None:
    mixed = mode_of("mixed")
    assert mixed.composite and not mode_of("decode").composite
    assert composed(tuple(part.name for part in mixed.parts)) is mixed
    assert composed(("decode",)) is mode_of("decode")
    with pytest.raises(OutOfDomain, match="decode, then decode"):
        composed(("decode", "decode"))


def test_no_example_has_a_deadline() -> None:
    """Whichever folders are tested together: the profile is everybody's."""
    assert settings().deadline is None

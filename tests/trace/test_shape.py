"""The words for a wrong row of a stream: one fault, one name."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ropecheck.adapters import events
from ropecheck.conformance.trace.follow import TraceFollower
from ropecheck.conformance.trace.shape import DEALT, GIVEN_UP, shape_of
from ropecheck.spec.families import family
from ropecheck.spec.history import Run, delta_of, prompt_table, text
from ropecheck.spec.rules import Violation
from ropecheck.spec.views import Place, Row

Columns = list[tuple[int, int, int]]

PROMPT = (text(2), Run(kind="image", grid=(1, 4, 8)), text(3))
"""Two words, a picture of 2 x 4 tokens, three words: 13 tokens; text goes on 4 columns earlier."""
WRONG = Violation(axis="t", at=0)


def place(prompt: tuple[Run, ...] = PROMPT) -> Place:
    table = prompt_table(family("qwen2_vl"), prompt)
    rows = tuple(zip(*table, strict=True))
    return Place(
        rows=rows, tabulated=len(table), delta=delta_of(table), has_media=any(not run.is_text for run in prompt)
    )


OWN = place()
DELTA = int(OWN.delta)
PAST = (13, 14, 15)
INSIDE = tuple(range(2, 10))


def row(tokens: tuple[int, ...], columns: Columns, at: Place = OWN) -> Row:
    return Row(mode="extend", place=at, tokens=tokens, positions=tokens, columns=tuple(zip(*columns, strict=True)))


def test_the_example_tells_its_delta_from_small_shifts() -> None:
    assert (OWN.tabulated, DELTA, OWN.gap) == (13, -4, 0)


@pytest.mark.parametrize(
    ("seen", "name"),
    [
        (lambda index: (index,) * 3, "delta missing"),
        (lambda index: (index + 2 * DELTA,) * 3, "delta twice"),
        (lambda index: (index - DELTA,) * 3, "delta negated"),
        (lambda index: (index - 7,) * 3, "delta of another request"),
        (lambda index: (0, 0, 0), "all zero"),
        (lambda index: (index + DELTA + 1,) * 3, "off by one"),
        (lambda index: (index + DELTA + 90,) * 3, "shifted by a constant"),
        (lambda index: (7, 7, 7), "one column repeated"),
        (lambda index: (index, 3 * index, 5), "other values"),
    ],
)
def test_past_the_prompt(seen: Callable[[int], tuple[int, int, int]], name: str) -> None:
    assert shape_of(row(PAST, [seen(index) for index in PAST]), WRONG, [-7]) == name


@pytest.mark.parametrize(
    ("seen", "name"),
    [(lambda column: (column[1],) * 3, "one row repeated"), (lambda column: column[::-1], "rows swapped")],
)
def test_inside_the_picture(seen: Callable[[tuple[int, ...]], tuple[int, int, int]], name: str) -> None:
    assert shape_of(row(INSIDE, [seen(OWN.column(index)) for index in INSIDE]), WRONG, []) == name


def test_columns_of_other_histories() -> None:
    """Those of the turn that it continues, and those of that turn without its media."""
    parent, forgotten = place((Run(kind="image", grid=(1, 8, 8)), text(9))), place((text(13),))
    theirs = row(INSIDE, [parent.column(index) for index in INSIDE])  # type: ignore[misc]
    assert shape_of(theirs, WRONG, [], parent) == "columns of the parent"
    plain = row(INSIDE, [forgotten.column(index) for index in INSIDE])  # type: ignore[misc]
    assert shape_of(plain, WRONG, [], None, forgotten) == GIVEN_UP


def test_behind_a_picture_that_ends_the_prompt() -> None:
    """Text that continues from the last t, where h and w are larger."""
    at = place(PROMPT[:2])
    assert at.gap == 3
    seen = row((10, 11), [(index + int(at.delta) - 3,) * 3 for index in (10, 11)], at)
    assert shape_of(seen, WRONG, []) == "continues from one row"


@pytest.mark.parametrize(
    ("positions", "name"),
    [
        ((14, 15, 16), "off by one"),
        ((3, 4, 5), "shifted by a constant"),
        ((0, 0, 0), "all zero"),
        ((1, 9, 2), "other values"),
    ],
)
def test_the_1d_table(positions: tuple[int, ...], name: str) -> None:
    view = Row(mode="extend", place=OWN, tokens=PAST, positions=positions, columns=((1,), (1,), (1,)))
    assert shape_of(view, Violation(axis="1d", at=0), []) == name


def test_what_is_no_row_has_no_shape() -> None:
    assert shape_of(object(), WRONG, []) == "other values"


def test_a_follower_knows_where_a_request_stands_until_it_is_gone() -> None:
    follower = TraceFollower("qwen2_vl")
    prompt = tuple(events.PromptRun(kind=run.kind, tokens=run.tokens, grid=run.grid) for run in PROMPT)
    follower.feed(events.Arrived(req="a", prompt=prompt, max_new_tokens=4))
    assert follower.place("a") == OWN
    assert follower.place("b") is None
    follower.feed(events.Output(req="a", tokens=(5,), finished="length"))
    follower.feed(events.Opened(session="s"))
    follower.feed(events.Arrived(req="c", prompt=prompt[:1], max_new_tokens=4, session="s"))
    found = follower.place("c")
    assert found is not None and not found.has_media


PLAIN = place((text(20),))


@pytest.mark.parametrize(
    ("at", "tokens", "columns", "deltas", "name"),
    [
        (OWN, (13,), [(5, 9, 7)], [], "other values"),
        (OWN, (13, 14), [(7, 8, 9), (7, 8, 9)], [], "one column repeated"),
        (OWN, (13, 14), [(20, 20, 20), (21, 21, 22)], [], "other values"),
        (OWN, (2, 3), [(-2, -2, -2), (-1, -1, -1)], [], "index + delta inside the table"),
        (OWN, (13, 14), [(6, 6, 6), (7, 7, 7)], [-7], "delta of another request"),
        (PLAIN, (3, 4), [(0, 0, 0), (0, 0, 0)], [], "all zero"),
        (PLAIN, (3, 4), [(5, 5, 5), (6, 6, 6)], [2], "delta of another request"),
        (PLAIN, (3, 4), [(5, 5, 5), (6, 6, 6)], [], "shifted by a constant"),
        (PLAIN, (3, 4), [(4, 4, 4), (5, 5, 5)], [], "off by one"),
    ],
)
def test_words_for_few_columns(
    at: Place, tokens: tuple[int, ...], columns: Columns, deltas: list[int], name: str
) -> None:
    assert shape_of(row(tokens, columns, at), WRONG, deltas) == name


def test_columns_that_are_right_have_no_say() -> None:
    half = [OWN.column(13), (14, 14, 14)]
    assert shape_of(row((13, 14), half), WRONG, []) == "delta missing"  # type: ignore[arg-type]


def test_drafts_that_read_with_a_parents_delta() -> None:
    parent = place((Run(kind="image", grid=(1, 8, 8)), text(9)))
    at = 13
    seen = [(at + int(parent.delta),) * 3]
    assert shape_of(row((at,), seen), WRONG, [], parent) == "columns of the parent"
    assert shape_of(row((at,), seen), WRONG, [], place((text(9),))) == "shifted by a constant"


def test_packed_rows_that_were_dealt_other_deltas() -> None:
    def packed(columns: Columns, deltas: list[int]) -> str:
        view = Row(
            mode="scheduler.ragged_verify",
            place=OWN,
            tokens=(13, 14),
            positions=(13, 14),
            columns=tuple(zip(*columns, strict=True)),
        )
        return shape_of(view, WRONG, deltas)

    assert packed([(6, 6, 6), (2, 2, 2)], [-7, -12]) == DEALT
    assert packed([(6, 6, 6), (2, 2, 3)], [-7, -12]) == "other values"
    assert packed([(6, 6, 6), (2, 2, 2)], [-7]) == "other values"
    assert shape_of(row((13, 14), [(6, 6, 6), (2, 2, 2)]), WRONG, [-7, -12]) == "other values"


def test_text_behind_a_picture_continues_from_one_row_past_the_table_alone() -> None:
    at = place(PROMPT[:2])
    early = tuple(value - 3 for value in at.column(9))
    assert shape_of(row((9, 10), [early, (at.column(10)[0] - 3,) * 3], at), WRONG, []) == "shifted by a constant"  # type: ignore[list-item]

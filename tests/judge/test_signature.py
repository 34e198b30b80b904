"""The words for a wrong table: one fault, one name, and the most specific of those that explain it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest

from ropecheck.adapters.protocol import Raised
from ropecheck.conformance.judge.signature import (
    column_signature,
    delta_word,
    fill_signature,
    free,
    from_one_row,
    held_signature,
    index_signature,
    raise_signature,
    raised_line,
)
from ropecheck.conformance.plan.planner import TableCheck, plan
from ropecheck.conformance.scenario.forward import ExpectedTables
from ropecheck.conformance.scenario.operations import Finish, Open, Operation, Scenario, Submit, Turn
from ropecheck.conformance.scenario.words import decode, extend, ragged_verify, verify, window
from ropecheck.conformance.scenarios.chosen import chosen
from ropecheck.reference.timeline import IntArray, Timeline, timeline
from ropecheck.spec.history import Delta, History, image, text
from ropecheck.spec.rules import Violation
from ropecheck.spec.views import Filler, HeldState, Place, Seen


@pytest.mark.parametrize(
    ("observed", "name"),
    [
        ([4, 5, 6], "off by one"),
        ([2, 3, 4], "off by one"),
        ([13, 14, 15], "shifted by a constant"),
        ([0, 0, 0], "all zero"),
        ([4, 4, 4], "one column repeated"),
        ([5, 7, 6], "other values"),
        ([5, 3, 4], "wrong order"),
        ([3, 4, 9], "other values"),
    ],
)
def test_indices(observed: list[int], name: str) -> None:
    assert index_signature(np.array([3, 4, 5]), np.array(observed)) == name


def test_a_single_index_is_off_by_one_or_more() -> None:
    assert index_signature(np.array([3]), np.array([4])) == "off by one"
    assert index_signature(np.array([3, 4]), np.array([1, 1])) == "one column repeated"
    assert index_signature(np.array([3]), np.array([5])) == "shifted by a constant"


def decoded() -> ExpectedTables:
    """The first decode of a request whose delta is not 0."""
    scenario = next(one for one in chosen() if isinstance(one, Scenario) and one.name == "extend and decode, image")
    found = [check.expected for check in plan(scenario).checks if isinstance(check, TableCheck)]
    return next(one for one in found if one.mode.name == "decode")


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        (lambda index, delta: index, "delta missing"),
        (lambda index, delta: index + 2 * delta, "delta twice"),
        (lambda index, delta: index - delta, "delta negated"),
        (lambda index, delta: 0 * index, "all zero"),
        (lambda index, delta: index + delta + 1, "off by one"),
        (lambda index, delta: index + delta + 100, "shifted by a constant"),
    ],
)
def test_columns_past_the_prompt(wrong: object, name: str) -> None:
    expected = decoded()
    table = expected.tables[""]
    span = table.spans[0]
    columns = np.arange(span.start, span.stop)
    want = np.array(table.rows)[:, columns]
    indices = np.array(table.positions)[columns]
    delta = expected.lines[span.row].delta
    assert delta not in (0, 1, -1) and (want == indices + delta).all()
    got = np.broadcast_to(wrong(indices, delta), want.shape)  # type: ignore[operator]
    assert column_signature(expected, span, columns, indices, want, got, [delta]) == name


PICTURE: History = (text(2), image(1, 4, 6))
"""Its last token is the picture's: two of text, then 2 x 3; t h w end at 2, 3, 4, and 5 is free. Delta -3."""


def last_forward(*ops: Operation) -> ExpectedTables:
    """Of a script, what its last forward must read."""
    planned = plan(Scenario(name="", family="qwen2_vl", ops=ops))
    return [check.expected for check in planned.checks if isinstance(check, TableCheck)][-1]


def tables_of_a_picture(mode: str) -> ExpectedTables:
    prefilled = (Submit(0, PICTURE), extend((window(0),)))
    return last_forward(*prefilled, *([decode((0,))] if mode == "decode" else []))


def said(
    expected: ExpectedTables,
    wrong: Callable[[IntArray], IntArray],
    row: int = 0,
    some: slice = slice(None),
    deltas: Sequence[int] = (-3,),
) -> str:
    """The words for columns of a row that are wrong so."""
    table = expected.tables[""]
    (span,) = (one for one in table.spans if one.row == row)
    columns = np.arange(span.start, span.stop)[some]
    want = np.array(table.rows)[:, columns]
    return column_signature(expected, span, columns, np.array(table.positions)[columns], want, wrong(want), deltas)


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        (lambda want: want[[1, 0, 2]], "rows swapped"),
        (lambda want: want[[1, 1, 1]], "one row repeated"),
        (lambda want: want[[1, 1, 2]], "row t wrong"),
        (lambda want: want[[0, 1, 1]], "row w wrong"),
        (lambda want: want[[0, 2, 1]] + [[0], [0], [1]], "other values"),
        (lambda want: np.repeat(want[:, -1:], want.shape[1], axis=1), "one column repeated"),
        (lambda want: want + 3, "shifted by a constant"),
        (lambda want: want + 1, "off by one"),
        (lambda want: 0 * want, "all zero"),
        (lambda want: want[[2, 2, 2]], "one row repeated"),
        (lambda want: want[[0, 2, 2]], "row h wrong"),
        (lambda want: np.stack([want[0] + want[1], *want[1:]]), "row t wrong"),
        (lambda want: np.stack([want.sum(axis=0)] * 3), "other values"),
        (lambda want: np.broadcast_to(np.arange(8), (3, 8)) - 3, "index + delta inside the table"),
    ],
)
def test_columns_inside_the_prompt(wrong: Callable[[IntArray], IntArray], name: str) -> None:
    assert said(tables_of_a_picture("extend"), wrong) == name


@pytest.mark.parametrize(
    ("shift", "name"), [(-2, "continues from one row"), (-1, "continues from one row"), (7, "shifted by a constant")]
)
def test_columns_that_go_on_behind_one_row(shift: int, name: str) -> None:
    assert said(tables_of_a_picture("decode"), lambda want: want + shift) == name


def instead(seen: IntArray) -> Callable[[IntArray], IntArray]:
    return lambda want: seen


def test_one_wrong_column_is_no_column_repeated() -> None:
    near, wrong = tables_of_a_picture("extend"), np.array([[9], [1], [5]])
    assert said(near, lambda want: want + wrong, some=slice(-1, None)) == "other values"
    assert said(near, lambda want: want[:, [0, 0]] + 90, some=slice(4, 6)) == "one column repeated"


def test_text_has_one_row_and_no_axis_of_its_own() -> None:
    words = last_forward(Submit(0, (text(4),)), extend((window(0),)))
    assert said(words, lambda want: want[:, [0, 2, 1, 3]]) == "other values"
    assert said(words, lambda want: want[:, ::-1]) == "other values"
    assert said(words, lambda want: want * np.array([[1], [1], [2]])) == "row w wrong"
    assert said(words, lambda want: want + 1) == "off by one"  # no delta of another request: nobody is there


TWO = (Submit(0, PICTURE), Submit(1, (text(3), image(1, 8, 8))), extend((window(0), window(1))))
"""Deltas -3 and -12, of 8 and 19 tokens."""


@pytest.mark.parametrize(("row", "others"), [(0, -12), (1, -3)])
def test_the_delta_of_the_other_request(row: int, others: int) -> None:
    both = last_forward(*TWO, decode((0, 1)))
    assert [line.delta for line in both.lines] == [-3, -12]
    index = both.tables[""].positions[row]
    assert said(both, lambda want: 0 * want + index + others, row) == "delta of another request"
    assert said(both, lambda want: 0 * want + index, row) == "delta missing"
    assert said(both, lambda want: want + 1, row) == "off by one"


@pytest.mark.parametrize(
    ("added", "own", "others", "name"),
    [
        (0, -3, [], "delta missing"),
        (0, 0, [-5], ""),
        (-5, -3, [-5], "delta of another request"),
        (-5, 0, [0, -5], "delta of another request"),
        (-3, -3, [-3], ""),
        (0, 0, [0], ""),
        (-6, -3, [-5], "delta twice"),
        (-6, -3, [-6], "delta of another request"),
        (3, -3, [], "delta negated"),
        (4, -3, [-5], ""),
    ],
)
def test_which_delta_was_added(added: int, own: int, others: list[int], name: str) -> None:
    assert delta_word(lambda delta: delta == added, own, others) == name


def turns() -> Iterator[Operation]:
    """A turn of pictures that goes on behind one of words and a picture."""
    yield Open(0)
    yield Turn(0, 0, PICTURE)
    yield extend((window(0),))
    yield Finish(0)
    yield Turn(0, 1, (text(1), image(1, 4, 6), text(5)), parent=0)
    yield extend((window(1),))


def test_columns_of_the_turn_before_and_of_elsewhere() -> None:
    turn = last_forward(*turns())
    parent, own = turn.parent_lines[0], turn.lines[0]
    assert parent is not None
    behind = np.array(turn.tables[""].positions)
    assert said(turn, lambda want: parent.take(behind)) == "columns of the parent"
    picture = slice(10, 16)
    for shift in (-3, 2):
        assert said(turn, instead(own.take(behind[picture] + shift)), some=picture) == "window of elsewhere"
    assert said(turn, lambda want: want + np.array([[0], [1], [0]]), some=picture) == "row h wrong"


@pytest.mark.parametrize(("apart", "name"), [(256, "window of elsewhere"), (257, "other values")])
def test_a_window_is_looked_for_so_far_away(apart: int, name: str) -> None:
    """Two pictures of six tokens, three columns wide and two."""
    far = last_forward(Submit(0, (image(1, 4, 6), text(apart - 6), image(1, 6, 4))), extend((window(0),)))
    (line,) = far.lines
    first, second = np.arange(6), np.arange(apart, apart + 6)
    assert said(far, lambda want: line.take(second), some=slice(0, 6)) == name
    assert said(far, lambda want: line.take(first), some=slice(apart, apart + 6)) == name


def test_a_window_does_not_begin_before_the_history() -> None:
    near = last_forward(Submit(0, (image(1, 4, 6), text(3))), extend((window(0),)))
    (line,) = near.lines
    first = line.take(np.arange(1))
    assert said(near, lambda want: np.concatenate([first, line.take(np.arange(5))], 1), some=slice(1, 7)) != "window"
    assert said(near, lambda want: line.take(np.arange(6)), some=slice(1, 7)) == "window of elsewhere"
    assert said(near, lambda want: line.take(np.arange(6) - 1), some=slice(1, 7)) != "window of elsewhere"


@pytest.mark.parametrize(
    ("trees", "tier", "name"),
    [
        (((0, 1, 2), (0,)), 0, "dealt in equal shares"),
        (((0, 1), (0, 1)), 0, "delta of another request"),
        (((0, 1), (0, 1)), 10, "dealt in equal shares"),
        (((0, 1, 2, 3), ()), 0, "dealt in equal shares"),
        (((0, 1), ()), 8, "dealt in equal shares"),
        (((0, 1), (0,)), 0, "delta of another request"),  # an odd number of columns
    ],
)
def test_packed_columns_that_were_dealt_as_if_all_rows_were_alike(
    trees: tuple[tuple[int, ...], ...], tier: int, name: str
) -> None:
    packed = last_forward(*TWO, ragged_verify((0, 1), trees, tier))
    table = packed.tables[""]
    half, rest = divmod(table.positions.size, 2)
    assert bool(rest) == (name != "dealt in equal shares" and trees[1] == (0,))
    deltas = [-3, -12]
    dealt = [deltas[min(column // max(1, half), 1)] for column in range(table.positions.size)]
    seen = table.positions + np.array(dealt)
    for row, span in enumerate(table.spans):
        wrong = [at for at in range(span.start, span.stop) if dealt[at] != deltas[row]]
        if not wrong and (name.startswith("dealt") or rest):
            continue
        some = slice(wrong[0] - span.start, wrong[-1] + 1 - span.start) if wrong else slice(None)
        values = (
            seen[span.start : span.stop][some] if wrong else table.positions[span.start : span.stop] + deltas[1 - row]
        )
        assert said(packed, instead(np.stack([values] * 3)), row, some, deltas) == name


def test_a_tree_of_one_size_is_not_dealt() -> None:
    level = last_forward(*TWO, verify((0, 1), ((0, 1), (0, 1))))
    packed = last_forward(*TWO, ragged_verify((0, 1), ((0, 1), (0, 1))))
    for expected in (level, packed):
        assert said(expected, lambda want: want - 9, 0, deltas=[-12, -3]) == "delta of another request"


@pytest.mark.parametrize(
    ("tier", "start", "columns", "name"),
    [
        (8, 5, [-12, -12, -12], "dealt in equal shares"),
        (8, 2, [-3, -3, -12], "dealt in equal shares"),
        (8, 5, [-12, -12, -3], "fill not zero"),
        (8, 2, [-3, -12, -12], "fill not zero"),
        (0, 2, [-3, -3, -12], "fill not zero"),
        (8, 5, [], "fill not zero"),
    ],
)
def test_padding_that_holds_a_delta(tier: int, start: int, columns: list[int], name: str) -> None:
    packed = last_forward(*TWO, ragged_verify((0, 1), ((0, 1), ()), tier))
    rows = ([*columns],) * 3 if columns else ()
    filler = Filler(mode="ragged_verify", buffer="tier", positions=[0] * 3, columns=rows)
    assert fill_signature(packed, filler, start, [-3, -12]) == name


@pytest.mark.parametrize(
    ("shift", "placed"), [(-2, True), (-1, True), (0, False), (1, False), (-3, False), (-4, False)]
)
def test_text_goes_on_behind_one_row(shift: int, placed: bool) -> None:
    """The last token's t, h and w are 2, 3 and 4: text behind them stands at 3, 4 and rightly at 5."""
    assert from_one_row(timeline("qwen2_vl", PICTURE, 2), shift) == placed
    assert not from_one_row(timeline("qwen2_vl", (), 0), shift)


def test_behind_whose_last_token_text_goes_on() -> None:
    line = Timeline(table=np.array([[7, 1], [0, 2], [0, 3]]), delta=6, tabulated=2, has_media=True)
    assert [shift for shift in range(-9, 3) if from_one_row(line, shift)] == [-6, -5, -4]


@pytest.mark.parametrize(
    ("columns", "where"), [((), 0), (((0, 0, 0),), 1), (((1, 5, 2), (3, 3, 3)), 6), (((3, 3, 4), (1, 1, 1)), 5)]
)
def test_where_text_goes_on(columns: tuple[tuple[int, ...], ...], where: int) -> None:
    assert free(columns) == where


def place(history: History) -> Place:
    return timeline("qwen2_vl", history, len(history)).place


PARENT = place((text(1), image(1, 4, 4)))
OWN = place((text(1), image(1, 4, 4), text(4)))
"""Five columns, the last of them 1 2 2; behind them 3, 4, 5, 6."""


def held(columns: Sequence[tuple[int, ...]], at: int | None, parent: Place | None = PARENT) -> str:
    """What is said of a table with these columns, the first wrong one at `at`."""
    rows = tuple(map(list, zip(*columns, strict=True)))
    state = HeldState(
        moment="turn",
        place=OWN,
        covers=9,
        spans=((1, 5),),
        media=(),
        raw=(),
        outputs=(),
        retracted=False,
        table=Seen(dtype="int64", shape=(3, len(columns)), values=rows) if columns else None,
        delta=Seen(dtype="int64", shape=(1, 1), values=([int(Delta(-2))],)),
        delta_cache=None,
        offsets=(),
        ids=(),
        fill_ids=None,
        parent=parent,
    )
    return held_signature(state, Violation(axis="table", at=at))


COLUMNS = [OWN.column(k) for k in range(9)]


def test_what_a_request_holds_wrongly() -> None:
    def behind(*rest: int) -> list[tuple[int, ...]]:
        return [*COLUMNS[:5], *((value,) * 3 for value in rest)]

    assert held(behind(6, 7, 8, 9), 5) == "shifted by a constant"
    assert held(behind(2, 3, 4, 5), 5) == "continues from one row"
    assert held(behind(2, 3, 4), 5, None) == "continues from one row"
    assert held(behind(2, 3, 4, 9), 5) == "other values"
    assert held(behind(3, 5, 6, 7), 6) == "shifted by a constant"
    assert held(behind(3, 4, 5, 7), 8) == "shifted by a constant"
    assert held([tuple(value + 4 for value in column) for column in COLUMNS], 0) == "shifted by a constant"
    assert held([(2, 2, 2), (1, 1, 1)], 0) == "other values"
    inside = [*COLUMNS[:3], *(tuple(value + 2 for value in column) for column in COLUMNS[3:])]
    assert held(inside, 3) == "continues from one row"


def test_what_stands_where_the_turn_began_and_nothing() -> None:
    early = [*COLUMNS[:4], (3, 3, 3)]
    assert held(early, 4) == "turn begins a token early"
    assert held(early, 4, None) == "other values"
    assert held([*early, *COLUMNS[5:]], 4) == "turn begins a token early"
    assert held([*COLUMNS[:4], (4, 4, 4)], 4) == "other values"
    assert held([*COLUMNS[:3], (3, 3, 3), COLUMNS[4]], 3) == "other values"
    parent = [PARENT.column(k) for k in range(9)]
    other = place((text(5),))
    assert held([other.column(k) for k in range(9)], 2, other) == "columns of the parent"
    assert held([*(other.column(k) for k in range(8)), (0, 0, 0)], 2, other) == "other values"
    assert held(parent, None) == "other values"
    assert held((), 0) == "other values"


@pytest.mark.parametrize(
    ("where", "message", "shape", "line"),
    [
        ("", "", "raises KeyError", "KeyError: "),
        ("a/b.py:3 f", "no\n more", "raises KeyError in f", "KeyError: no at a/b.py:3 f"),
        ("a b.py:3 g.h", "\n one\ntwo", "raises KeyError in g.h", "KeyError: one at a b.py:3 g.h"),
    ],
)
def test_what_was_raised_and_where(where: str, message: str, shape: str, line: str) -> None:
    raised = Raised("engine", "KeyError", message, where)
    assert raise_signature(raised.type, raised.where) == shape
    assert raised_line(raised) == line

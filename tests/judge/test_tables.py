"""Verdicts on a forward's tables: every field of what is reported, and what is not asked where nothing can be."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np
import pytest

from ropecheck.adapters import protocol
from ropecheck.conformance.judge.outcome import Difference, Failure, TableView, Unrun
from ropecheck.conformance.judge.tables import seen
from ropecheck.conformance.reference_engine import tensor
from ropecheck.conformance.scenario.operations import Retract, Submit
from ropecheck.conformance.scenario.words import (
    block,
    decode,
    draft,
    draft_extend,
    extend,
    ragged_verify,
    verify,
    window,
)
from ropecheck.spec.history import image, text
from ropecheck.spec.views import Seen
from tests.judge.support import Change, cell, fields, index, instead, judged, pairs, planned, result_of, table

PICTURE = (text(2), image(1, 4, 6))
"""8 tokens; text goes on at 5."""
TWO = (Submit(0, PICTURE), Submit(7, (text(3),)), extend((window(0), window(7))))
DECODED = planned(*TWO, decode((7, 0)))
AT = result_of(DECODED, 3)
RIGHT = TableView((3, 8), ((3, 5),) * 3, (7, 0))


def keys(one: object, change: Change, at: int = AT) -> list[tuple[str, str]]:
    return [(failure.rule, failure.signature) for failure in judged(one, {at: change}).failures]  # type: ignore[arg-type]


def test_a_wrong_column_is_told_in_full() -> None:
    (failure,) = judged(DECODED, {AT: table(cell(slice(None), 1, value=8))}).failures
    assert failure == Failure(
        rule="table.past_table",
        mode="decode",
        signature="delta missing",
        step=3,
        label="",
        message="column 1: (8, 8, 8), must be (5, 5, 5)",
        difference=Difference("t", 1, 0, 5, 8),
        expected=RIGHT,
        observed=TableView((3, 8), ((3, 8),) * 3),
    )
    (failure,) = judged(DECODED, {AT: table(cell(2, 0, value=9))}).failures
    assert failure.message == "column 0: (3, 3, 9), must be (3, 3, 3)"
    assert (failure.difference, failure.rule) == (Difference("w", 0, 7, 3, 9), "table.text_only")


def test_a_wrong_index_is_told_in_full() -> None:
    (failure,) = judged(DECODED, {AT: index(cell(1, value=9))}).failures
    assert failure == Failure(
        rule="table.index",
        mode="decode",
        signature="off by one",
        step=3,
        label="",
        message="1-D table, column 1: 9, must be 8",
        difference=Difference("1d", 1, 0, 8, 9),
        expected=RIGHT,
        observed=TableView((3, 9), ((3, 5),) * 3),
    )


@pytest.mark.parametrize(
    ("change", "found", "views"),
    [
        (fields(mrope=None), [("table.present", "table missing")], (RIGHT, TableView((3, 8), None))),
        (fields(positions=None), [("table.present", "table missing")], (None, None)),
        (
            table(lambda rows: rows[:, :1]),
            [("table.width", "too few columns")],
            (RIGHT, TableView((3, 8), ((3,),) * 3)),
        ),
        (
            table(lambda rows: rows[0]),
            [("table.three_rows", "wrong number of rows")],
            (RIGHT, TableView((3, 8), None)),
        ),
        (
            table(lambda rows: rows[:2]),
            [("table.three_rows", "wrong number of rows")],
            (RIGHT, TableView((3, 8), ((3, 5),) * 2)),
        ),
        (
            index(lambda row: np.append(row, 9)),
            [("table.width", "too many columns")],
            (RIGHT, TableView((3, 8, 9), ((3, 5),) * 3)),
        ),
        (index(lambda row: row[None]), [("table.width", "wrong shape")], (RIGHT, TableView((3, 8), ((3, 5),) * 3))),
        (
            table(lambda rows: rows.astype(np.int32)),
            [("table.dtype", "dtype int32")],
            (RIGHT, TableView((3, 8), ((3, 5),) * 3)),
        ),
        (table(lambda rows: rows.astype(np.float32)), [("table.dtype", "dtype float32")], (RIGHT, None)),
        (index(lambda row: row.astype(np.float32)), [("table.dtype", "dtype float32")], (RIGHT, None)),
    ],
)
def test_what_is_no_table_of_the_batch(
    change: Change, found: list[tuple[str, str]], views: tuple[TableView | None, TableView | None]
) -> None:
    failures = judged(DECODED, {AT: change}).failures
    assert [(one.rule, one.signature) for one in failures] == found
    assert (failures[0].expected, failures[0].observed) == views
    assert failures[0].label == "" and failures[0].mode == "decode" and failures[0].step == 3


def test_two_rules_on_one_table() -> None:
    wrong = table(lambda rows: rows[:, :1].astype(np.int32))
    assert keys(DECODED, wrong) == [("table.dtype", "dtype int32"), ("table.width", "too few columns")]


def test_where_it_is_too_narrow_the_first_column_that_lacks_is_told() -> None:
    (failure,) = judged(DECODED, {AT: table(lambda rows: rows[:, :1])}).failures
    assert failure.difference == Difference("t", 1, 0, 2, 1)
    (failure,) = judged(DECODED, {AT: table(lambda rows: rows[:, :0])}).failures
    assert failure.difference == Difference("t", 0, 7, 2, 0)
    (failure,) = judged(DECODED, {AT: index(lambda row: np.append(row, 9))}).failures
    assert failure.difference == Difference("1d", 2, -1, 2, 3)
    (failure,) = judged(DECODED, {AT: fields(mrope=None)}).failures
    assert failure.difference == Difference("rows", None, -1, None, "None")


def test_values_of_a_table_of_another_dtype_are_looked_at() -> None:
    wrong = table(lambda rows: (rows + 1).astype(np.int32))
    assert keys(DECODED, wrong) == [
        ("table.dtype", "dtype int32"),
        ("table.text_only", "off by one"),
        ("table.past_table", "off by one"),
    ]
    other = index(lambda row: (row + np.arange(2)).astype(np.int16))
    assert keys(DECODED, other) == [("table.dtype", "dtype int16"), ("table.index", "off by one")]


def test_a_table_whose_bytes_do_not_fit_could_not_be_read() -> None:
    unread = (Unrun("decode", "decode: a table's bytes do not fit its shape", 3),)
    for torn in (protocol.Tensor("int64", (3, 2), bytes(40)), protocol.Tensor("int64", (3, 2), bytes(41))):
        found = judged(DECODED, {AT: fields(mrope=torn)})
        assert (found.unrun, found.failures) == (unread, ())
    found = judged(DECODED, {AT: fields(positions=protocol.Tensor("int64", (2,), bytes(5)))})
    assert (found.unrun, found.failures) == (unread, ())
    assert judged(DECODED, {AT: fields(positions=protocol.Tensor("int32", (2,), bytes(5)))}).unrun == ()


def test_a_batch_that_was_changed() -> None:
    (failure,) = judged(DECODED, {AT: lambda right: msgspec.structs.replace(right, changed=("seq_lens",))}).failures
    assert failure == Failure(
        rule="ownership.batch_is_read_only",
        mode="decode",
        signature="changed seq_lens",
        step=3,
        label="",
        message="building the forward changed seq_lens",
        difference=Difference("batch", None, -1),
    )


def test_two_tables_of_one_label_cannot_be_judged() -> None:
    found = judged(DECODED, {AT: pairs(lambda all_: (*all_, all_[0]))})
    assert found.unrun == (Unrun("decode", "decode: two tables of one label", 3),) and not found.failures


TWICE = planned(*TWO, decode((7, 0)), repeat=True)
AGAIN = result_of(TWICE, 3)


def test_a_second_build_is_a_table_of_its_own_and_the_same() -> None:
    assert keys(TWICE, table(cell(0, 0, value=8), "again"), AGAIN) == [
        ("table.text_only", "row t wrong"),
        ("laws.same_step_twice", "second build differs"),
    ]
    labels = [one.label for one in judged(TWICE, {AGAIN: table(cell(0, 0, value=8), "again")}).failures]
    assert labels == ["again", "again"]
    both = judged(TWICE, {AGAIN: lambda right: table(cell(0, 0, value=8), "again")(table(cell(0, 0, value=8))(right))})
    assert [(one.rule, one.label) for one in both.failures] == [("table.text_only", ""), ("table.text_only", "again")]
    one = index(cell(0, value=4), "again")
    assert [rule for rule, _ in keys(TWICE, one, AGAIN)] == ["table.index", "laws.same_step_twice"]
    (first, second) = judged(TWICE, {AGAIN: one}).failures
    assert (first.observed, second.difference) == (TableView((4, 8), ((3, 5),) * 3), Difference("tables", None, -1))
    assert (second.expected, second.observed) == (None, None)


def test_a_label_that_is_not_answered() -> None:
    lost = pairs(lambda all_: all_[:1])
    (failure,) = judged(TWICE, {AGAIN: lost}).failures
    assert failure == Failure(
        rule="table.present",
        mode="decode",
        signature="table missing",
        step=3,
        label="again",
        message="no table 'again'; answered: ''",
    )
    none = judged(TWICE, {AGAIN: pairs(lambda all_: ())}).failures
    assert [(one.label, one.message) for one in none] == [
        ("", "no table ''; answered: none"),
        ("again", "no table 'again'; answered: none"),
    ]
    other = judged(TWICE, {AGAIN: pairs(lambda all_: (all_[0], protocol.TablePair("x", None, None)))}).failures
    assert other[0].message == "no table 'again'; answered: '', 'x'"


def test_a_build_that_nobody_asked_to_repeat_is_not_compared() -> None:
    more = pairs(lambda all_: (*all_, protocol.TablePair("again", None, None)))
    assert judged(DECODED, {AT: more}).state == "pass"


LOOP = planned(*TWO, draft((7, 0), 4))
DRAFTED = result_of(LOOP, 3)


def test_a_loop_runs_as_often_as_it_says_and_else_nothing_is_laid_beside_it() -> None:
    right = judged(LOOP, {})
    assert (
        right.state == "pass"
        and right.checked["table.forwards"] == 1
        and right.by_mode["table.present"]["draft_decode"] == 3
    )
    short = judged(LOOP, {DRAFTED: pairs(lambda all_: all_[:-1])})
    (failure,) = short.failures
    assert (failure.key, failure.message) == (
        ("table.forwards", "draft_decode", "too few forwards"),
        "2 forwards, must be 3",
    )
    assert "table.present" not in {rule for rule, modes in short.by_mode.items() if "draft_decode" in modes}
    longer = pairs(lambda all_: (*all_, msgspec.structs.replace(all_[-1], label="step 3")))
    assert keys(LOOP, longer, DRAFTED) == [("table.forwards", "too many forwards")]
    wrong = judged(LOOP, {DRAFTED: table(lambda rows: rows + 1, "step 2")})
    assert {(one.label, one.signature) for one in wrong.failures} == {("step 2", "off by one")}


def test_the_one_dimensional_kernel_is_asked_for_its_table_alone() -> None:
    kernel = planned(*TWO[:2], extend((window(0), window(7)), kernel=True))
    at = result_of(kernel, 2)
    right = judged(kernel, {})
    assert right.state == "pass" and right.checked["table.index"] == 4 and right.checked["table.three_rows"] == 1
    (failure,) = judged(kernel, {at: index(cell(3, value=9))}).failures
    assert (failure.rule, failure.message) == ("table.index", "1-D table, column 3: 9, must be 3")
    nothing = judged(kernel, {at: fields(mrope=tensor(np.zeros((2, 4))))})
    assert not nothing.failures and nothing.checked["table.three_rows"] == 1


PADDED = planned(*TWO, decode((7, 0), buffer="graph", buffer_rows=5))
WIDER = result_of(PADDED, 3)


@pytest.mark.parametrize(("axis", "at"), [("1d", 4), ("t", 2), ("w", 3)])
def test_padding_that_is_not_zero(axis: str, at: int) -> None:
    edit = index(cell(at, value=7), "padded") if axis == "1d" else table(cell("thw".index(axis), at, value=7), "padded")
    (failure,) = judged(PADDED, {WIDER: edit}).failures
    assert failure.key == ("padding.harmless_fill", "decode", "fill not zero")
    assert failure.message == f"column {at} is padding and holds 7, must be 0"
    assert failure.difference == Difference(axis, at, -1, 0, 7)
    assert failure.label == "padded"
    assert failure.expected is not None and failure.expected.requests == (7, 0, -1, -1, -1)
    assert failure.expected.positions == (3, 8, 0, 0, 0)


def test_live_columns_of_a_buffer() -> None:
    (failure,) = judged(PADDED, {WIDER: table(cell(1, 1, value=9), "padded")}).failures
    assert failure.key == ("padding.live_columns", "decode", "row h wrong")
    assert failure.difference == Difference("h", 1, 0, 5, 9)
    (failure,) = judged(PADDED, {WIDER: index(cell(1, value=9), "padded")}).failures
    assert failure.key == ("padding.live_columns", "decode", "off by one")
    narrow = table(lambda rows: rows[:, :4], "padded")
    assert keys(PADDED, narrow, WIDER) == [("padding.width", "too few columns")]
    plain = judged(PADDED, {WIDER: table(cell(1, 1, value=9))})
    assert [(one.rule, one.label) for one in plain.failures] == [("table.past_table", "")]


def test_a_buffer_of_another_runner_goes_by_its_own_name() -> None:
    frozen = planned(*TWO, draft((7, 0), 2, buffer="frozen_kv", buffer_rows=4))
    right = judged(frozen, {})
    assert right.modes == {"extend": 1, "draft_decode": 1, "frozen_kv": 1}
    (failure,) = judged(frozen, {result_of(frozen, 3): table(cell(0, 3, value=7), "padded")}).failures
    assert failure.key == ("padding.harmless_fill", "frozen_kv", "fill not zero")


def test_a_tier_is_padding_of_the_batch_itself() -> None:
    tier = planned(*TWO, ragged_verify((7, 0), ((0,), (0,)), 6))
    at = result_of(tier, 3)
    assert judged(tier, {}).checked["padding.tail"] == 1
    (failure,) = judged(tier, {at: table(cell(slice(None), 5, value=-3))}).failures
    assert failure.key == ("padding.tail", "ragged_verify", "fill not zero")
    assert (failure.label, failure.message) == ("", "column 5 is padding and holds -3, must be 0")
    assert keys(tier, table(cell(0, 1, value=99)), at) == [("table.text_only", "row t wrong")]


def matched(right: protocol.TablesAnswer) -> protocol.TablesAnswer:
    """As a worker on a device answers that compared there."""
    return msgspec.structs.replace(
        right, tables=tuple(protocol.TablePair(one.label, None, None, True) for one in right.tables)
    )


def test_what_a_device_compared_is_right() -> None:
    blocks = planned(Submit(0, (text(3),)), block((0,), (0,), 3))
    for one, at in ((DECODED, AT), (PADDED, WIDER), (blocks, result_of(blocks, 1))):
        told, alone = judged(one, {at: matched}), judged(one, {})
        assert (told.failures, told.checked) == ((), alone.checked)


CROSSING = planned(
    Submit(0, PICTURE), extend((window(0),)), decode((0,)), decode((0,)), Retract(0), extend((window(0, hit=5),))
)
ACROSS = result_of(CROSSING, 5)


def test_each_rule_names_the_columns_that_it_speaks_of() -> None:
    """A window of three columns of a picture and two of the reply."""

    def edit(rows: np.ndarray) -> None:
        rows[:, :3] = rows[[1, 0, 2], :3]
        rows[:, 3:] += 3

    assert keys(CROSSING, table(edit), ACROSS) == [
        ("table.inside_table", "rows swapped"),
        ("table.past_table", "delta missing"),
    ]
    inside, past = judged(CROSSING, {ACROSS: table(edit)}).failures
    assert (inside.difference and inside.difference.column, past.difference and past.difference.column) == (0, 3)
    assert past.message == "column 3: (8, 8, 8), must be (5, 5, 5)"


def test_what_ran_and_what_was_reached_is_counted() -> None:
    ran = judged(DECODED, {AT: lambda right: msgspec.structs.replace(right, ran=("kernel", "kernel", "other"))})
    assert ran.ran["decode"] == {"kernel": 2, "other": 1}
    assert ran.modes == {"extend": 1, "decode": 1}
    assert ran.situations["decode x media beside text"] == 1 == ran.situations["bound x media an item each"]


@pytest.mark.parametrize("verifies", [verify((0,), ((0, 0, 1),), 2), draft_extend((0,), 3)])
def test_modes_of_trees_are_judged_alike(verifies: object) -> None:
    one = planned(Submit(0, PICTURE), extend((window(0),)), verifies)  # type: ignore[arg-type]
    at = result_of(one, 2)
    assert judged(one, {}).state == "pass"
    assert keys(one, table(lambda rows: rows + 1), at) == [("table.past_table", "off by one")]


def test_an_answer_of_another_kind_could_not_be_read() -> None:
    found = judged(DECODED, {AT: instead(protocol.Done())})
    assert found.unrun == (Unrun("decode", "answered with Done", 3),)


BYTES: dict[str, Callable[[list[int]], bytes]] = {
    name: lambda values, name=name: np.array(values, np.dtype(name).newbyteorder("<")).tobytes()  # type: ignore[misc]
    for name in ("int64", "int32", "int16", "int8", "uint8")
}


@pytest.mark.parametrize("dtype", BYTES)
def test_a_tensor_is_read_row_by_row(dtype: str) -> None:
    data = BYTES[dtype]([1, 2, 3, 4, 5, 6])
    for shape, rows in (
        ((6,), ([1, 2, 3, 4, 5, 6],)),
        ((1, 6), ([1, 2, 3, 4, 5, 6],)),
        ((3, 2), ([1, 2], [3, 4], [5, 6])),
        ((2, 3), ([1, 2, 3], [4, 5, 6])),
        ((1, 2, 3), ()),
        ((), ()),
        ((5,), ()),
        ((2, 2), ()),
        ((4, 2), ()),
    ):
        assert seen(protocol.Tensor(dtype, shape, data)) == Seen(dtype=dtype, shape=shape, values=rows)
    if dtype.endswith("8"):
        return
    assert seen(protocol.Tensor(dtype, (6,), data + b"\0")) == Seen(dtype=dtype, shape=(6,), values=())


def test_a_tensor_of_no_whole_numbers_has_no_values() -> None:
    assert seen(None) is None
    assert seen(protocol.Tensor("float32", (1,), b"\0" * 4)) == Seen(dtype="float32", shape=(1,), values=())
    assert seen(protocol.Tensor("int64", (3, 0), b"")) == Seen(dtype="int64", shape=(3, 0), values=([], [], []))

"""What is said of a builder's answer: the words for a wrong column, shapes, fractions, refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ropecheck.adapters.protocol import Done, NotOfferedAnswer, PromptTables, Raised
from ropecheck.conformance.families.case import Case
from ropecheck.conformance.families.cases import chosen
from ropecheck.conformance.families.verdict import array, judge, told
from ropecheck.conformance.judge.outcome import Failure, Unrun
from ropecheck.conformance.reference_engine import tensor
from ropecheck.conformance.selftest.builder import right
from ropecheck.spec.rules import Violation

CASES = {case.name.partition(": ")[2]: case for case in chosen("qwen2_vl")}
ONE, BATCH = CASES["one image"], CASES["left-padded batch"]
"""Thirteen tokens, 4 .. 9 a picture, delta -3; the same, five tokens with a picture of one and four of text."""
TORN = next(case for case in CASES.values() if case.torn)
Edit = Callable[[np.ndarray], Any]


def answer(case: Case, table: Edit | None = None, delta: Edit | None = None) -> PromptTables:
    """The right answer, its table and delta edited in place or given anew."""
    given = right(case)
    assert isinstance(given, PromptTables)
    made = []
    for values, edit in ((given.table, table), (given.delta, delta)):
        copied = array(values).copy()
        other = None if edit is None else edit(copied)
        made.append(tensor(copied if other is None else other))
    return PromptTables(made[0], made[1], given.ahead, given.ran)


def cell(*at: int | slice, by: float) -> Edit:
    def edit(values: np.ndarray) -> np.ndarray:
        made = values.astype(np.float64) if by % 1 or np.isnan(by) else values
        made[at] += by
        return made

    return edit


def said(case: Case, **edits: Edit) -> list[tuple[str, str]]:
    return [(one.signature, one.message) for one in judge(case, answer(case, **edits)).failures]


@pytest.mark.parametrize(
    ("at", "by", "name"),
    [
        ((slice(None), 0, 12), 1, "text starts too late"),
        ((slice(None), 0, 12), -1, "text starts too early"),
        ((1, 0, 12), 1, "rows differ"),
        ((slice(None), 0, 11), float("nan"), "rows differ"),
        ((0, 0, 5), 1, "media time too large"),
        ((0, 0, 5), -1, "media time too small"),
        ((1, 0, 5), 1, "media in another order"),
        ((2, 0, 4), 1, "media in another order"),
        ((2, 0, 9), 1, "media in another order"),
        ((0, 0, 5), 0.5, "media between positions"),
        ((slice(None), 0, 12), 0.5, "text between positions"),
        ((0, 0, 5), float("nan"), "media at no number"),
    ],
)
def test_a_wrong_column_in_words(at: tuple[int | slice, ...], by: float, name: str) -> None:
    found = judge(ONE, answer(ONE, cell(*at, by=by))).failures
    named = [one for one in found if one.signature != "table is float64"]
    assert [one.signature for one in named] == [name]
    assert named[0].message.startswith(f"prompt 0, token {at[2]}: ")
    assert named[0].difference is not None and named[0].difference.request == 0


def test_a_failure_is_told_in_full() -> None:
    (failure,) = judge(ONE, answer(ONE, cell(0, 0, 5, by=1))).failures
    assert failure.expected is not None and failure.observed is not None
    assert failure.expected.rows is not None and failure.observed.rows is not None
    assert (failure.mode, failure.label, failure.step) == ("prompt_table.qwen2_vl", "rope_index", 0)
    assert failure.observed.rows[0][5] == failure.expected.rows[0][5] + 1
    assert (len(failure.expected.rows), len(failure.expected.rows[0]), failure.expected.axes) == (3, 13, ())
    assert (failure.difference and failure.difference.column) == 5


def test_only_what_stands_near_the_first_wrong_column_is_kept() -> None:
    large = CASES["a large picture"]
    for column in (0, 100):
        (failure,) = judge(large, answer(large, cell(slice(None), 0, column, by=1 if column else 7))).failures[:1]
        assert failure.expected is not None and failure.expected.rows is not None
        assert {len(row) for row in failure.expected.rows} == {column + 64}


def test_the_delta_is_told_beside_the_table() -> None:
    ((name, message),) = said(ONE, delta=cell(0, 0, by=2))
    assert message.startswith("prompt 0: ") and "-1" in message and name
    assert len(said(ONE, table=cell(0, 0, 5, by=1), delta=cell(0, 0, by=2))) == 2
    ((_, half),) = said(ONE, delta=cell(0, 0, by=0.5))[-1:]
    assert "-2.5" in half


@pytest.mark.parametrize("number", [0, 1, 2])
def test_each_prompt_of_a_batch_stands_at_the_right(number: int) -> None:
    assert said(BATCH) == []
    (failure,) = judge(BATCH, answer(BATCH, cell(slice(None), number, 12, by=1))).failures
    tokens = (13, 5, 4)[number]
    assert failure.message.startswith(f"prompt {number}, token {tokens - 1}: ")
    (delta,) = judge(BATCH, answer(BATCH, delta=cell(number, 0, by=1))).failures
    assert delta.message.startswith(f"prompt {number}: ")
    if tokens < 13:
        assert said(BATCH, table=cell(slice(None), number, 0, by=9)) == []  # padding


def test_tables_of_other_shapes() -> None:
    assert said(ONE, table=lambda table: table[:, 0]) == []  # one prompt needs no batch
    assert said(ONE, table=lambda table: table[:2])[0][0] == said(ONE, table=lambda table: table[:2, 0])[0][0]
    assert len(said(ONE, table=lambda table: table[:2])) == 1
    short = judge(BATCH, answer(BATCH, lambda table: table[:, :2])).failures
    assert [(one.signature, one.difference and one.difference.request) for one in short][-1] == (
        "prompts unanswered",
        2,
    )
    few = judge(BATCH, answer(BATCH, delta=lambda delta: delta[:2])).failures
    assert len(few) == 2 and few[1].message.startswith("prompt 2: ")
    narrow = judge(ONE, answer(ONE, lambda table: table[:, :, :-1])).failures
    assert len(narrow) == 1
    dtype = judge(ONE, answer(ONE, lambda table: table.astype(np.int32))).failures
    assert [one.signature for one in dtype] == ["table is int32"]


def test_what_is_no_answer() -> None:
    assert judge(ONE, NotOfferedAnswer("none")).not_offered == (("prompt_table.qwen2_vl", "none"),)
    ours = judge(ONE, Raised("adapter", "OSError", "no", "a.py:1 f"))
    assert ours.unrun == (Unrun("adapter", "OSError: no a.py:1 f"),)
    assert judge(ONE, Done()).unrun == (Unrun("decode", "a Done for a prompt table"),)
    (failure,) = judge(ONE, Raised("engine", "KeyError", "no", "a.py:1 f")).failures
    assert failure == Failure(
        rule=failure.rule,
        mode="prompt_table.qwen2_vl",
        signature="raises KeyError",
        step=0,
        label="rope_index",
        message="KeyError: no",
        where="a.py:1 f",
    )


def test_a_torn_prompt_must_be_refused() -> None:
    refused = judge(TORN, right(TORN))
    assert not refused.failures and refused.situations == {f"prompt_table.qwen2_vl x {TORN.torn}": 1}
    for table in (np.zeros((3, 1, 7), np.int64), np.zeros((3, 7), np.int64)):
        taken = judge(TORN, PromptTables(tensor(table), tensor(np.zeros((1, 1), np.int64))))
        (failure,) = taken.failures
        assert failure.message.startswith("the builder returns ") and "7" in failure.message


def test_what_is_counted() -> None:
    done = judge(ONE, answer(ONE))
    assert (done.modes, done.name, done.scenario) == ({"prompt_table.qwen2_vl": 1}, ONE.name, ONE.id)
    assert done.situations["prompt_table.qwen2_vl x rope_index"] == 1 and set(done.situations.values()) == {1}
    assert done.checked["families.dtype_and_shape"] == 2
    assert judge(BATCH, answer(BATCH)).checked["families.table"] == 3


def test_the_first_wrong_column_and_the_first_wrong_delta_are_told() -> None:
    def broken(axis: str, at: int | None) -> tuple[Any, Violation]:
        return None, Violation(axis=axis, at=at)

    late, early, width = broken("t", 7), broken("h", 3), broken("width", None)
    one, two = broken("delta", None), broken("delta", 1)
    assert told([late, early, one, two]) == [early, one]
    assert told([late, width]) == [width] and told([one]) == [one] and told([]) == []

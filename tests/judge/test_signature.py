"""The words for a wrong table: one fault, one name, and the most specific of those that explain it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ropecheck.conformance.judge.signature import column_signature, index_signature
from ropecheck.conformance.plan.planner import TableCheck, plan
from ropecheck.conformance.scenario.forward import ExpectedTables
from ropecheck.conformance.scenario.operations import Scenario, Submit
from ropecheck.conformance.scenario.words import decode, extend, window
from ropecheck.conformance.scenarios.chosen import chosen
from ropecheck.reference.timeline import IntArray
from ropecheck.spec.history import image, text


@pytest.mark.parametrize(
    ("observed", "name"),
    [
        ([4, 5, 6], "off by one"),
        ([2, 3, 4], "off by one"),
        ([13, 14, 15], "shifted by a constant"),
        ([0, 0, 0], "all zero"),
        ([4, 4, 4], "one column repeated"),
        ([5, 3, 4], "wrong order"),
        ([3, 4, 9], "other values"),
    ],
)
def test_indices(observed: list[int], name: str) -> None:
    assert index_signature(np.array([3, 4, 5]), np.array(observed)) == name


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


def tables_of_a_picture(mode: str) -> ExpectedTables:
    """Of a prompt whose last token is a picture's: two of text, then 2 x 3; t h w end at 2, 3, 4, and 5 is free."""
    ops = (Submit(0, (text(2), image(1, 4, 6))), extend((window(0),)), decode((0,)))
    checks = [
        check.expected
        for check in plan(Scenario(name="", family="qwen2_vl", ops=ops)).checks
        if isinstance(check, TableCheck)
    ]
    return next(one for one in checks if one.mode.name == mode)


def said(expected: ExpectedTables, wrong: Callable[[IntArray], IntArray]) -> str:
    """The words for a span whose columns are wrong so."""
    table = expected.tables[""]
    span = table.spans[0]
    columns = np.arange(span.start, span.stop)
    want = np.array(table.rows)[:, columns]
    return column_signature(expected, span, columns, np.array(table.positions)[columns], want, wrong(want), [-3])


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
    ],
)
def test_columns_inside_the_prompt(wrong: Callable[[IntArray], IntArray], name: str) -> None:
    assert said(tables_of_a_picture("extend"), wrong) == name


@pytest.mark.parametrize(
    ("shift", "name"), [(-2, "continues from one row"), (-1, "continues from one row"), (7, "shifted by a constant")]
)
def test_columns_that_go_on_behind_one_row(shift: int, name: str) -> None:
    assert said(tables_of_a_picture("decode"), lambda want: want + shift) == name

"""A failure as lines that fit a screen."""

from __future__ import annotations

from ropecheck.conformance.judge.failure_text import LONGEST, failure_lines, shorter
from ropecheck.conformance.judge.outcome import Difference, Failure, TableView

FAILURE = Failure(
    rule="table.width",
    mode="draft_extend_v2",
    signature="too few columns",
    step=2,
    label="step 1",
    message="1 columns for 2 tokens\n(three-row table)",
    difference=Difference(axis="t", column=1, request=0, expected="9", observed="none"),
    expected=TableView(positions=(11, 12), rows=((8, 9),) * 3),
    observed=TableView(positions=(11, 12), rows=((7,),) * 3),
    where="sglang/a.py:3 f",
)


def test_a_message_is_one_line_and_no_longer_than_it_may_be() -> None:
    assert shorter(" a\n  b ") == "a b"
    assert shorter("x" * LONGEST) == "x" * LONGEST
    cut = shorter("x" * (LONGEST + 1))
    assert len(cut) == LONGEST and cut.endswith("...")


def test_head_difference_tables_and_place_stand_in_this_order() -> None:
    lines = [line.plain for line in failure_lines(FAILURE)]
    assert lines[:3] == [
        "table.width  draft_extend_v2 (step 1): too few columns",
        "  1 columns for 2 tokens (three-row table)",
        "  first difference: t column 1 of request 0: expected 9, got none",
    ]
    assert lines[-1] == "  at sglang/a.py:3 f"
    (wrong,) = [line.split() for line in lines if line.split()[:1] == ["t"]]
    assert wrong == ["t", "8", "9", "|", "*7", "*none"]


def test_what_is_not_known_has_no_line() -> None:
    bare = Failure(rule="r", mode="m", signature="s", step=0, label="", message="says")
    assert [line.plain for line in failure_lines(bare)] == ["r  m: s", "  says"]

"""The rules of the two tables, asked of right views and of wrong ones: what each finds, where, in which words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ropecheck.spec.column_rules import GRAPHS
from ropecheck.spec.history import Delta
from ropecheck.spec.rules import Violation, all_rules
from ropecheck.spec.views import Built, Filler, Loop, Place, Row, Seen, Tables, Twice
from tests.spec.support import broken, said

PICTURE = Place(
    rows=((0, 1, 1, 1, 1, 3), (0, 1, 1, 2, 2, 3), (0, 1, 2, 1, 2, 3)), tabulated=6, delta=Delta(-2), has_media=True
)
"""Text, a picture of 2 x 2 tokens, text."""
WORDS = Place(rows=((0, 1, 2),) * 3, tabulated=3, delta=Delta(0), has_media=False)


def tensor(*shape: int, dtype: str = "int64") -> Seen:
    return Seen(dtype=dtype, shape=shape, values=())


TWO = Tables(mode="decode", tokens=4, positions=tensor(4), rows=tensor(3, 4))


@pytest.mark.parametrize(
    "right",
    [
        TWO,
        replace(TWO, buffer="graph"),
        replace(TWO, rows=tensor(4, 4), axes=4),
        replace(TWO, rows=None, one_dimensional=True),
        replace(TWO, positions=tensor(4, dtype="int32"), index_dtype="int32"),
        Tables(mode="idle", tokens=0, positions=tensor(0), rows=tensor(3, 0)),
    ],
)
def test_right_tables(right: Tables) -> None:
    assert not broken(right)
    assert ("table.width" in said(right)) == (right.buffer == "") == ("padding.width" not in said(right))


@pytest.mark.parametrize(
    ("wrong", "found"),
    [
        (
            replace(TWO, positions=None),
            {
                "table.present": Violation(
                    axis="1d", observed="None", shape="table missing", message="the 1-D table is unset"
                )
            },
        ),
        (
            replace(TWO, rows=None),
            {
                "table.present": Violation(
                    axis="rows", observed="None", shape="table missing", message="the three-row table is unset"
                )
            },
        ),
        (
            replace(TWO, positions=tensor(4, dtype="int32")),
            {
                "table.dtype": Violation(
                    axis="1d",
                    expected="int64",
                    observed="int32",
                    shape="dtype int32",
                    message="dtype int32, must be int64",
                )
            },
        ),
        (
            replace(TWO, rows=tensor(3, 4, dtype="float32"), index_dtype="int64"),
            {
                "table.dtype": Violation(
                    axis="rows",
                    expected="int64",
                    observed="float32",
                    shape="dtype float32",
                    message="dtype float32, must be int64",
                )
            },
        ),
        (
            replace(TWO, rows=tensor(1, 4)),
            {
                "table.three_rows": Violation(
                    axis="rows",
                    expected=3,
                    observed="[1, 4]",
                    shape="wrong number of rows",
                    message="shape [1, 4], not [3, T]",
                )
            },
        ),
        (
            replace(TWO, rows=tensor(4)),
            {
                "table.three_rows": Violation(
                    axis="rows",
                    expected=3,
                    observed="[4]",
                    shape="wrong number of rows",
                    message="shape [4], not [3, T]",
                )
            },
        ),
        (
            replace(TWO, rows=tensor(3, 3)),
            {
                "table.width": Violation(
                    axis="t",
                    at=3,
                    expected=4,
                    observed=3,
                    shape="too few columns",
                    message="3 columns for 4 tokens (three-row table)",
                )
            },
        ),
        (
            replace(TWO, positions=tensor(6), buffer="graph"),
            {
                "padding.width": Violation(
                    axis="1d",
                    at=4,
                    expected=4,
                    observed=6,
                    shape="too many columns",
                    message="6 columns for 4 tokens (1-D table)",
                )
            },
        ),
        (
            replace(TWO, positions=tensor(0), buffer="tier"),
            {
                "table.width": Violation(
                    axis="1d",
                    at=0,
                    expected=4,
                    observed=0,
                    shape="no columns",
                    message="0 columns for 4 tokens (1-D table)",
                )
            },
        ),
        (
            replace(TWO, positions=tensor()),
            {
                "table.width": Violation(
                    axis="1d",
                    at=0,
                    expected=4,
                    observed=0,
                    shape="no columns",
                    message="0 columns for 4 tokens (1-D table)",
                )
            },
        ),
        (
            replace(TWO, positions=tensor(1, 4)),
            {
                "table.width": Violation(
                    axis="1d",
                    at=4,
                    expected=4,
                    observed=4,
                    shape="wrong shape",
                    message="4 columns for 4 tokens (1-D table)",
                )
            },
        ),
        (
            Tables(mode="idle", tokens=0, positions=tensor(1, 0), rows=tensor(3, 0)),
            {
                "table.width": Violation(
                    axis="1d",
                    at=0,
                    expected=0,
                    observed=0,
                    shape="wrong shape",
                    message="0 columns for 0 tokens (1-D table)",
                )
            },
        ),
    ],
)
def test_wrong_tables(wrong: Tables, found: dict[str, Violation]) -> None:
    assert broken(wrong) == found


def test_of_no_table_at_all_one_rule_speaks() -> None:
    assert set(said(Tables(mode="decode", tokens=4, positions=None, rows=None))) == {"table.present"}


MIXED = Row(mode="extend", place=PICTURE, tokens=(4, 5, 6, 7), positions=(4, 5, 6, 7), columns=None)
RIGHT = replace(MIXED, columns=((1, 3, 4, 5), (2, 3, 4, 5), (2, 3, 4, 5)))
"""The picture's last token, the text behind it, and two that were generated."""
TEXT = Row(mode="decode", place=WORDS, tokens=(2, 3), positions=(2, 3), columns=((2, 3), (2, 3), (2, 3)))


def test_which_rules_speak_of_a_row() -> None:
    assert [RIGHT.inside, RIGHT.past] == [(0, 1), (2, 3)]
    assert said(RIGHT) == dict.fromkeys(("table.index", "table.inside_table", "table.past_table"))
    assert said(replace(RIGHT, given=True)) == dict.fromkeys(("table.inside_table", "table.past_table"))
    assert said(replace(RIGHT, buffer="graph")) == {"padding.live_columns": None}
    assert said(replace(RIGHT, buffer="tier")) == said(RIGHT)
    assert said(MIXED) == {"table.index": None}
    assert said(TEXT) == dict.fromkeys(("table.index", "table.text_only"))
    assert said(replace(TEXT, buffer="dp")) == {"padding.live_columns": None}


@pytest.mark.parametrize(
    ("wrong", "found"),
    [
        (
            replace(RIGHT, positions=(4, 5, 6, 8)),
            {"table.index": Violation(axis="1d", at=3, expected=7, observed=8)},
        ),
        (
            replace(RIGHT, columns=((1, 3, 4, 5), (2, 9, 4, 5), (2, 9, 4, 5))),
            {"table.inside_table": Violation(axis="h", at=1, expected=3, observed=9)},
        ),
        (
            replace(RIGHT, columns=((0, 3, 4, 5), (2, 3, 4, 6), (9, 3, 4, 5))),
            {
                "table.inside_table": Violation(axis="t", at=0, expected=1, observed=0),
                "table.past_table": Violation(axis="h", at=3, expected=5, observed=6),
            },
        ),
        (
            replace(RIGHT, columns=((1, 3, 4, 5), (2, 3, 4, 5), (2, 3, 6, 7))),
            {"table.past_table": Violation(axis="w", at=2, expected=4, observed=6)},
        ),
        (
            replace(TEXT, columns=((2, 9), (9, 3), (9, 3))),
            {"table.text_only": Violation(axis="h", at=0, expected=2, observed=9)},
        ),
        (
            replace(TEXT, positions=(3, 2), buffer="graph", columns=((2, 3), (2, 3), (3, 3))),
            {"padding.live_columns": Violation(axis="1d", at=0, expected=2, observed=3)},
        ),
        (
            replace(RIGHT, buffer="dp", columns=((1, 3, 4, 5), (2, 3, 4, 0), (2, 3, 0, 0))),
            {"padding.live_columns": Violation(axis="w", at=2, expected=4, observed=0)},
        ),
    ],
)
def test_wrong_rows(wrong: Row, found: dict[str, Violation]) -> None:
    """The first column decides, and of its axes the first."""
    assert broken(wrong) == found


@pytest.mark.parametrize(("buffer", "id"), [("graph", "padding.harmless_fill"), ("tier", "padding.tail")])
def test_a_fill_is_zero(buffer: str, id: str) -> None:
    clean = Filler(mode="decode", buffer=buffer, positions=(0, 0), columns=((0, 0),) * 3)
    assert said(clean) == {id: None}
    assert said(replace(clean, positions=(), columns=((),) * 3)) == {}
    stale = replace(clean, columns=((0, 0), (0, -2), (7, 0)))
    assert broken(stale) == {id: Violation(axis="h", at=1, expected=0, observed=-2)}
    assert broken(replace(clean, positions=(5, 6))) == {id: Violation(axis="1d", at=0, expected=0, observed=5)}
    assert all_rules()["padding.harmless_fill"].source == GRAPHS


@pytest.mark.parametrize(("ran", "words"), [(3, "too many forwards"), (1, "too few forwards")])
def test_a_loop_runs_as_often_as_it_is_declared(ran: int, words: str) -> None:
    assert not broken(Loop(mode="draft_decode", must=2, ran=2))
    assert broken(Loop(mode="draft_decode", must=2, ran=ran)) == {
        "table.forwards": Violation(
            axis="forwards", expected=2, observed=ran, shape=words, message=f"{ran} forwards, must be 2"
        )
    }


def test_a_batch_is_read_only_and_builds_the_same_twice() -> None:
    assert not broken(Built(mode="decode", changed=())) and not broken(Twice(mode="decode", first=1, second=1))
    assert broken(Built(mode="decode", changed=("seq_lens", "reqs"))) == {
        "ownership.batch_is_read_only": Violation(
            axis="batch",
            shape="changed seq_lens, reqs",
            message="building the forward changed seq_lens, reqs",
        )
    }
    assert broken(Twice(mode="decode", first=1, second=2)) == {
        "laws.same_step_twice": Violation(
            axis="tables",
            shape="second build differs",
            message="the same batch built twice gave two different tables",
        )
    }


def test_a_place_goes_on_by_delta() -> None:
    assert [PICTURE.column(at) for at in (4, 5, 6, 7)] == [(1, 2, 2), (3, 3, 3), (4, 4, 4), (5, 5, 5)]
    assert PICTURE.columns((4, 6, 5)) == ([1, 4, 3], [2, 4, 3], [2, 4, 3])

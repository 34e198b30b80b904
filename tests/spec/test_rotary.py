"""The rules of the rotation, on heads of two pairs: which rows turn them, what is named, and where."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import replace

import pytest

from ropecheck.spec.rotary import (
    Heads,
    Layout,
    OfView,
    Reach,
    Rotation,
    RowMoved,
    Scaling,
    TableAfter,
    TokenHeads,
    axes,
    contiguous_axis,
    cycled_axes,
    frequency,
    interleaved_axis,
)
from tests.spec.support import broken, said, wrong

LAYOUT = Layout(10, 8, (2, 1, 1), "contiguous", 16.0)
"""Four pairs, of angles 1, 1/2, 1/4 and 1/8 at position 1, and two dimensions behind them."""
TABLE = ((1, 2), (3, 4), (5, 8))
"""Two tokens."""
COUNT = {"query": 2, "key": 1}
"""Heads."""


def part(name: str, values: Sequence[Sequence[Sequence[float]]]) -> TokenHeads:
    """values: token by token, head by head."""
    dims = tuple(array("d", [head[dim] for token in values for head in token]) for dim in range(10))
    return TokenHeads(name=name, shape=(len(values), 10 * len(values[0])), dims=dims)


def given(name: str) -> TokenHeads:
    return part(name, [[[1.0] * 4 + [2.0] * 4 + [5.0, 6.0]] * COUNT[name]] * 2)


def turned(
    name: str,
    rows: Sequence[int] = (0, 0, 1, 2),
    sign: int = 1,
    stretch: float = 1.0,
    table: Sequence[Sequence[int]] = TABLE,
) -> TokenHeads:
    """`given`, pair i turned by row rows[i]."""
    tokens = []
    for at in range(2):
        angles = [sign * table[row][at] / 2.0**pair for pair, row in enumerate(rows)]
        first = [stretch * (math.cos(angle) - 2 * math.sin(angle)) for angle in angles]
        second = [stretch * (2 * math.cos(angle) + math.sin(angle)) for angle in angles]
        tokens.append([[*first, *second, 5.0, 6.0]] * COUNT[name])
    return part(name, tokens)


GIVEN: Heads = (given("query"), given("key"))
RIGHT = Rotation(layout=LAYOUT, table=TABLE, given=GIVEN, seen=(turned("query"), turned("key")), tolerance=1e-9)


def with_value(heads: TokenHeads, dim: int, at: int, value: float) -> TokenHeads:
    dims = list(heads.dims)
    dims[dim] = array("d", dims[dim])
    dims[dim][at] = value
    return replace(heads, dims=tuple(dims))


def test_a_right_rotation() -> None:
    assert said(RIGHT) == dict.fromkeys(("rotary.rotation", "rotary.contiguous_sections"))
    assert not (RIGHT.wrong or RIGHT.rest or RIGHT.by_rows or RIGHT.other_rows)
    equal = replace(RIGHT, table=(TABLE[0],) * 3)
    assert "rotary.contiguous_sections" not in said(equal)  # no section can be told apart
    scaled = replace(RIGHT, layout=replace(LAYOUT, scaling=Scaling(0.5, 2)))
    assert {"rotary.scaling"} < set(said(scaled)) and "rotary.rotation" not in said(scaled)


def test_of_one_token_each_head_is_looked_at() -> None:
    first: Heads = tuple(
        replace(one, shape=(1, 10 * COUNT[one.name]), dims=tuple(dim[: COUNT[one.name]] for dim in one.dims))
        for one in RIGHT.seen or ()
    )
    given_first: Heads = tuple(
        replace(one, shape=(1, 10 * COUNT[one.name]), dims=tuple(dim[: COUNT[one.name]] for dim in one.dims))
        for one in GIVEN
    )
    one = replace(RIGHT, table=((1,), (3,), (5,)), given=given_first, seen=first)
    assert not broken(one)
    wrong_head = replace(one, seen=(with_value(first[0], 0, 1, 77.0), first[1]))
    assert broken(wrong_head)["rotary.rotation"].message.startswith("query, token 0, head 1, dimension 0: 77")
    nobody = replace(
        one,
        table=((), (), ()),
        given=tuple(replace(part, dims=tuple(dim[:0] for dim in part.dims)) for part in first),
        seen=tuple(replace(part, dims=tuple(dim[:0] for dim in part.dims)) for part in first),
    )
    assert not broken(nobody)


@pytest.mark.parametrize(
    ("arrangement", "rule"),
    [
        ("contiguous", "contiguous_sections"),
        ("interleaved", "interleaved_sections"),
        ("cycled", "interleaved_sections"),
        ("alternating", "alternating_sections"),
    ],
)
def test_each_arrangement_has_its_rule(arrangement: str, rule: str) -> None:
    layout = replace(LAYOUT, arrangement=arrangement)
    seen = tuple(turned(name, layout.axes) for name in COUNT)
    assert said(replace(RIGHT, layout=layout, seen=seen)) == dict.fromkeys(("rotary.rotation", f"rotary.{rule}"))


@pytest.mark.parametrize(
    ("rows", "shape"),
    [
        ((0, 1, 2, 0), "sections interleaved"),  # interleaved (2, 1, 1): t h w t
        ((0, 0, 0, 2), "h pairs turned by t"),
        ((0, 0, 1, 1), "w pairs turned by h"),
        ((0, 0, 2, 1), "pairs turned by other rows"),
        ((1, 2, 1, 2), "pairs turned by other rows"),
    ],
)
def test_pairs_turned_by_other_rows(rows: tuple[int, ...], shape: str) -> None:
    seen = tuple(turned(name, rows) for name in COUNT)
    view = replace(RIGHT, seen=seen)
    found = broken(view)
    assert {id: one.shape for id, one in found.items()} == {"rotary.contiguous_sections": shape}
    assert view.by_rows and not view.rest
    assert view.wrong == tuple(pair for pair, row in enumerate(rows) if row != (0, 0, 1, 2)[pair])


def test_contiguous_sections_where_they_are_interleaved() -> None:
    layout = replace(LAYOUT, arrangement="interleaved")
    found = broken(replace(RIGHT, layout=layout))  # turned by t t h w in place of t h w t
    assert {id: one.shape for id, one in found.items()} == {"rotary.interleaved_sections": "sections contiguous"}


KEY = RIGHT.seen[1] if RIGHT.seen else given("key")


@pytest.mark.parametrize(
    ("seen", "shape"),
    [
        (GIVEN, "not turned"),
        (tuple(turned(name, sign=-1) for name in COUNT), "turned backwards"),
        (tuple(turned(name, table=((7, 7),) * 3) for name in COUNT), "another angle"),
        (tuple(turned(name, stretch=1.5) for name in COUNT), "other values"),
        ((turned("query"), with_value(KEY, 3, 1, math.nan)), "not finite"),
        ((turned("query"), with_value(KEY, 3, 1, math.inf)), "not finite"),
        ((turned("query"), with_value(KEY, 8, 0, 5.5)), "rest of the head changed"),
        ((turned("query"), with_value(KEY, 9, 1, 0.0)), "rest of the head changed"),
        ((turned("query", stretch=1.5), turned("key")), "other values"),
        ((turned("query"), turned("key", stretch=1.5)), "other values"),
    ],
)
def test_angles_that_no_row_explains(seen: Heads, shape: str) -> None:
    assert {id: one.shape for id, one in broken(replace(RIGHT, seen=seen)).items()} == {"rotary.rotation": shape}


@pytest.mark.parametrize(
    ("name", "dim", "at", "place"),
    [
        ("query", 1, 0, "query, token 0, head 0, dimension 1"),
        ("query", 6, 3, "query, token 1, head 1, dimension 6"),
        ("key", 0, 1, "key, token 1, head 0, dimension 0"),
        ("key", 9, 1, "key, token 1, head 0, dimension 9"),
    ],
)
def test_the_first_wrong_value_is_shown(name: str, dim: int, at: int, place: str) -> None:
    seen = tuple(with_value(one, dim, at, 77.0) if one.name == name else one for one in RIGHT.seen or ())
    found = broken(replace(RIGHT, seen=seen))["rotary.rotation"]
    right = next(one for one in RIGHT.seen or () if one.name == name).dims[dim][at]
    assert found.message == f"{place}: 77, must be {right:.6g}"
    assert (found.axis, found.observed, found.expected) == (f"{name}, dimension {dim},", "77", f"{right:.6g}")
    assert found.at == at // COUNT[name]


def test_of_several_wrong_values_the_query_and_the_first_token_come_first() -> None:
    query = with_value(with_value(turned("query"), 2, 3, 77.0), 5, 1, 78.0)
    found = broken(replace(RIGHT, seen=(query, with_value(KEY, 0, 0, 79.0))))["rotary.rotation"]
    assert found.message.startswith("query, token 0, head 1, dimension 5: 78, must be ")


def test_what_is_within_the_tolerance_is_right() -> None:
    value = KEY.dims[2][1]
    for off, right in ((0.09, True), (-0.09, True), (0.11, False), (-0.11, False)):
        seen = (turned("query"), with_value(KEY, 2, 1, value + off))
        assert bool(broken(replace(RIGHT, seen=seen, tolerance=0.1))) != right


@pytest.mark.parametrize(
    ("seen", "found"),
    [
        (None, wrong("heads", message="no heads were answered")),
        (
            (turned("query"), replace(KEY, dtype="float16")),
            wrong("key", shape="dtype float16", message="key is float16[2, 10], must be float32[2, 10]"),
        ),
        (
            (replace(KEY, name="query", shape=(2, 9)), KEY),
            wrong("query", shape="wrong shape", message="query is float32[2, 9], must be float32[2, 20]"),
        ),
    ],
)
def test_heads_that_cannot_be_laid_beside(seen: Heads | None, found: object) -> None:
    assert broken(replace(RIGHT, seen=seen)) == {"rotary.rotation": found}


# ---------------------------------------------------------------- a table's reach, its rows one by one, its views

REACH = Reach(position=8, prepared=9, error="", rotation=RIGHT)


def test_a_position_that_is_prepared_is_read() -> None:
    assert said(REACH) == {"rotary.readers_bound": None}
    message = "raised for positions that are prepared"
    assert broken(replace(REACH, error="ValueError")) == {"rotary.readers_bound": wrong("heads", message=message)}
    clamped = replace(RIGHT, seen=tuple(turned(name, table=((1, 2), (3, 4), (5, 5))) for name in COUNT))
    found = broken(replace(REACH, rotation=clamped))["rotary.readers_bound"]
    assert found.shape == "reads another position" and found.at == 1 and found.axis == "query, dimension 3,"
    missing = broken(replace(REACH, rotation=replace(RIGHT, seen=None)))["rotary.readers_bound"]
    assert missing.message == "no heads were answered"


@pytest.mark.parametrize("error", ["IndexError", "RuntimeError", "AcceleratorError"])
def test_a_position_past_the_end_is_refused_and_not_looked_up(error: str) -> None:
    past = replace(REACH, position=9)
    assert not broken(past)  # it has grown
    assert not broken(replace(past, error="ValueError"))  # it was refused
    assert broken(replace(past, error=error)) == {
        "rotary.readers_bound": wrong("heads", shape="looks past its end", message="position 9 of 9 prepared")
    }


def moved(row: int, rows: tuple[int, ...] = (0, 0, 1, 2)) -> RowMoved:
    """Row `row` moved by 3, and read as `rows` say."""
    table = [list(one) for one in TABLE]
    table[row] = [position + 3 for position in table[row]]
    before, after = (tuple(turned(name, rows, table=one) for name in COUNT) for one in (TABLE, table))
    return RowMoved(layout=LAYOUT, row=row, before=before, after=after)


@pytest.mark.parametrize("row", range(3))
def test_a_row_turns_its_own_pairs(row: int) -> None:
    assert said(moved(row)) == {"rotary.every_row_counts": None}


@pytest.mark.parametrize(
    ("view", "row", "what", "right", "seen"),
    [
        (moved(1, (0, 0, 0, 2)), "h", "changes nothing", "pairs 2..2", "no pair"),
        (moved(0, (0, 1, 1, 2)), "t", "changes too few pairs", "pairs 0..1", "pairs 0..0"),
        (moved(1, (1, 0, 1, 2)), "h", "changes what is not its own", "pairs 2..2", "2 pairs from 0 to 2"),
        (moved(2, (0, 0, 2, 2)), "w", "changes what is not its own", "pairs 3..3", "pairs 2..3"),
    ],
)
def test_a_row_that_turns_others(view: RowMoved, row: str, what: str, right: str, seen: str) -> None:
    message = f"query: row {row} moved alone changes {seen}, must change {right}"
    assert broken(view) == {"rotary.every_row_counts": wrong(row, right, seen, f"row {row} {what}", message)}


def test_a_row_leaves_the_rest_of_a_head() -> None:
    right = moved(2)
    assert right.after is not None
    odd = broken(replace(right, after=(right.after[0], with_value(right.after[1], 8, 0, 0.0))))
    found = odd["rotary.every_row_counts"]
    assert found.shape == "row w changes what is not its own"
    assert found.message == "key: row w moved alone changes pairs 3..3 and the rest of the head, must change pairs 3..3"
    assert broken(replace(right, after=None))["rotary.every_row_counts"].message == "no heads were answered"
    cut = (replace(right.after[0], shape=(1, 20)), right.after[1])
    assert broken(replace(right, after=cut))["rotary.every_row_counts"].shape == "wrong shape"


def test_a_view_is_a_copy_to_the_last_bit() -> None:
    copy = RIGHT.seen or ()
    assert said(OfView(layout=LAYOUT, copy=copy, view=copy)) == {"rotary.view_is_a_copy": None}
    for dim in (0, 7, 9):
        value = copy[1].dims[dim][1]
        view = (copy[0], with_value(copy[1], dim, 1, value + 2**-30))
        found = broken(OfView(layout=LAYOUT, copy=copy, view=view))["rotary.view_is_a_copy"]
        assert (found.shape, found.axis, found.at) == ("a view differs from a copy", f"key, dimension {dim},", 1)
    gone = broken(OfView(layout=LAYOUT, copy=copy, view=None))["rotary.view_is_a_copy"]
    assert gone.message == "no heads were answered"


def test_a_table_is_read_only() -> None:
    assert said(TableAfter(changed=False)) == {"rotary.table_is_read_only": None}
    message = "turning heads wrote into the table"
    assert broken(TableAfter(changed=True)) == {
        "rotary.table_is_read_only": wrong("table", shape="table changed", message=message)
    }


# ---------------------------------------------------------------- which row, which angle


def test_which_row_turns_a_pair() -> None:
    assert [contiguous_axis(pair, (2, 1, 3)) for pair in range(6)] == [0, 0, 1, 2, 2, 2]
    assert [interleaved_axis(pair, (4, 2, 1)) for pair in range(7)] == [0, 1, 2, 0, 1, 0, 0]
    assert [interleaved_axis(pair, (3, 1, 2)) for pair in range(6)] == [0, 1, 2, 0, 0, 2]
    assert axes(6, (2, 2, 2), "alternating") == [1, 2, 1, 2, 0, 0]
    assert axes(6, (1, 1, 4), "cycled") == cycled_axes(6, (1, 1, 4)) == [0, 1, 2, 2, 2, 2]
    assert axes(3, (3, 0, 0), "contiguous") == [0, 0, 0] and LAYOUT.axes == [0, 0, 1, 2] and LAYOUT.pairs == 4


def test_angles_by_their_definition() -> None:
    assert [frequency(pair, 4, 16.0) for pair in range(4)] == [1.0, 0.5, 0.25, 0.125]
    # 64 positions of training; of base 16 a pair i of 4 turns 64 / (2 pi 2^i) times: 10.2, 5.1, 2.5, 1.3
    scaled = Scaling(4.0, 64, fast=5.0, slow=2.0)  # pairs 1.03 and 2.35: the ramp goes from 1 to 3
    assert [frequency(pair, 4, 16.0, scaled) for pair in range(4)] == pytest.approx(
        [1.0, 0.5, 0.25 * (0.5 + 0.5 / 4), 0.125 / 4]
    )
    # never outside of the pairs: from -0.97 the ramp begins at 0
    early = Scaling(4.0, 64, fast=20.0, slow=5.0)  # to 2
    assert [frequency(pair, 4, 16.0, early) for pair in range(4)] == pytest.approx(
        [1.0, 0.5 * (0.5 + 0.5 / 4), 0.25 / 4, 0.125 / 4]
    )
    late = Scaling(4.0, 64, fast=5.0, slow=0.01)  # to 9.99, and at most 7
    assert frequency(3, 4, 16.0, late) == pytest.approx(0.125 * (1 - 2 / 6) + 0.125 / 4 * 2 / 6)

"""Media inputs and the columns that forwards make of them, and what the known bugs make of both: by hand."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pytest

from ropecheck.conformance.known.inputs import (
    ASIDE,
    ENDED,
    NOTHING,
    WINDOWS,
    Inputs,
    Unmade,
    brought,
    may_be_odd,
    spread,
)
from ropecheck.conformance.known.model import FROM_T, continued, cut, merged, topped_up
from ropecheck.reference.timeline import IntArray

ROWS = ((0, 1, 1, 1, 1), (0, 1, 1, 2, 2), (0, 1, 2, 1, 2))
"""A token of text and a picture of 2 x 2; text goes on at 3, so the delta is -2."""


def table(*columns: tuple[int, ...]) -> IntArray:
    return np.array(columns, dtype=np.int64).reshape(-1, 3).T


def held(*more: int, aside: tuple[int, ...] = ()) -> Inputs:
    return Inputs(np.array(ROWS, dtype=np.int64), -2, ((1, 5),), more, aside)


def equal(*values: int) -> list[list[int]]:
    return [list(values)] * 3


def test_what_is_held() -> None:
    assert (held().width, held().deltas, held(-3).deltas, NOTHING.width) == (5, (-2,), (-2, -3), 0)
    one = held(-3)
    assert one.put_aside() == (-2, -3) == one.aside
    one.delta = 9
    assert one.put_aside() == (-2, -3)  # from now on


@pytest.mark.parametrize(
    ("mode", "rows", "tokens", "odd"),
    [
        *((mode, 1, 1, True) for mode in (*WINDOWS, "decode", "beam_decode", "target_verify", "draft_decode")),
        ("target_verify", 2, 4, True),
        ("target_verify", 2, 5, False),
        ("decode", 0, 0, False),
        ("idle", 1, 1, False),
        ("dllm_extend", 2, 4, False),
    ],
)
def test_where_a_row_may_bring_another_number(mode: str, rows: int, tokens: int, odd: bool) -> None:
    assert may_be_odd(mode, rows, tokens) == odd


def made(
    mode: str, rows: list[Inputs], firsts: list[int], counts: list[int], bugs: Collection[str] = ()
) -> list[list[list[int]]]:
    places = [first + n for first, count in zip(firsts, counts, strict=True) for n in range(count)]
    found = brought(mode, rows, firsts, counts, np.array(places, dtype=np.int64), bugs)
    return [one.tolist() for one in found]


@pytest.mark.parametrize("mode", WINDOWS)
def test_a_window(mode: str) -> None:
    inside = [[1, 1], [1, 2], [2, 1]]
    across, past = [[1, 3, 4], [2, 3, 4], [2, 3, 4]], equal(4, 5)
    assert made(mode, [held(), NOTHING, held(), held()], [2, 7, 4, 6], [2, 2, 3, 2]) == [
        inside,
        equal(7, 8),
        across,
        past,
    ]
    # with the bug it ends with the table, and behind the table there is one column, that of the last token
    known = made(mode, [held(), NOTHING, held(), held(-4)], [2, 7, 4, 6], [2, 2, 3, 2], {ENDED})
    assert known == [inside, equal(7, 8), [[1], [2], [2]], equal(5, 3)]


def test_decodes() -> None:
    assert made("decode", [held(), NOTHING], [6, 7], [1, 1]) == [equal(4), equal(7)]
    assert made("decode", [held()], [4], [1]) == [[[1], [2], [2]]]
    assert made("beam_decode", [held(), NOTHING], [6, 6], [1, 2]) == [equal(4), equal(6, 6)]


def test_a_delta_is_put_aside_where_decodes_are_made_one_by_one() -> None:
    alone, beside, reaching = held(), held(), held()
    made("decode", [alone], [6], [1])
    assert alone.aside == ()
    made("decode", [beside, reaching], [6, 4], [1, 1])  # a table reaches its token
    assert (beside.aside, reaching.aside) == ((-2,), ())
    assert made("decode", [held(aside=(-9,))], [10], [1], {ASIDE}) == [equal(1)]
    assert made("decode", [held(aside=(-9,))], [10], [1]) == [equal(8)]
    later = held()
    made("decode", [later], [6], [1], {ASIDE})
    assert later.aside == (-2,)


def test_two_deltas() -> None:
    """All of a request's are added to all its places; of two requests the engine adds one's to the other's places."""
    assert made("target_verify", [held(-3)], [9], [2]) == [equal(7, 8, 6, 7)]
    crossed = [9 - 2, 10 - 2, 20 - 3, 21 - 3, 9 - 2, 10 - 2, 20 - 4, 21 - 4]
    assert made("target_verify", [held(-3), held(-4)], [9, 20], [2, 2]) == [equal(*crossed), [[]] * 3]
    assert made("draft_decode", [held(), NOTHING], [9, 20], [1, 1]) == [equal(7, 20), [[]] * 3]
    for mode, rows, words, function in (
        ("decode", [held(-3)], "a Tensor with 2 elements cannot be converted to Scalar", "mrope_positions_decode"),
        ("decode", [held(), held(-3, -4)], "a Tensor with 3 elements", "mrope_positions_decode"),
        ("target_verify", [held(), held(-3)], r"\[1\] at entry 0 and \[2, 1\] at entry 1", "spec_mrope_positions"),
        ("target_verify", [held(-3), held()], r"\[2, 1\] at entry 0 and \[1\] at entry 1", "spec_mrope_positions"),
        (
            "target_verify",
            [held(-3), held(-3), held(-3)],
            r"tensor a \(3\) must match the size of tensor b \(2\)",
            "spec_mrope_positions",
        ),
    ):
        with pytest.raises(Unmade, match=words) as raised:
            made(mode, rows, [9, 20, 30][: len(rows)], [1] * len(rows))
        assert raised.value.args[1].endswith(function)


def test_columns_are_spread_over_the_tokens() -> None:
    one, two = table((1, 2, 3)), table((1, 2, 3), (4, 4, 4))

    def columns(parts: list[IntArray], tokens: int, padded: bool = False) -> list[list[int]] | None:
        found = spread(parts, tokens, padded)
        return None if found is None else found.T.tolist()

    assert columns([one, two], 3) == [[1, 2, 3], [1, 2, 3], [4, 4, 4]]
    assert columns([one], 3) == [[1, 2, 3]] * 3 and columns([one], 1) == [[1, 2, 3]]
    assert columns([two], 3) is None and columns([two], 1) is None and columns([two], 1, padded=True) is None
    assert columns([two], 4, padded=True) == [[1, 2, 3], [4, 4, 4], [0, 0, 0], [0, 0, 0]]
    assert columns([two], 2, padded=True) == [[1, 2, 3], [4, 4, 4]]


# ---------------------------------------------------------------- turns, cuts, retractions

OWN = table((0, 0, 0), (0, 0, 1))


def test_a_turns_media_behind_its_parents() -> None:
    """At token 7: two tokens of text stand between."""
    found = continued(held(), OWN, ((7, 9),), 7)
    assert found.table.T.tolist()[5:] == [[3, 3, 3], [4, 4, 4], [5, 5, 5], [5, 5, 6]]
    assert (found.width, found.delta, found.items, found.more) == (9, 7 - 9, ((1, 5), (7, 9)), ())
    inside = continued(held(), OWN, ((3, 5),), 3)  # the parent's table is cut
    assert inside.table.T.tolist() == [[0, 0, 0], [1, 1, 1], [1, 1, 2], [3, 3, 3], [3, 3, 4]]
    alone = continued(None, OWN, ((2, 4),), 2)
    assert alone.table.T.tolist() == [[0, 0, 0], [1, 1, 1], [2, 2, 2], [2, 2, 3]] and alone.items == ((2, 4),)


def test_media_that_join_their_parents() -> None:
    first = merged(held(aside=(-2,)), OWN, ((7, 9),))
    assert first.table.T.tolist()[5:] == [[0, 0, 0], [0, 0, 1]] and first.width == 7
    assert (first.delta, first.more, first.items, first.aside) == (-2, (0,), ((1, 5), (7, 9)), (-2,))
    assert merged(first, table((0, 0, 0), (0, 0, 0)), ()).more == (0, -1)
    alone = merged(NOTHING, OWN, ((0, 2),))
    assert (alone.table.tolist(), alone.delta, alone.more, alone.items) == (OWN.tolist(), 0, (), ((0, 2),))


def test_a_retracted_requests_table_grows() -> None:
    assert topped_up(held().table, 2, ()).T.tolist()[4:] == [[1, 2, 2], [3, 3, 3], [4, 4, 4]]
    assert topped_up(held().table, 2, {FROM_T}).T.tolist()[4:] == [[1, 2, 2], [2, 2, 2], [3, 3, 3]]


def test_the_media_of_the_first_tokens() -> None:
    assert cut(held(), 1) is None and cut(held(), 0) is None
    part = cut(held(), 3)
    assert part is not None and part.table.T.tolist() == [[0, 0, 0], [1, 1, 1], [1, 1, 2]]
    assert (part.delta, part.items) == (0, ((1, 3),))
    for tokens in (5, 6, 50):
        whole = cut(held(), tokens)
        assert whole is not None and whole.width == 5 and (whole.delta, whole.items) == (-2, ((1, 5),))
    kept = cut(Inputs(held().table, 9, ((1, 5),)), 5)
    assert kept is not None and kept.delta == 9  # all of it: as it was
    two = Inputs(held().table, -2, ((0, 1), (3, 5)))
    assert [one and one.items for one in (cut(two, 3), cut(two, 4))] == [((0, 1),), ((0, 1), (3, 4))]

"""Sessions with pictures up to SGLang 0.5.19, in streams by hand: what its two causes give is expected, to the number,
and no other fault in its place."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from msgspec.structs import replace

from ropecheck.adapters.events import Died, Event, Forward, Opened, Output, PromptRun
from ropecheck.conformance.known.failures import CAUSES
from ropecheck.conformance.known.inputs import ASIDE, ENDED, Inputs, Unmade, brought
from ropecheck.conformance.known.model import MERGED
from ropecheck.conformance.known.scheduler import UNKEPT
from tests.known.test_stream import ROWS, arrive, decode, extend, told

ALL = frozenset(CAUSES) - {ASIDE}
PICTURE = (PromptRun("image", grid=(1, 4, 4)),)
OWN = ((0, 0, 0, 0), (0, 0, 1, 1), (0, 1, 0, 1))
"""Of four tokens; behind five that end with such a picture (t 1, h and w 2) it stands at 3."""


def turns(prompt: Sequence[PromptRun], **more: object) -> tuple[Event, ...]:
    """A picture, its answer, and a turn behind them."""
    first = (Opened("s"), arrive(session="s"), extend(0, ROWS), Output("a", (7,), "length"))
    return (*first, arrive("b", prompt, session="s", parent="a", **more))


TEXT = turns((PromptRun("text", 3),))
"""Nine tokens: the answer is the sixth, and the last three stand at 4, 5 and 6."""
JOINED = turns(PICTURE, drop_previous_output=True)


def window(*positions: int) -> Forward:
    return extend(5, (positions,) * 3, "b")


@pytest.mark.parametrize(
    ("positions", "found"),
    [
        ((3, 4, 5, 6), []),
        ((6, 6, 6, 6), [(5, True)]),
        ((7, 7, 7, 7), [(5, False)]),
        ((5, 6, 7, 8), [(5, False)]),
        ((3, 4, 5, 7), [(5, False)]),
        ((0, 0, 0, 0), [(5, False)]),
    ],
)
def test_a_window_behind_the_table_has_one_column(positions: Sequence[int], found: list[tuple[int, bool]]) -> None:
    assert told(*TEXT, window(*positions), bugs=ALL) == found


def test_it_is_new_without_the_bug_and_in_no_session() -> None:
    assert told(*TEXT, window(6, 6, 6, 6), bugs=ALL - {ENDED}) == [(5, False)]
    alone = (arrive("b", (PromptRun("image", grid=(1, 4, 4)), PromptRun("text", 5))),)
    repeated = extend(4, ((6,) * 5,) * 3, "b")
    assert told(*alone, extend(0, OWN, "b"), repeated, bugs=ALL) == [(2, False)]


UNFIT = replace(extend(0, ((0,) * 9,) * 3, "b"), rows=ROWS, answers=())
"""Without a prefix cache: nine tokens, and the five columns of the parent's prompt."""
WORDS = "The size of tensor a (9) must match the size of tensor b (5) at non-singleton dimension 1"
FATAL = Died("RuntimeError", WORDS, "cuda_graph_buffer_registry.py:466 fill_from", UNFIT)


@pytest.mark.parametrize(
    ("died", "so"),
    [
        (FATAL, True),
        (replace(FATAL, given=None), False),
        (replace(FATAL, given=replace(UNFIT, rows=tuple(tuple(n + 1 for n in row) for row in ROWS))), False),
        (replace(FATAL, given=replace(UNFIT, rows=tuple(row[:4] for row in ROWS))), False),
        (replace(FATAL, given=replace(UNFIT, rows=((0,) * 9,) * 3)), False),
        (replace(FATAL, message="The size of tensor a (9) must match the size of tensor b (5)"), False),
        (replace(FATAL, where="a.py:1 embed"), False),
    ],
)
def test_a_forward_with_too_few_columns_ends_the_loop(died: Died, so: bool) -> None:
    assert told(*TEXT, died, bugs=ALL) == [(5, so)]


def test_without_the_bug_it_is_new() -> None:
    assert told(*TEXT, FATAL, bugs=ALL - {ENDED}) == [(5, False)]


def moved(by: int) -> Forward:
    return extend(5, tuple(tuple(n + by for n in row) for row in OWN), "b")


@pytest.mark.parametrize(
    ("forward", "found"),
    [
        (moved(3), []),
        (moved(0), [(5, True)]),
        (moved(2), [(5, False)]),  # behind the t row alone
        (moved(5), [(5, False)]),  # behind the tokens
        (window(3, 4, 5, 6), [(5, False)]),  # text
        (window(0, 0, 0, 0), [(5, False)]),
    ],
)
def test_a_joined_picture_stands_as_if_nothing_were_before_it(forward: Forward, found: list[tuple[int, bool]]) -> None:
    assert told(*JOINED, forward, bugs=ALL) == found


def test_without_the_bug_or_without_a_parent_a_picture_at_0_is_new() -> None:
    assert told(*JOINED, moved(0), bugs=ALL - {MERGED}) == [(5, False)]
    alone = arrive("b", (PromptRun("text", 5), *PICTURE))
    assert told(alone, extend(0, ((0, 1, 2, 3, 4),) * 3, "b"), moved(0), bugs=ALL) == [(2, False)]


SCALAR = "a Tensor with 2 elements cannot be converted to Scalar"
DECODE = "forward_batch_info.py:1201 _compute_mrope_positions_decode"


def test_two_deltas_end_the_loop_at_the_next_decode() -> None:
    died = Died("RuntimeError", SCALAR, DECODE)
    known = [(5, True)]  # the picture's columns
    assert told(*JOINED, moved(0), died, bugs=ALL) == [*known, (6, True)]
    assert told(*JOINED, moved(0), replace(died, message=SCALAR.replace("2", "3")), bugs=ALL) == [*known, (6, False)]
    assert told(*JOINED, moved(0), replace(died, error="TypeError"), bugs=ALL) == [*known, (6, False)]
    assert told(*JOINED, moved(0), replace(died, where="a.py:1 decode"), bugs=ALL) == [*known, (6, False)]
    assert told(*TEXT, window(3, 4, 5, 6), died, bugs=ALL) == [(6, False)]
    assert told(*JOINED, died, bugs=ALL) == [(5, False)]  # nothing decodes yet


def test_two_shapes_of_deltas_end_the_loop_at_the_next_verify() -> None:
    words = "stack expects each tensor to be equal size, but got [1] at entry 0 and [2, 1] at entry 1"
    died = Died("RuntimeError", words, "forward_batch_info.py:1120 compute_spec_mrope_positions")
    beside = (arrive("c", (PromptRun("text", 2),)), extend(0, ((0, 1),) * 3, "c"))
    assert told(*JOINED, moved(0), *beside, died, bugs=ALL) == [(5, True), (8, True)]
    other = replace(died, message=words.replace("[2,", "[3,"))
    assert told(*JOINED, moved(0), *beside, other, bugs=ALL) == [(5, True), (8, False)]
    assert told(*JOINED, moved(0), died, bugs=ALL) == [(5, True), (6, False)]
    assert told(*TEXT, window(3, 4, 5, 6), *beside, died, bugs=ALL) == [(8, False)]


def test_what_was_put_aside_stays() -> None:
    """Up to 0.5.17: the picture's own decode has put its delta aside, which is that of the joined inputs, too."""
    first = (Opened("s"), arrive(session="s"), extend(0, ROWS), decode(5, 3), Output("a", (7, 7), "length"))
    joined = arrive("b", PICTURE, session="s", parent="a", drop_previous_output=True)
    stream = (*first, joined, moved(0))
    bugs = ALL | {ASIDE}
    assert told(*stream, decode(9, 7, "b"), bugs=bugs) == [(6, True), (7, True)]  # right: 5
    for position in (4, 6, 8):
        assert told(*stream, decode(9, position, "b"), bugs=bugs) == [(6, True), (7, False)]
    assert told(*stream, decode(9, 7, "b"), bugs=ALL) == [(6, True), (7, False)]


def inputs(*deltas: int) -> Inputs:
    return Inputs(np.array(ROWS, dtype=np.int64), deltas[0], (), deltas[1:])


def test_two_deltas_give_two_columns_a_token() -> None:
    places = np.array([9, 10], dtype=np.int64)
    made = brought("target_verify", [inputs(-2, -3)], [9], [2], places, ALL)
    assert made[0].tolist() == [[7, 8, 6, 7]] * 3
    with pytest.raises(Unmade, match="equal size"):
        brought("target_verify", [inputs(-2, -3), inputs(-2)], [9, 9], [1, 1], places, ALL)
    with pytest.raises(Unmade, match="Scalar"):
        brought("decode", [inputs(-2, -3)], [9], [1], places[:1], ALL)
    made = brought("decode", [inputs(-2, -3)], [9], [1], places[:1], ALL | {ASIDE})
    assert made[0].tolist() == [[7, 6]] * 3


def test_a_search_forgets_its_chunks() -> None:
    """0.5.19: the next window begins where the first began; what was lost of the pool is known to the token."""
    search = (arrive("b", (PromptRun("text", 9),), beams=2), extend(0, ((0, 1, 2, 3),) * 3, "b"))
    again = extend(0, ((0, 1, 2, 3, 4, 5, 6, 7, 8),) * 3, "b")
    assert told(*search, again, bugs=ALL) == [(2, True)]
    assert told(*search, again, bugs=ALL - {UNKEPT}) == [(2, False)]
    for start in (1, 2, 3):
        window = extend(start, (tuple(range(start, 9)),) * 3, "b")
        assert told(*search, window, bugs=ALL) == [(2, False)]
    assert told(replace(search[0], beams=1), search[1], again, bugs=ALL) == [(2, False)]
    left = "[full] total=4000, available={}, evictable=0, protected=0, session_held=0, uncached=0"
    ended = (*search, again, Output("b", (7,), "length"))
    for free, so in ((3996, True), (3995, False), (3997, False), (3000, False)):
        leak = Died("ValueError", f"pool memory leak detected! {left.format(free)}", "common.py:1 raise_error_or_warn")
        assert told(*ended, leak, bugs=ALL) == [(2, True), (4, so)]
    full = Died("RuntimeError", "Out of memory. Try to lower your batch size.", "allocation.py:168 alloc_token_slots")
    assert told(*search, full, bugs=ALL) == [(2, False)]
    assert told(*search, full, bugs=ALL, server={"max_total_tokens": 40}) == [(2, False)]
    assert told(*search, again, full, bugs=ALL, server={"max_total_tokens": 40}) == [(2, True), (3, True)]

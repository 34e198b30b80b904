"""From a state and choices to a whole batch, and from a batch to its tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import numpy as np
import pytest

from ropecheck.reference.requests import Request, of
from ropecheck.reference.resolve import requests_for, resolved
from ropecheck.reference.tables import BatchTables, Part, index_array, padded, tables_of
from ropecheck.spec.history import OutOfDomain
from ropecheck.spec.modes import mode_of
from ropecheck.spec.modes.declaration import (
    DECLARED,
    PREFILLING,
    ExtendLen,
    Mode,
    PrefixLen,
    Tokens,
    Whole,
    mode,
)
from tests.reference.support import PICTURE, WORDS, waiting, with_status

STATE = with_status(with_status(waiting(PICTURE, WORDS, PICTURE, WORDS), 1, "running", 2), 2, "retracted", 1)
"""0 waits with six tokens, 1 runs with five, 2 was retracted with seven, 3 waits with three."""


@pytest.mark.parametrize(
    ("name", "reqs", "taken"),
    [
        ("extend", (2, 0), (2, 0)),
        ("decode", (1,), (1,)),
        ("dllm_extend", (3, 1), (3, 1)),
        ("idle", (), ()),
    ],
)
def test_a_modes_rows_are_the_requests_that_it_reads(name: str, reqs: tuple[int, ...], taken: tuple[int, ...]) -> None:
    assert tuple(one.req for one in requests_for(STATE, mode_of(name), reqs)) == taken


@pytest.mark.parametrize(
    ("name", "reqs", "reason"),
    [
        ("extend", (0, 1), "request 1 is running, not waiting or retracted"),
        ("decode", (0,), "request 0 is waiting, not running"),
        ("dllm_extend", (2,), "request 2 is retracted"),
        ("dllm_extend", (3, 0), "dllm_extend is text only"),
        ("idle", (0,), "idle has no rows"),
        ("extend", (), "extend: a batch without requests"),
        ("extend", (9,), "request 9 does not exist"),
    ],
)
def test_a_request_that_a_mode_does_not_read_is_refused(name: str, reqs: tuple[int, ...], reason: str) -> None:
    with pytest.raises(OutOfDomain, match=reason):
        requests_for(STATE, mode_of(name), reqs)


def rows(*reqs: int) -> list[Request]:
    return [of(STATE, req) for req in reqs]


COMPUTED = of(with_status(waiting(PICTURE), 0, "waiting", computed=2, admitted=True), 0)


@pytest.mark.parametrize(
    ("name", "requests", "chosen", "fields"),
    [
        ("extend", rows(0, 2), {}, {"prefix_len": (0, 0), "extend_len": (6, 7)}),
        ("extend", [COMPUTED], {"extend_len": (3,)}, {"prefix_len": (2,), "extend_len": (3,)}),
        ("extend", [COMPUTED], {"extend_len": (0,)}, {"prefix_len": (2,), "extend_len": (4,)}),
        (
            "extend",
            rows(0, 2),
            {"prefix_len": [4, 0], "extend_len": (1, 0)},
            {"prefix_len": (4, 0), "extend_len": (1, 7)},
        ),
        ("decode", rows(1), {}, {"seq_len": (5,)}),
        ("draft_extend_v2", rows(1), {}, {"seq_len": (4,), "num_draft_tokens": 1}),
        ("draft_decode", rows(1), {"topk": 3}, {"seq_len": (4,), "topk": 3, "num_steps": 2}),
        ("ragged_verify", rows(1), {}, {"seq_len": (4,), "parents": ((),)}),
        (
            "target_verify",
            rows(1),
            {"parents": [[0, 0]], "num_draft_tokens": 3},
            {"seq_len": (4,), "parents": ((0, 0),), "num_draft_tokens": 3, "topk": 1},
        ),
        (
            "dllm_extend",
            rows(3, 1),
            {"block_size": 4, "block_offset": (8, 0)},
            {"block_size": 4, "block_offset": (8, 0)},
        ),
        ("dllm_extend", rows(3, 1), {}, {"block_size": 1, "block_offset": (0, 0)}),
    ],
)
def test_every_field_of_a_batch(
    name: str, requests: list[Request], chosen: dict[str, Any], fields: dict[str, Any]
) -> None:
    assert resolved(mode_of(name), requests, chosen) == fields


@pytest.mark.parametrize(
    ("name", "requests", "chosen", "reason"),
    [
        ("decode", rows(1), {"topk": 1, "depth": 2}, "decode carries no depth, topk"),
        ("extend", [COMPUTED], {"prefix_len": (3,)}, "a prefix hit comes before its first window"),
        ("extend", rows(0), {"prefix_len": (6,)}, "a hit leaves at least one of its 6 tokens"),
        ("extend", rows(0), {"extend_len": (7,)}, "window of 7 tokens, 6 left"),
        ("extend", rows(0), {"extend_len": (-1,)}, "window of -1 tokens, 6 left"),
        ("extend", rows(0), {"extend_len": (1, 1)}, "extend_len: one value per row, 1 in all"),
        ("extend", rows(0), {"prefix_len": 1}, "prefix_len: one value per row, 1 in all"),
        ("draft_extend_v2", rows(1), {"num_draft_tokens": 0}, r"draft_extend_v2\.num_draft_tokens: 0 is below 1"),
        ("draft_extend_v2", rows(1), {"num_draft_tokens": 1.5}, r"num_draft_tokens: 1\.5 is below 1"),
        ("ragged_verify", rows(1), {"parents": ((), ())}, "parents: one value per row, 1 in all"),
        (
            "target_verify",
            rows(1),
            {"parents": ((0, 0),), "num_draft_tokens": 2},
            r"target_verify\.parents: a tree of 3 nodes, num_draft_tokens 2",
        ),
        (
            "dllm_extend",
            rows(3),
            {"block_size": 4, "block_offset": (6,)},
            r"dllm_extend\.block_offset: 6 is no multiple of block_size 4",
        ),
        ("dllm_extend", rows(3, 1), {"block_offset": (0, -1)}, r"block_offset: -1 is below 0"),
        (
            "dllm_extend",
            rows(3, 1),
            {"block_size": 4, "block_offset": (4, 6)},
            r"dllm_extend\.block_offset: 6 is no multiple of block_size 4",
        ),
        ("dllm_extend", rows(3), {"block_offset": 4}, "block_offset: one value per row, 1 in all"),
    ],
)
def test_a_choice_out_of_range_is_refused(
    name: str, requests: list[Request], chosen: dict[str, Any], reason: str
) -> None:
    with pytest.raises(OutOfDomain, match=reason):
        resolved(mode_of(name), requests, chosen)


def test_either_a_window_begun_or_an_admission_ends_the_time_for_a_hit() -> None:
    for more in ({"computed": 2}, {"admitted": True}):
        request = of(with_status(waiting(PICTURE), 0, "waiting", **more), 0)
        with pytest.raises(OutOfDomain, match="before its first window"):
            resolved(mode_of("extend"), [request], {"prefix_len": (3,)})
        resolved(mode_of("extend"), [request], {"prefix_len": (0,)})


def test_fields_in_any_order() -> None:
    @mode("late", source="this test", reads=PREFILLING)
    def late(extend_len: ExtendLen, prefix_len: PrefixLen) -> Tokens:
        """It reads what is left."""
        return Tokens(prefix_len, extend_len)

    del DECLARED["late"]
    assert resolved(late, [COMPUTED], {}) == {"prefix_len": (2,), "extend_len": (4,)}


# ---------------------------------------------------------------- tables

LINE, PLAIN = of(STATE, 0).line, of(STATE, 1).line


def test_row_by_row_and_part_by_part() -> None:
    """The last two tokens of the picture's request and one of the other's, then both newest tokens."""
    windows = Part(mode_of("extend"), (LINE, PLAIN), {"prefix_len": (4, 1), "extend_len": (2, 1)})
    newest = Part(mode_of("decode"), (LINE, PLAIN), {"seq_len": (9, 5)})
    made = tables_of(mode_of("mixed"), (windows, newest))
    assert made.positions.tolist() == [4, 5, 1, 8, 4]
    assert made.rows is not None
    assert made.rows.T.tolist() == [[1, 2, 2], [3, 3, 3], [1, 1, 1], [6, 6, 6], [4, 4, 4]]
    assert [(one.row, one.start, one.stop, one.tokens.tolist()) for one in made.spans] == [
        (0, 0, 2, [4, 5]),
        (1, 2, 3, [1]),
        (2, 3, 4, [8]),
        (3, 4, 5, [4]),
    ]
    assert made.live == 5 and made.index_dtype == "int64"


def test_a_batch_of_nobody_has_tables_of_no_column() -> None:
    made = tables_of(mode_of("idle"), (), axes=4)
    assert made.rows is not None and made.rows.shape == (4, 0)
    assert made.positions.shape == (0,) and made.positions.dtype == made.rows.dtype == np.int64
    assert made.live == 0
    wide = padded(made, 2)
    assert wide.rows is not None and wide.rows.tolist() == [[0, 0]] * 4 and wide.positions.tolist() == [0, 0]


def test_a_mode_without_rows_has_indices_alone() -> None:
    made = tables_of(
        mode_of("dllm_extend"), (Part(mode_of("dllm_extend"), (PLAIN,), {"block_offset": (4,), "block_size": 2}),)
    )
    assert made.rows is None and made.positions.tolist() == [4, 5] and made.index_dtype == "int32"
    assert padded(made, 4).rows is None and padded(made, 4).positions.tolist() == [4, 5, 0, 0]


def test_a_loops_forwards() -> None:
    draft = mode_of("draft_decode")
    part = Part(draft, (LINE,), {"seq_len": (9,), "topk": 2, "num_steps": 3})
    assert [tables_of(draft, (part,), step).positions.tolist() for step in (0, 1)] == [[9, 9], [10, 10]]


def test_padding_keeps_what_lives() -> None:
    made = tables_of(mode_of("decode"), (Part(mode_of("decode"), (LINE, PLAIN), {"seq_len": (9, 5)}),))
    wide: BatchTables = padded(made, 4)
    assert wide.rows is not None
    assert wide.positions.tolist() == [8, 4, 0, 0] and wide.rows.tolist() == [[6, 4, 0, 0]] * 3
    assert wide.spans == made.spans and wide.live == 2 and padded(made, 2).positions.tolist() == [8, 4]
    with pytest.raises(OutOfDomain, match="a padded width of 1 is 1 short"):
        padded(made, 1)


Small = Annotated[int, Whole(-9, 9)]


@pytest.fixture
def stepping() -> Iterator[Mode]:
    """A mode that nobody has written."""

    @mode("stepping", source="this test")
    def declared(first: Small, count: Small, gap: Small) -> Tokens:
        """It reads tokens in steps."""
        return Tokens(first, count, step=gap)

    yield declared
    del DECLARED["stepping"]


def test_indices_in_steps_and_those_of_nowhere(stepping: Mode) -> None:
    assert index_array(stepping, {"first": 3, "count": 3, "gap": 2}, 0).tolist() == [3, 5, 7]
    assert index_array(stepping, {"first": 0, "count": 0, "gap": 1}, 0).tolist() == []
    for first, count in ((-1, 2), (2, -1)):
        with pytest.raises(OutOfDomain, match=f"row 5 reads {count} tokens from {first} on"):
            index_array(stepping, {"first": first, "count": count, "gap": 1}, 5)

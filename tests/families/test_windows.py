"""Batched windows against the ideal position function, request by request."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropecheck.reference import windows
from ropecheck.reference.prompt_tables import delta, prompt_table
from ropecheck.spec import history as spec
from ropecheck.spec.families.qwen2_5_vl import QWEN2_5_VL
from ropecheck.spec.history import History, OutOfDomain, TokenIndex, image, length, text, video

HISTORIES: tuple[History, ...] = (
    (text(4),),
    (text(2), image(1, 4, 6), text(3)),
    (video(3, 4, 4, 1.5), text(1)),
    (text(1), image(1, 2, 12), text(1), image(1, 8, 2), text(2)),
)

Batch = tuple[History, ...]
batches = st.lists(st.sampled_from(HISTORIES), min_size=0, max_size=5).map(tuple)


def requests_of(batch: Batch) -> windows.Requests:
    tables = [prompt_table(QWEN2_5_VL, history) for history in batch]
    return windows.Requests(tables, [delta(table) for table in tables])


def column(history: History, index: int) -> tuple[int, ...]:
    return spec.ideal_column(spec.prompt_table(QWEN2_5_VL, history), TokenIndex(index))


def check(batch: Batch, indices: list[list[int]], found: tuple[windows.Ints, windows.Ints]) -> None:
    positions, rows = found
    wanted = [(index, column(history, index)) for history, line in zip(batch, indices, strict=True) for index in line]
    assert positions.dtype == rows.dtype == np.int64
    assert positions.tolist() == [index for index, _ in wanted]
    assert rows.shape == (3, len(wanted))
    assert [tuple(c) for c in rows.T.tolist()] == [c for _, c in wanted]


@given(batches, st.data())
def test_extend(batch: Batch, data: st.DataObject) -> None:
    prefix = [data.draw(st.integers(0, length(QWEN2_5_VL, history) + 3)) for history in batch]
    lens = [data.draw(st.integers(0, 12)) for _ in batch]
    found = windows.extend(requests_of(batch), np.array(prefix, np.int64), np.array(lens, np.int64))
    check(batch, [list(range(p, p + n)) for p, n in zip(prefix, lens, strict=True)], found)


@given(batches, st.integers(0, 4), st.integers(1, 5), st.booleans())
def test_draft_extend_decode_and_chain_verify(batch: Batch, more: int, count: int, early: bool) -> None:
    seq = [1 if early else length(QWEN2_5_VL, history) + more for history in batch]
    lens = np.array(seq, np.int64)
    requests = requests_of(batch)
    ahead = [list(range(n, n + count)) for n in seq]
    check(batch, ahead, windows.draft_extend(requests, lens, count))
    check(batch, ahead, windows.verify(requests, lens, np.arange(count)))
    check(batch, [[n - 1] for n in seq], windows.decode(requests, lens))


@given(batches, st.data())
def test_tree_verify(batch: Batch, data: st.DataObject) -> None:
    nodes = data.draw(st.integers(1, 6))
    depths = [[0, *data.draw(st.lists(st.integers(1, 4), min_size=nodes - 1, max_size=nodes - 1))] for _ in batch]
    seq = [length(QWEN2_5_VL, history) for history in batch]
    found = windows.verify(requests_of(batch), np.array(seq, np.int64), np.array(depths, np.int64).reshape(-1, nodes))
    check(batch, [[n + d for d in line] for n, line in zip(seq, depths, strict=True)], found)


def test_a_planted_fault_is_seen() -> None:
    batch = (HISTORIES[1],)
    good = windows.decode(requests_of(batch), np.array([12], np.int64))
    wrong = windows.Requests([prompt_table(QWEN2_5_VL, HISTORIES[1])], [0])
    with pytest.raises(AssertionError):
        check(batch, [[11]], windows.decode(wrong, np.array([12], np.int64)))
    check(batch, [[11]], good)


def test_refusals() -> None:
    requests = requests_of((HISTORIES[0],))
    with pytest.raises(OutOfDomain, match="negative"):
        windows.decode(requests, np.array([0], np.int64))
    with pytest.raises(OutOfDomain, match="1 requests"):
        windows.decode(requests, np.array([1, 2], np.int64))
    with pytest.raises(OutOfDomain, match="2 tables"):
        windows.Requests([prompt_table(QWEN2_5_VL, h) for h in HISTORIES[:2]], [0])

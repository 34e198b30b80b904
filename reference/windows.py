"""Many requests' windows in one vectorised pass: what a forward reads, for any number of requests at once.

Each function takes one number per request and returns both tables of the forward: `positions` int64 [T] and the rows
int64 [axes, T]. No Python loop runs per request. The index arithmetic is that of the files in spec/modes; the tests
hold both equal.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ropecheck.spec.history import OutOfDomain

Ints = npt.NDArray[np.int64]


class Requests:
    """Prompt tables of a batch, side by side. A text-only request brings a table of width 0 and delta 0."""

    def __init__(self, tables: Sequence[Ints], deltas: Sequence[int]) -> None:
        """tables: int64 [axes, P] each, P may differ; deltas: one per request."""
        if len(tables) != len(deltas):
            raise OutOfDomain(f"{len(tables)} tables but {len(deltas)} deltas")
        self.columns: Ints = np.concatenate(tables, axis=1) if tables else np.zeros((3, 0), dtype=np.int64)
        self.widths: Ints = np.array([table.shape[1] for table in tables], dtype=np.int64)
        self.offsets: Ints = np.cumsum(self.widths) - self.widths
        self.deltas: Ints = np.array(deltas, dtype=np.int64)

    @property
    def count(self) -> int:
        return len(self.deltas)

    def packed(self, first: Ints, lens: Ints) -> tuple[Ints, Ints]:
        """`lens[i]` tokens of request i from index `first[i]`, packed."""
        self._check(first)
        self._check(lens)
        shift = first - (np.cumsum(lens) - lens)
        place = np.arange(int(lens.sum()), dtype=np.int64)
        index = place + np.repeat(shift, lens)
        by_delta = place + np.repeat(shift + self.deltas, lens)
        if not self.columns.shape[1]:
            rows = np.empty((self.columns.shape[0], len(index)), dtype=np.int64)
            rows[:] = by_delta
            return index, rows
        held = place + np.repeat(shift + self.offsets, lens)
        rows = self.columns.take(held, axis=1, mode="clip")
        np.copyto(rows, by_delta, where=index >= np.repeat(self.widths, lens))
        return index, rows

    def steps(self, first: Ints, count: int) -> tuple[Ints, Ints]:
        """`count` tokens of every request from index `first`, request-major."""
        return self._grid(first, np.arange(count, dtype=np.int64))

    def _grid(self, first: Ints, steps: Ints) -> tuple[Ints, Ints]:
        """steps: [n], or [requests, n]: added to every request's `first`."""
        self._check(first)
        index = first[:, None] + steps
        flat = index.reshape(-1)
        if self.count and bool((first >= self.widths).all()):
            rows = np.empty((self.columns.shape[0], *index.shape), dtype=np.int64)
            np.add(index, self.deltas[:, None], out=rows[0])
            rows[1:] = rows[0]
            return flat, rows.reshape(len(rows), -1)
        held = np.clip(index + self.offsets[:, None], 0, max(self.columns.shape[1] - 1, 0))
        rows = np.empty((self.columns.shape[0], *index.shape), dtype=np.int64)
        rows[:] = index + self.deltas[:, None]
        inside = index < self.widths[:, None]
        if inside.any():
            rows[:, inside] = self.columns[:, held[inside]]
        return flat, rows.reshape(len(rows), -1)

    def _check(self, first: Ints) -> None:
        if first.shape != (self.count,):
            raise OutOfDomain(f"{self.count} requests but lengths of shape {first.shape}")
        if self.count and int(first.min()) < 0:
            raise OutOfDomain("a token index is negative")


def extend(requests: Requests, prefix_lens: Ints, extend_lens: Ints) -> tuple[Ints, Ints]:
    """EXTEND: tokens prefix_len .. prefix_len + extend_len - 1 of each request, packed. See spec/modes/extend.py."""
    return requests.packed(prefix_lens, extend_lens)


def decode(requests: Requests, seq_lens: Ints) -> tuple[Ints, Ints]:
    """DECODE: token seq_len - 1 of each request. See spec/modes/decode.py."""
    return requests.steps(seq_lens - 1, 1)


def verify(requests: Requests, seq_lens: Ints, depths: Ints) -> tuple[Ints, Ints]:
    """TARGET_VERIFY: token seq_len + depth of every node. depths: [nodes] for all, or [requests, nodes].

    See spec/modes/target_verify.py.
    """
    return requests._grid(seq_lens, depths)


def draft_extend(requests: Requests, seq_lens: Ints, num_draft_tokens: int) -> tuple[Ints, Ints]:
    """DRAFT_EXTEND_V2: tokens seq_len .. seq_len + num_draft_tokens - 1. See spec/modes/draft_extend_v2.py."""
    return requests.steps(seq_lens, num_draft_tokens)

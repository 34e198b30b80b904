"""Adapters that answer rightly, and in each way wrongly."""

from __future__ import annotations

from typing import Any

import numpy as np

from ropecheck.conformance.adopt import Asked, BatchPart, HeldRequest, NotOffered
from tests.naive import indices


def column(request: HeldRequest, index: int) -> tuple[int, ...]:
    """As docs/adopt.md's toy engine places a token."""
    if request.table is not None and index < len(request.table[0]):
        return tuple(row[index] for row in request.table)
    return (index + request.delta,) * 3


class Whole:
    """Every mode, padding included."""

    offers_padding = True

    def forward(self, asked: Asked) -> object:
        read: list[int] = []
        columns: list[tuple[int, ...]] = []
        row = 0
        for part in asked.batch.parts:
            mode = part.mode or asked.mode
            for number in range(len(part.reqs)):
                for index in self.read(mode, part, number, asked.step):
                    read.append(index)
                    columns.append(column(asked.requests[row], index))
                row += 1
        spare = max(len(read), asked.padded_tokens) - len(read)
        rows = None if asked.mode == "dllm_extend" else columns + [(0, 0, 0)] * spare
        return self.tables(asked, read + [0] * spare, rows)

    def read(self, mode: str, part: BatchPart, row: int, step: int) -> list[int]:
        """Indices of one row."""
        return indices(mode, part, row, step)

    def tables(self, asked: Asked, indices: list[int], columns: list[tuple[int, ...]] | None) -> tuple[Any, Any]:
        return indices, None if columns is None else [[one[axis] for one in columns] for axis in range(3)]


class Arrays(Whole):
    """The same as numpy arrays."""

    dtype = np.int64

    def tables(self, asked: Asked, indices: list[int], columns: list[tuple[int, ...]] | None) -> tuple[Any, Any]:
        index = np.array(indices, dtype=np.int32 if asked.mode == "dllm_extend" else np.int64)
        rows = None if columns is None else np.array(columns, dtype=self.dtype).reshape(len(columns), 3).T
        return index, rows


class Narrow(Arrays):
    """Rows of int32."""

    dtype = np.int32  # type: ignore[assignment]


class Declines:
    """Nothing is offered."""

    def forward(self, asked: Asked) -> object:
        raise NotOffered("nothing yet")


class Raises(Whole):
    """The engine fails in decode."""

    def forward(self, asked: Asked) -> object:
        if asked.mode == "decode":
            raise ValueError("shape mismatch")
        return super().forward(asked)


class NoTables(Whole):
    """The adapter returns something else in decode."""

    def forward(self, asked: Asked) -> object:
        return "tables" if asked.mode == "decode" else super().forward(asked)


class Unset(Whole):
    """Rows are missing in decode."""

    def tables(self, asked: Asked, indices: list[int], columns: list[tuple[int, ...]] | None) -> tuple[Any, Any]:
        return super().tables(asked, indices, None if asked.mode == "decode" else columns)


class Forgetful(Whole):
    """Padding holds what it likes."""

    def tables(self, asked: Asked, indices: list[int], columns: list[tuple[int, ...]] | None) -> tuple[Any, Any]:
        if asked.padded_tokens and columns:
            columns = [(7, 7, 7) if one == (0, 0, 0) else one for one in columns]
        return super().tables(asked, indices, columns)

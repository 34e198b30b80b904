"""Adapters that answer rightly, and in each way wrongly."""

from __future__ import annotations

from typing import Any

import numpy as np

from ropecheck.conformance.adopt import Batch, NotOffered, Request


def column(request: Request, index: int) -> tuple[int, ...]:
    """As docs/adopt.md's toy engine places a token."""
    if request.table is not None and index < len(request.table[0]):
        return tuple(row[index] for row in request.table)
    return (index + request.delta,) * 3


class Whole:
    """Every mode, padding included."""

    offers_padding = True

    def forward(self, batch: Batch) -> object:
        indices: list[int] = []
        columns: list[tuple[int, ...]] = []
        if batch.mode == "dllm_extend":
            blocks = [offset + i for offset in batch.block_offsets for i in range(batch.block_size)]
            return self.tables(batch, blocks, None)
        for row, request in enumerate(batch.requests):
            for index in self.read(batch, row):
                indices.append(index)
                columns.append(column(request, index))
        width = max(len(indices), batch.ragged_tokens, batch.padded_tokens)
        spare = width - len(indices)
        return self.tables(batch, indices + [0] * spare, columns + [(0, 0, 0)] * spare)

    def read(self, batch: Batch, row: int) -> list[int]:
        """Indices of one request."""
        match batch.mode:
            case "decode":
                return [batch.seq_lens[row] - 1]
            case "extend" | "split_prefill" | "mixed":
                start = batch.prefix_lens[row]
                return list(range(start, start + batch.extend_lens[row]))
            case "draft_decode":
                return [batch.seq_lens[row] + batch.step] * batch.topk
            case "draft_extend_v2":
                return [batch.seq_lens[row] + i for i in range(batch.num_draft_tokens)]
            case _:
                depths = [0]
                for parent in batch.parents[row]:
                    depths.append(depths[parent] + 1)
                return [batch.seq_lens[row] + depth for depth in depths]

    def tables(self, batch: Batch, indices: list[int], columns: list[tuple[int, ...]] | None) -> tuple[Any, Any]:
        return indices, None if columns is None else [[one[axis] for one in columns] for axis in range(3)]


class Arrays(Whole):
    """The same as numpy arrays."""

    dtype = np.int64

    def tables(self, batch: Batch, indices: list[int], columns: list[tuple[int, ...]] | None) -> tuple[Any, Any]:
        index = np.array(indices, dtype=np.int32 if batch.mode == "dllm_extend" else np.int64)
        rows = None if columns is None else np.array(columns, dtype=self.dtype).reshape(len(columns), 3).T
        return index, rows


class Narrow(Arrays):
    """Rows of int32."""

    dtype = np.int32  # type: ignore[assignment]


class Declines:
    """Nothing is offered."""

    def forward(self, batch: Batch) -> object:
        raise NotOffered("nothing yet")


class Raises(Whole):
    """The engine fails in decode."""

    def forward(self, batch: Batch) -> object:
        if batch.mode == "decode":
            raise ValueError("shape mismatch")
        return super().forward(batch)


class NoTables(Whole):
    """The adapter returns something else in decode."""

    def forward(self, batch: Batch) -> object:
        return "tables" if batch.mode == "decode" else super().forward(batch)


class Unset(Whole):
    """Rows are missing in decode."""

    def tables(self, batch: Batch, indices: list[int], columns: list[tuple[int, ...]] | None) -> tuple[Any, Any]:
        return super().tables(batch, indices, None if batch.mode == "decode" else columns)


class Forgetful(Whole):
    """Padding holds what it likes."""

    def tables(self, batch: Batch, indices: list[int], columns: list[tuple[int, ...]] | None) -> tuple[Any, Any]:
        if batch.padded_tokens and columns:
            columns = [(7, 7, 7) if one == (0, 0, 0) else one for one in columns]
        return super().tables(batch, indices, columns)

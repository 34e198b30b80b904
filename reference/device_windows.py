"""What a forward must read, in torch on any device: tables built where they are compared.

Both tables of a forward stand in one tensor, int64 [1 + axes, T]: the 1-D positions first, then the rows. The index
arithmetic is that of the files in spec/modes; the tests hold this equal to the tables in numpy. Every table costs one
copy to the device and about a dozen small kernels, and never waits for it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from reference.timeline import IntArray


class Lines:
    """The columns of a batch's requests, side by side on a device. A request past its table continues by its delta."""

    def __init__(self, tables: Sequence[IntArray], deltas: Sequence[int], device: str | torch.device) -> None:
        """tables: int64 [axes, P] each, on the host; deltas: one per request."""
        self.columns = sent(np.concatenate(tables, axis=1), device)
        self.device = device
        self._widths = [int(table.shape[1]) for table in tables]
        self._deltas = list(deltas)
        self._offsets = [sum(self._widths[:row]) for row in range(len(tables))]

    def windows(self, first: Sequence[int], lens: Sequence[int]) -> torch.Tensor:
        """lens[i] tokens of request i from index first[i], packed."""
        total, start, bases = sum(lens), 0, []
        for index, length in zip(first, lens, strict=True):
            bases.append(index - start)  # a packed column's number + base is its index
            start += length
        numbers = sent(np.array([lens, bases, self._offsets, self._widths, self._deltas], dtype=np.int64), self.device)
        each = numbers[1:, torch.repeat_interleave(numbers[0], output_size=total)]
        return self._take(torch.arange(total, device=self.device) + each[0], each[1], each[2], each[3])

    def offsets_from(self, first: Sequence[int], steps: Sequence[Sequence[int]]) -> torch.Tensor:
        """Token first[i] + s for every s of steps[i], packed: a tree's depths, or a draft's branches."""
        counts = [len(few) for few in steps]
        rows = np.repeat(np.arange(len(counts)), counts)
        offsets = np.array([step for few in steps for step in few], dtype=np.int64)
        each = np.array([first, self._offsets, self._widths, self._deltas], dtype=np.int64)[:, rows]
        each[0] += offsets
        index, offset, width, delta = sent(each, self.device)
        return self._take(index, offset, width, delta)

    def _take(
        self, index: torch.Tensor, offset: torch.Tensor, width: torch.Tensor, delta: torch.Tensor
    ) -> torch.Tensor:
        """Columns of token `index`, where the token's request stands at `offset`. All int64 [T]."""
        held = (index + offset).clamp_(max=self.columns.shape[1] - 1)
        rows = torch.where(index < width, self.columns[:, held], index + delta)
        return torch.cat((index[None], rows))


def sent(array: IntArray, device: str | torch.device) -> torch.Tensor:
    """An array on the device, without waiting for it: through pinned memory."""
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    if torch.device(device).type == "cpu":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)


def widened(table: torch.Tensor, tokens: int) -> torch.Tensor:
    """The table in a buffer of so many columns; what is not live is 0."""
    return torch.nn.functional.pad(table, (0, tokens - table.shape[1]))


def joined(positions: torch.Tensor, rows: torch.Tensor) -> torch.Tensor | None:
    """A copy of both tables as they are now, int64 [1 + axes, T]; None when they cannot be right (dtype, shape)."""
    if positions.dtype != torch.int64 or rows.dtype != torch.int64 or positions.device != rows.device:
        return None
    if positions.ndim != 1 or rows.ndim != 2 or rows.shape[1:] != positions.shape:
        return None
    return torch.cat((positions[None], rows))


def same(seen: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor | None:
    """One flag on the device: whether two tables are equal; None when their widths or rows differ."""
    return (seen == wanted).all() if seen.shape == wanted.shape else None


def read(flags: Sequence[torch.Tensor]) -> list[bool]:
    """Flags of `same`, brought to the host together. Waits for the device."""
    return list(map(bool, torch.stack(list(flags)).tolist())) if flags else []

"""What a forward must read, in torch on any device: tables built where they are compared, one answer back.

The index arithmetic is that of the files in spec/modes; the tests hold this equal to the tables in numpy.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from reference.timeline import IntArray


class Lines:
    """The columns of a batch's requests, side by side on a device. A request past its table continues by its delta."""

    def __init__(self, tables: Sequence[torch.Tensor], deltas: Sequence[int], device: str | torch.device) -> None:
        """tables: int64 [axes, P] each, on the host or the device; deltas: one per request."""
        widths = [int(table.shape[1]) for table in tables]
        self.columns = torch.cat([table.to(device) for table in tables], dim=1)
        numbers = torch.tensor([widths, list(deltas)], dtype=torch.int64).to(device)
        self.widths, self.deltas = numbers[0], numbers[1]
        self.offsets = torch.cumsum(self.widths, 0) - self.widths
        self.device = device

    def take(self, index: torch.Tensor, request: torch.Tensor) -> torch.Tensor:
        """Columns of token `index` [T] of request `request` [T]: int64 [axes, T]."""
        held = (index + self.offsets[request]).clamp_(max=self.columns.shape[1] - 1)
        later = index + self.deltas[request]
        return torch.where(index < self.widths[request], self.columns[:, held], later)

    def windows(self, first: Sequence[int], lens: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """lens[i] tokens of request i from index first[i], packed: (positions [T], rows [axes, T])."""
        numbers = torch.tensor([list(first), list(lens)], dtype=torch.int64).to(self.device)
        total = sum(lens)
        request = torch.repeat_interleave(numbers[1], output_size=total)
        starts = torch.cumsum(numbers[1], 0) - numbers[1]
        index = torch.arange(total, device=self.device) - (starts - numbers[0])[request]
        return index, self.take(index, request)

    def offsets_from(
        self, first: Sequence[int], steps: Sequence[Sequence[int]]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Token first[i] + s for every s of steps[i], packed: a tree's depths, or a draft's branches."""
        flat = [(start + step, row) for row, (start, few) in enumerate(zip(first, steps, strict=True)) for step in few]
        numbers = torch.tensor(flat, dtype=torch.int64).reshape(-1, 2).to(self.device)
        return numbers[:, 0], self.take(numbers[:, 0], numbers[:, 1])


def lines(tables: Sequence[IntArray], deltas: Sequence[int], device: str | torch.device) -> Lines:
    """Lines of tables that are arrays on the host."""
    return Lines([torch.from_numpy(np.array(table)) for table in tables], deltas, device)


def same(seen: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor | None:
    """One flag on the device: whether two tables are equal; None when they cannot be (dtype, shape or device)."""
    if seen.dtype != wanted.dtype or seen.shape != wanted.shape or seen.device != wanted.device:
        return None
    return (seen == wanted).all()

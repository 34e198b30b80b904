"""What forwards must read, in torch on any device: tables built where they are compared.

A forward's tokens are told as spans of its requests' lines; the tables of many forwards are then built together, so
that a device is asked for two copies and about a dozen small kernels, however many forwards there are. Both tables
stand in one tensor, int64 [1 + axes, T]: 1-D positions first, then the rows. The tests hold this equal to the tables
in numpy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from ropecheck.reference.timeline import IntArray


class Span(NamedTuple):
    """`tokens` columns: tokens first, first + step, first + 2 step .. of a line."""

    line: int
    """Which line; NOTHING: columns that hold 0."""
    first: int
    tokens: int
    step: int = 1


NOTHING = -1


def tables(
    spans: Sequence[Span], lines: Sequence[IntArray], deltas: Sequence[int], device: str | torch.device
) -> torch.Tensor:
    """The columns of all spans, packed, int64 [1 + axes, T]. lines: int64 [axes, P] each, on the host; a token past
    its line has its index plus the line's delta on every row. At least one line."""
    blank = np.zeros((lines[0].shape[0], 1), dtype=np.int64)
    columns = sent(np.concatenate((*lines, blank), axis=1), device)  # NOTHING is the last line
    widths = np.array([*(line.shape[1] for line in lines), 1])
    each = np.array(spans, dtype=np.int64).reshape(-1, 4)
    line, first, tokens, step = each.T
    start = np.cumsum(tokens) - tokens
    numbers = np.stack(
        (tokens, first, start, step, (np.cumsum(widths) - widths)[line], widths[line], np.array([*deltas, 0])[line])
    )
    there = sent(numbers, device)
    total = int(tokens.sum())
    mine = there[1:, torch.repeat_interleave(there[0], output_size=total)]
    index = mine[0] + (torch.arange(total, device=device) - mine[1]) * mine[2]
    held = columns[:, (index + mine[3]).clamp_(max=columns.shape[1] - 1)]
    return torch.cat((index[None], torch.where(index < mine[4], held, index + mine[5])))


def sent(array: IntArray, device: str | torch.device) -> torch.Tensor:
    """An array on the device, without waiting for it: through pinned memory."""
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    if torch.device(device).type == "cpu":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)


def joined(positions: torch.Tensor, rows: torch.Tensor) -> torch.Tensor | None:
    """A copy of both tables as they are now, int64 [1 + axes, T]; None when they cannot be right (dtype, shape)."""
    if positions.dtype != torch.int64 or rows.dtype != torch.int64 or positions.device != rows.device:
        return None
    if positions.ndim != 1 or rows.ndim != 2 or rows.shape[1:] != positions.shape:
        return None
    return torch.cat((positions[None], rows))


def right(seen: Sequence[torch.Tensor], wanted: torch.Tensor) -> list[bool]:
    """Whether each of the tables seen equals its part of the wanted one. One flag comes back from the device; only
    when it is set one for each column."""
    same = torch.cat(tuple(seen), dim=1) == wanted
    if bool(same.all()):
        return [True] * len(seen)
    flags, out, start = same.all(dim=0).cpu(), [], 0
    for table in seen:
        stop = start + table.shape[1]
        out.append(bool(flags[start:stop].all()))
        start = stop
    return out

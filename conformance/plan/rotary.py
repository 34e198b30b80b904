"""The rotary embedding against the reference rotation: the steps that a Rotate operation is."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ropecheck.adapters import protocol
from ropecheck.reference.rotary import FAR, LAYOUTS, Floats, bounded
from ropecheck.reference.timeline import IntArray
from ropecheck.spec.rotary import ROWS

HEADS = (7, 3)
"""Of query and key: no power of two, since kernels mask those."""

FEW_HEADS = (2, 1)
"""The same where every head of every token is a program of an interpreted kernel."""

WIDER = 37
"""Columns that the buffer behind a view has beyond the table's own."""


@dataclass(frozen=True, slots=True)
class RotaryCheck:
    """The results from `result` on must be the rotation by this table, by it with row t, h and w moved alone, and by
    it as a view of a wider buffer; of a bounded layout the first alone, whose rows have nowhere to move to. table:
    int64 [3, T]."""

    op: int
    result: int
    req: int
    layout: str
    method: str
    table: IntArray

    @property
    def results(self) -> range:
        """Indices of all results."""
        return range(self.result, self.result + (1 if bounded(self.layout) else len(ROWS) + 2))


def methods(wanted: str, device: str, layout: str) -> tuple[str, ...]:
    """What a method of an operation means on a device. A tensor's lookup past its end would end every later call of a
    process on a GPU: of a bounded layout only the kernel is asked there, and of one that ends far behind others' memory
    nothing."""
    if wanted:
        return (wanted,)
    if layout == "cycled":  # the kernel that knows these sections is Triton's: a CPU interprets it
        return ("native", "device")
    if device != "cpu" and layout == "served":
        return ()
    return ("native",) if device == "cpu" else ("device",) if bounded(layout) else ("native", "device")


def steps(check: RotaryCheck) -> Iterator[protocol.Rotary]:
    """One step for each of the check's results."""
    yield _step(check, check.table)
    if bounded(check.layout):
        return
    for row in range(len(ROWS)):
        moved = check.table.copy()
        moved[row] += FAR
        yield _step(check, moved)
    yield _step(check, check.table, check.table.shape[1] + WIDER)


def _step(check: RotaryCheck, table: IntArray, buffer: int = 0) -> protocol.Rotary:
    layout = LAYOUTS[check.layout]
    query, key = (
        _tensor(part.astype(np.float32).reshape(len(part), -1))
        for part in heads(table.shape[1], layout.head_size, check.method)
    )
    return protocol.Rotary(
        table=_tensor(table),
        query=query,
        key=key,
        head_size=layout.head_size,
        rotary_dim=layout.rotary_dim,
        base=layout.base,
        sections=layout.sections,
        interleaved=layout.arrangement in ("interleaved", "cycled"),
        cycled=layout.arrangement == "cycled",
        alternating=layout.arrangement == "alternating",
        scaling=None if layout.scaling is None else (layout.scaling.factor, layout.scaling.original),
        longest=layout.longest,
        method=check.method,
        buffer=buffer,
    )


@lru_cache(maxsize=64)
def heads(tokens: int, size: int, method: str = "native") -> tuple[Floats, ...]:
    """Query and key, the same every time and without zeros; plus and minus one where a norm comes first. float64
    [T, heads, size] each."""
    each = FEW_HEADS if method == "fused" else HEADS
    counts = [tokens * many * size for many in each]
    numbers = [np.arange(count, dtype=np.float64) * 7919 % 101 for count in counts]
    made = [np.where(number < 50, -1.0, 1.0) if method == "fused" else 1.0 + number / 101 for number in numbers]
    return tuple(part.reshape(tokens, many, size) for part, many in zip(made, each, strict=True))


def _tensor(array: npt.NDArray[Any]) -> protocol.Tensor:
    return protocol.Tensor(array.dtype.name, tuple(array.shape), np.ascontiguousarray(array).tobytes())

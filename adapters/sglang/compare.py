"""Compares a job's tables with the right ones on the device that made them: one upload, one flag back.

The right tables travel with the job (`Forward.expect`). Where the flag says no, whole tables are sent and judged as on
a host.

| spec field | adapter field | engine field |
| --- | --- | --- |
| the right tables | BuildForward.expect | - |
"""

from __future__ import annotations

from typing import Any

import torch

from ropecheck.adapters.protocol import TablePair


class Comparator:
    """The comparisons of one job. Tables are kept as they are now: an engine may go on writing into its own."""

    def __init__(self) -> None:
        self._kept: list[tuple[Any, int, int]] = []
        self._right = bytearray()

    def add(self, right: TablePair, positions: Any, rows: Any) -> bool:
        """Keep both tables for comparison. False where dtypes or shapes differ already: nothing is kept."""
        pairs = ((right.positions, positions), (right.mrope, rows))
        if any((want is None) != (seen is None) for want, seen in pairs):
            return False
        wanted = [(want, seen) for want, seen in pairs if want is not None]
        for want, seen in wanted:
            if str(seen.dtype) != f"torch.{want.dtype}" or tuple(seen.shape) != want.shape or want.dtype != "int64":
                return False
        self._right += b"".join(want.data for want, _ in wanted)
        seen = torch.cat([seen.reshape(-1) for _, seen in wanted])
        self._kept.append((seen, positions.shape[-1], rows.shape[0] if rows is not None else 0))
        return True

    def settle(self) -> list[tuple[Any, Any] | None]:
        """Per table added since the last time: None when both tables are right, else (positions, rows) as they were.
        Waits for the device."""
        if not self._kept:
            return []
        kept, self._kept = self._kept, []
        host, self._right = self._right, bytearray()
        device = kept[0][0].device
        right = torch.frombuffer(host or bytearray(8), dtype=torch.int64)[: len(host) // 8].to(device)
        if torch.equal(torch.cat([seen for seen, _, _ in kept]), right):
            return [None] * len(kept)
        out: list[tuple[Any, Any] | None] = []
        at = 0
        for seen, width, axes in kept:
            good = torch.equal(seen, right[at : at + seen.numel()])
            at += seen.numel()
            rows = seen[width:].view(axes, width) if axes else None
            out.append(None if good else (seen[:width], rows))
        return out

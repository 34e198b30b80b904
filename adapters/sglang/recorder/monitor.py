"""Compare a server's tables where they are: one flag comes back, nobody waits, nothing is written but a count.

Each token's index is what the engine's own 1-D table says; what the three rows must be there follows from the request's
history. (Whether the index is right, and lengths and replies, is what a recording is judged for.)

| spec field | adapter field | engine field |
| --- | --- | --- |
| delta | `Monitor` | - |
| a prompt's columns | `Monitor` | - |

Nothing is faked here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from ropecheck.adapters import events
from ropecheck.adapters.recording import Pending
from ropecheck.adapters.sglang.meter import is_broken_context
from ropecheck.adapters.sglang.recorder.watch import Sink

EVERY = 32
"""Of decodes and verifies every so many are looked at; the others cost one comparison. All others always."""
TOGETHER = 4
"""Forwards of one batch that are compared at once: each leaves its differences, the last gives the verdict."""
NEWS = 4
"""Looks between two copies of the flag."""


class Monitor(Sink):
    """Follows requests by `feed`, asks `place` where they are, and tells `say` once when something was wrong.

    A place has `rows`, the columns of its prompt, one tuple per row, and `delta`, how far text behind them is ahead of
    its index.
    """

    looks = True

    def __init__(
        self,
        feed: Callable[[events.Event], None],
        place: Callable[[str], Any],
        file: Path,
        say: Callable[[str], None],
        every: int = EVERY,
    ) -> None:
        self._feed, self._place, self._file, self._say = feed, place, file, say
        self._every = every
        self.counts: dict[str, int] = {}
        """Mode -> forwards looked at."""
        self._seen = self._steps = 0
        """Forwards, and those of them that may be passed over."""
        self._looks = 0
        self._flag: Any = None
        self._host: Any = None
        self._event: Any = None
        self.wrong = False
        self._reqs: list[str] = []
        """The last batch's requests."""
        self._width = -1
        """Its tokens; -1: nothing of it is known."""
        self._deltas: Any = None
        """Its requests' deltas, [T] on the device."""
        self._differences: Any = None
        """Rows less positions of its forwards that wait for a verdict, [TOGETHER, 3, T]."""
        self._slots: tuple[Any, ...] = ()
        """The forwards of `_differences` one by one, [3, T] each."""
        self._waiting = 0

    def put(self, entry: events.Event | Pending) -> object:
        """Follow an event."""
        if not isinstance(entry, Pending):
            self._feed(entry)
            if isinstance(entry, events.Arrived):
                self._forget()  # a name may come again
        return None

    def passes(self, batch: Any) -> bool:
        """Whether a forward is not looked at."""
        if batch.forward_mode.name not in ("DECODE", "TARGET_VERIFY"):
            return False
        self._steps += 1
        if self._steps % self._every == 0:
            return False
        self._seen += 1
        return True

    def look(self, mode: str, batch: Any, positions: Any, rows: Any) -> None:
        """Compare one forward. positions: int64 [T]; rows: int64 [3, T] or None, on the model's device."""
        self._seen += 1
        if rows is None:
            return
        if mode in ("extend", "mixed"):
            expected = self._columns(batch, batch.extend_seq_lens_cpu, positions)
            if expected is None:
                return
            self._judge(rows != expected)
        else:
            if batch.rids != self._reqs or rows.shape[-1] != self._width:
                self._forget()
                if not self._meet(batch.rids, positions, rows):
                    return
            torch.sub(rows, positions, out=self._slots[self._waiting])
            self._waiting += 1
            if self._waiting == TOGETHER:
                self._settle()
        self.counts[mode] = self.counts.get(mode, 0) + 1
        self._looks += 1
        if self._looks % NEWS == 0:
            self._news()

    def _meet(self, reqs: Sequence[str], positions: Any, rows: Any) -> bool:
        """Get ready for forwards of a batch; False where a request is not known, or one table is too short."""
        if rows.shape[-1] != len(positions):
            self._heard(True)
            return False
        places = [self._place(req) for req in reqs]
        if any(place is None for place in places):
            return False
        each = len(positions) // max(1, len(reqs))
        self._deltas = _there(torch.tensor([place.delta for place in places for _ in range(each)]), positions)
        self._differences = rows.new_empty((TOGETHER, *rows.shape))
        self._slots = self._differences.unbind()
        self._reqs, self._width = list(reqs), len(positions)
        return True

    def _forget(self) -> None:
        """Another batch comes."""
        self._settle()
        self._width = -1

    def _settle(self) -> None:
        """Compare what waits."""
        if self._waiting:
            self._judge(self._differences[: self._waiting] != self._deltas)
            self._waiting = 0

    def _judge(self, wrong: Any) -> None:
        """Keep whether any of these is."""
        if self._flag is None:
            self._flag = torch.zeros((), dtype=torch.bool, device=wrong.device)
        self._flag.logical_or_(wrong.any())

    def _columns(self, batch: Any, windows: Any, positions: Any) -> Any:
        """int64 [3, T] of a batch of windows; None where a request is not known."""
        made: list[list[int]] = [[], [], []]
        for req, start, count in zip(batch.rids, batch.extend_prefix_lens_cpu, windows, strict=True):
            place = self._place(req)
            if place is None:
                return None
            first, stop, width = int(start), int(start) + int(count), len(place.rows[0])
            for axis, row in enumerate(place.rows):
                made[axis] += row[first:stop]
                made[axis] += (index + place.delta for index in range(max(first, width), stop))
        return _there(torch.tensor(made), positions)

    def _news(self, wait: bool = False) -> None:
        """Ask for the flag, and read the one that was asked for before."""
        if self._flag is None:
            return
        if self._event is None:
            if self._flag.device.type == "cpu":
                self._heard(bool(self._flag))
                return
            self._host = torch.zeros((), dtype=torch.bool, pin_memory=True)
            self._event = torch.cuda.Event()
        elif wait or self._event.query():
            if wait:
                self._event.synchronize()
            self._heard(bool(self._host))
        self._host.copy_(self._flag, non_blocking=True)
        self._event.record()

    def _heard(self, wrong: bool) -> None:
        if wrong and not self.wrong:
            self.wrong = True
            self._say("ropecheck: a forward read wrong positions; record the same load to see which")
            self._write()

    def _write(self) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text(json.dumps({"wrong": self.wrong, "looked_at": self.counts, "forwards": self._seen}))

    def close(self) -> None:
        """Read the flag a last time, and write what was looked at."""
        try:
            if self._flag is not None and self._flag.device.type != "cpu":
                torch.cuda.synchronize()  # the last forwards' stream is not this one
            self._settle()
            self._news(wait=True)
            self._news(wait=True)
        except RuntimeError as error:
            if not is_broken_context(error):  # after which nothing can be read any more
                raise
        self._write()

    def failed(self, error: Exception) -> None:
        """The monitor itself failed."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.with_suffix(".error.txt").write_text(f"{type(error).__name__}: {error}\n", encoding="utf-8")


def _there(values: Any, beside: Any) -> Any:
    """Host values on the device of a tensor, without a wait."""
    if beside.device.type == "cpu":
        return values
    return values.pin_memory().to(beside.device, non_blocking=True)

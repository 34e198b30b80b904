"""What a worker prints. It comes through a pipe, so that an engine that prints without end fills no disk and an engine
on a full disk does not fail for it: a log file of bounded size gets its beginning and its end."""

import contextlib
import os
from pathlib import Path

from ropecheck.conformance.run.pipes import CHUNK, larger

FIRST = 1 << 20
"""Bytes of one worker that go into the log as they come."""
LAST = 1 << 16
"""Bytes of its end that follow when it has ended."""
LARGEST = 8 << 20
"""Bytes of a log file; then it is put aside as NAME.1, and the one put aside before is gone."""


class Printed:
    """The runner's end of one worker's standard output. `write_end` is the worker's, which `started` closes here."""

    def __init__(self, log: Path) -> None:
        self.path = log
        self.read_end, self.write_end = os.pipe()
        os.set_blocking(self.read_end, False)
        larger(self.read_end)
        self.ended = False
        self._came = 0
        self._last = bytearray()
        with contextlib.suppress(OSError):
            if log.stat().st_size > LARGEST:
                log.replace(log.with_name(f"{log.name}.1"))

    def started(self) -> None:
        """The worker has its end now."""
        os.close(self.write_end)
        self.write_end = -1

    def drain(self) -> None:
        """Take what is in the pipe."""
        while not self.ended:
            try:
                chunk = os.read(self.read_end, CHUNK)
            except BlockingIOError:
                return
            except OSError:
                chunk = b""
            self.ended = not chunk
            if self._came < FIRST:
                self._write(chunk[: FIRST - self._came])
            self._came += len(chunk)
            self._last = (self._last + chunk)[-LAST:]

    def last_words(self, lines: int) -> str:
        """The last lines that came, on one line; "" for none."""
        self.drain()
        text = self._last[-4096:].decode("utf-8", "replace")
        words = [line.strip() for line in text.splitlines() if line.strip()]
        return " / ".join(line[:300] for line in words[-lines:])

    def close(self) -> None:
        """The worker is dead: write the end of what it printed."""
        self.drain()
        if left_out := max(0, self._came - FIRST - LAST):
            self._write(f"\n[ropecheck: {left_out} bytes left out]\n".encode())
        if self._came > FIRST:
            self._write(bytes(self._last[-(self._came - FIRST) :]))
        for fd in (self.read_end, self.write_end):
            if fd >= 0:
                os.close(fd)
        self.ended, self.read_end, self.write_end = True, -1, -1

    def _write(self, data: bytes) -> None:
        """A log that cannot be written costs no run: the last words are in memory."""
        if data:
            with contextlib.suppress(OSError), self.path.open("ab") as file:
                file.write(data)

"""A stream of events on its way to files: in order, bounded, never in the way of whoever writes it. No engine here.

`put` appends to a bounded queue and returns; a thread writes. What finds the queue full is dropped and counted, and the
count stands in the stream where the events are missing (`events.Dropped`). Files rotate: each begins with the header
and its number, and only the last few stay.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Protocol, runtime_checkable

import msgspec

from ropecheck.adapters import events

LARGEST = 64 << 20
"""Bytes of one file."""
KEEP = 8
"""Files of one stream that stay."""
WAITING = 20_000
"""Events that may wait to be written."""
PAUSE = 0.02
"""Seconds between two looks at the queue."""
SUFFIX = ".ndjson"


@runtime_checkable
class Pending(Protocol):
    """What may wait in a stream: an event that is not complete yet. Later ones wait for it."""

    def ready(self) -> bool:
        """Whether `event` can be asked for without waiting."""

    def wait(self) -> bool:
        """Wait for what comes by itself (a copy from a device); False: what is missing the engine has yet to say."""

    def event(self) -> events.Event:
        """The complete event."""


class Stream:
    """One stream; one thread puts, one writes."""

    def __init__(
        self,
        folder: Path,
        header: events.TraceHeader,
        name: str,
        *,
        largest: int = LARGEST,
        keep: int = KEEP,
        waiting: int = WAITING,
        listener: Callable[[events.Event], None] | None = None,
        thread: bool = True,
    ) -> None:
        """Files `name.NNNN.ndjson` in the folder.

        listener: is shown every event once it is written. thread: False: nothing is written until `pump` is called,
        which then raises what the listener raises. Raises OSError when the first file cannot be written.
        """
        self._folder, self._header, self._name = folder, header, name
        self._largest, self._keep, self._waiting = largest, max(1, keep), waiting
        self._listener = listener
        self._queue: deque[events.Event | Pending] = deque()
        self._missing = 0
        self.dropped = 0
        """Events that were never written."""
        self._part = -1
        self._size = 0
        self._file: BinaryIO | None = None
        folder.mkdir(parents=True, exist_ok=True)
        self._next_file()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        if thread:
            self._thread = threading.Thread(target=self._run, name="ropecheck-recorder", daemon=True)
            self._thread.start()

    @property
    def path(self) -> Path:
        """The file that is being written."""
        return self._folder / f"{self._name}.{max(0, self._part):04d}{SUFFIX}"

    def put(self, entry: events.Event | Pending) -> bool:
        """Append; False: there was no room, and the event is counted instead."""
        room = self._waiting - len(self._queue)
        if room <= 0 or (self._missing and room < 2):
            self._missing += 1
            self.dropped += 1
            return False
        if self._missing:
            self._queue.append(events.Dropped(events=self._missing))
            self._missing = 0
        self._queue.append(entry)
        return True

    def pump(self, wait: bool = False) -> None:
        """Write what is complete, up to the first event that is not. wait: for copies that are under way."""
        lines: list[bytes] = []
        while self._queue:
            entry = self._queue[0]
            if isinstance(entry, Pending):
                if not entry.ready() and not (wait and entry.wait()):
                    break
                entry = entry.event()
            self._queue.popleft()
            lines.append(events.line(entry))
            if self._listener is not None:
                self._write(lines)
                lines.clear()
                self._listener(entry)
        self._write(lines)

    def close(self, seconds: float = 2.0) -> None:
        """Write what is complete within so many seconds, then close the file. What is left is counted as dropped."""
        if self._missing:
            self._queue.append(events.Dropped(events=self._missing))
            self._missing = 0
        self._closing.set()
        if self._thread is not None:
            self._thread.join(seconds)
        else:
            self.pump(wait=True)
        if self._file is not None and (self._thread is None or not self._thread.is_alive()):
            self._file.close()
            self._file = None

    def _run(self) -> None:
        while not self._closing.is_set():
            self._attempt()
            time.sleep(PAUSE)
        self._attempt(wait=True)

    def _attempt(self, wait: bool = False) -> None:
        """A fault of the recorder's own, or a full disk, ends the recording, never the engine."""
        try:
            self.pump(wait)
        except Exception as error:
            self._queue.clear()
            self._waiting = 0
            with contextlib.suppress(OSError):
                (self._folder / f"{self._name}.error.txt").write_text(f"{type(error).__name__}: {error}\n")

    def _write(self, lines: list[bytes]) -> None:
        if not lines:
            return
        if self._file is None or self._size >= self._largest:
            self._next_file()
        assert self._file is not None
        data = b"".join(lines)
        self._file.write(data)
        self._file.flush()
        self._size += len(data)

    def _next_file(self) -> None:
        if self._file is not None:
            self._file.close()
        self._part += 1
        with contextlib.suppress(OSError):
            (self._folder / f"{self._name}.{self._part - self._keep:04d}{SUFFIX}").unlink(missing_ok=True)
        self._file = self.path.open("wb")
        head = events.line(msgspec.structs.replace(self._header, part=self._part))
        self._size = self._file.write(head)
        self._file.flush()

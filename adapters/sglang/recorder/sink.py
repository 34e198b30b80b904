"""Where a process's events go: files, and in between a judge that may stop the engine.

| spec field | adapter field | engine field |
| --- | --- | --- |
| - | `Files` | - |

Nothing is faked here.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable
from pathlib import Path

from ropecheck.adapters import events
from ropecheck.adapters.recording import LARGEST, Pending, Stream
from ropecheck.adapters.sglang.recorder.watch import Sink, Stop


class Files(Sink):
    """A stream of files. With a judge, each event is judged once it is complete, in the engine's own thread."""

    def __init__(
        self,
        folder: Path,
        header: events.TraceHeader,
        name: str,
        *,
        largest: int = LARGEST,
        judge: Callable[[events.Event], str] | None = None,
    ) -> None:
        """judge: says what is wrong with an event, "" for nothing. Raises OSError when nothing can be written."""
        self._judge = judge
        self._wrong = ""
        self.stream = Stream(
            folder, header, name, largest=largest, listener=self._look if judge else None, thread=judge is None
        )
        if judge is not None:
            judge(header)
        atexit.register(self.close)

    def put(self, entry: events.Event | Pending) -> object:
        """Take an event. Raises Stop once something was wrong."""
        return self.stream.put(entry)

    def settle(self) -> None:
        """With a judge: judge what is complete. Raises Stop, naming rule, shape, witness and file."""
        if self._judge is None:
            return
        self.stream.pump(wait=True)
        if self._wrong:
            raise Stop(f"{self._wrong}\n  recorded in {self.stream.path}; `ropecheck trace check` shows all of it")

    def close(self) -> None:
        """Write the rest."""
        self.stream.close()

    def failed(self, error: Exception) -> None:
        """The recorder itself failed: say so beside the files."""
        self.stream.close()
        self.stream.path.with_suffix(".error.txt").write_text(f"{type(error).__name__}: {error}\n", encoding="utf-8")

    def _look(self, event: events.Event) -> None:
        if self._judge is not None and not self._wrong:
            self._wrong = self._judge(event)

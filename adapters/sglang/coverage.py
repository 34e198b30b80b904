"""Which lines of the engine's position code ran: for searches that follow coverage. On where ROPECHECK_COVER is set.

Position code is every file of the engine that mentions M-RoPE. Only the functions of those files are traced; a
call of anything else costs a dictionary look-up.

| spec field | adapter field | engine field |
| --- | --- | --- |
| - | JobAnswer.covered | `sglang/srt/**/*.py` that mention "mrope" |

Nothing is faked here.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

VARIABLE = "ROPECHECK_COVER"


class Coverage:
    """Lines by file, of one job at a time."""

    def __init__(self) -> None:
        import sglang

        root = Path(str(sglang.__file__)).parent
        self._files = {
            str(path): path.relative_to(root).as_posix()
            for path in sorted(root.rglob("*.py"))
            if "mrope" in path.read_text("utf-8", "replace")
        }
        self._names: dict[CodeType, str | None] = {}
        self._lines: set[tuple[str, int]] = set()

    def start(self) -> None:
        """Begin with nothing."""
        self._lines = set()
        sys.settrace(self._call)

    def stop(self) -> dict[str, tuple[int, ...]]:
        """File -> lines that ran since `start`."""
        sys.settrace(None)
        found: dict[str, list[int]] = {}
        for file, line in sorted(self._lines):
            found.setdefault(file, []).append(line)
        return {file: tuple(lines) for file, lines in found.items()}

    def _call(self, frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        if code in self._names:
            name = self._names[code]
        else:
            name = self._names[code] = self._files.get(code.co_filename)
        return self._line if name is not None else None

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            name = self._names[frame.f_code]
            assert name is not None
            self._lines.add((name, frame.f_lineno))
        return self._line


def wanted() -> bool:
    """Whether the runner asked for it."""
    return bool(os.environ.get(VARIABLE))

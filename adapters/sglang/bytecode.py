"""Compiled modules of checkouts, kept by what their source is: another commit, worktree or base compiles what differs.

A checkout's own `__pycache__` is neither read nor written.

| spec field | adapter field | engine field |
| --- | --- | --- |
| - | - | every `.py` of the checkout that is imported |

Nothing is faked here.
"""

from __future__ import annotations

import hashlib
import os
import sys
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES, ExtensionFileLoader, FileFinder, SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

VARIABLE = "ROPECHECK_BYTECODE"
"""The folder that they are kept in; without it nothing is kept."""


class Loader(SourceFileLoader):
    """As Python's own, with the time of a source replaced by a digest in its compiled file's name."""

    def path_stats(self, path: Any) -> dict[str, int]:
        """Of a source: the same for the same bytes."""
        source = self.get_data(path)
        self._digest = hashlib.sha256(source).hexdigest()
        return {"mtime": 0, "size": len(source)}

    def get_code(self, fullname: str) -> CodeType | None:
        """Keeps it even where Python is told to leave no compiled files beside sources."""
        held, sys.dont_write_bytecode = sys.dont_write_bytecode, False
        try:
            return super().get_code(fullname)
        finally:
            sys.dont_write_bytecode = held

    def get_data(self, path: Any) -> bytes:
        """A source, or what is kept of it."""
        return super().get_data(self._kept(path) if str(path).endswith(".pyc") else path)

    def set_data(self, path: Any, data: Any, *, _mode: int = 0o666) -> None:
        """Keep it. Where that cannot be, it only costs time."""
        super().set_data(self._kept(path), data, _mode=_mode)

    def _kept(self, path: str) -> str:
        version = Path(path).name.partition(".")[2]  # "cpython-311.pyc"
        return str(Path(os.environ[VARIABLE]) / self._digest[:2] / f"{self._digest[2:]}.{version}")


def keep(folder: str) -> None:
    """From now on for everything that is imported from this folder."""
    if not os.environ.get(VARIABLE):
        return
    loaders: tuple[Any, ...] = ((ExtensionFileLoader, EXTENSION_SUFFIXES), (Loader, SOURCE_SUFFIXES))

    def finder(path: str) -> FileFinder:
        if Path(folder) not in (Path(path), *Path(path).parents):
            raise ImportError(f"{path} is not in {folder}")
        return FileFinder(path, *loaders)

    sys.path_hooks.insert(0, finder)

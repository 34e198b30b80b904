"""Which functions of an engine ran in this process, while somebody asks."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import ropecheck

_OURS = tuple(str(path.resolve()) for path in Path(ropecheck.__file__).parent.iterdir() if path.is_dir())
_LIBRARY = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib"))
_NUMBERS = ("numpy", "torch", "jax", "jaxlib", "triton")
"""Packages that make tables for everybody: never where the mistake is."""


@contextmanager
def functions(found: list[str]) -> Iterator[None]:
    """Add "file.py:LINE name" of every function that is called, once each, in the order of their first calls. The
    suite, the standard library and array packages do not count."""

    def called(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and not code.co_name.startswith("<") and (place := _place(code.co_filename)):
            name = f"{place}:{code.co_firstlineno} {code.co_qualname}"
            if name not in found:
                found.append(name)

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        yield
    finally:
        sys.setprofile(before)


@cache
def _place(file: str) -> str:
    """The file from the folder on that Python found it in; "" for what does not count."""
    path = Path(file).resolve()
    if not path.is_file() or any(path.is_relative_to(folder) for folder in _OURS):
        return ""
    folders = [folder for folder in map(_folder, sys.path) if path.is_relative_to(folder)]
    if not folders:
        return path.name
    best = max(folders, key=lambda folder: len(folder.parts))
    if str(best) in _LIBRARY or best.name == "lib-dynload":
        return ""
    place = path.relative_to(best)
    return "" if place.parts[0] in _NUMBERS else str(place)


def _folder(entry: str) -> Path:
    return Path(entry or ".").resolve()

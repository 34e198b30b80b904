"""Which suite and which specification a result came from."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import metadata
from pathlib import Path

from ropecheck import spec


@cache
def suite_version() -> str:
    """Version of the installed package; "0+source" when it runs from a tree that is not installed."""
    try:
        return metadata.version("ropecheck")
    except metadata.PackageNotFoundError:
        return "0+source"


@cache
def spec_hash() -> str:
    """12 hex digits over the specification's source files, names and contents."""
    total = hashlib.sha256()
    root = Path(spec.__file__).parent
    for path in sorted(root.rglob("*.py")):
        total.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return total.hexdigest()[:12]

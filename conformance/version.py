"""Which suite and which specification a result came from."""

import hashlib
from functools import cache
from importlib import metadata
from pathlib import Path

from ropecheck import spec

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("adapters", "conformance", "reference", "spec")
SILENT = ("adopt", "book", "bundle", "cli", "report", "vectors", "matrix/bisect.py", "matrix/render.py")
"""Folders and files of `conformance` that show results or have nothing to do with a run: they change no column."""


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


def suite_hash(root: Path = ROOT) -> str:
    """A hash of every source under `root` that can change a verdict or a column."""
    total = hashlib.sha256()
    silent = [root / "conformance" / name for name in SILENT]
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            if not any(path == one or one in path.parents for one in silent):
                total.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return total.hexdigest()[:16]

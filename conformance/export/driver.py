"""What drives the engine, packed: the adapter of SGLang knows nothing but its protocol, so it can travel alone."""

import base64
import io
import zipfile
from functools import cache
from pathlib import Path

from ropecheck import adapters

PARTS = ("*.py", "sglang*/**/*.py", "toys/*.py")
"""Files of the adapter that a job may need."""
COLUMNS = 100


@cache
def driver() -> bytes:
    """A zip of the adapter as the package `ropecheck.adapters`; the same sources give the same bytes."""
    root = Path(adapters.__file__).parent
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        _add(archive, "ropecheck/__init__.py", b"")
        for part in PARTS:
            for path in sorted(root.glob(part)):
                _add(archive, f"ropecheck/adapters/{path.relative_to(root).as_posix()}", path.read_bytes())
    return packed.getvalue()


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)


def as_lines(data: bytes) -> list[str]:
    """Base64 in short lines."""
    text = base64.b64encode(data).decode()
    return [text[at : at + COLUMNS] for at in range(0, len(text), COLUMNS)]

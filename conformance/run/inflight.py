"""The scenarios that workers are running, on disk before they are sent: what killed the machine stays findable.

One file per place in a worker's queue, memory-mapped and overwritten in place, so that a scenario costs a copy and
no system call. The rest of a file is newlines, which JSON allows.
"""

import hashlib
import mmap
from pathlib import Path

import msgspec

from ropecheck.conformance.errors import UsageError, naming
from ropecheck.conformance.store.files import read_any, subject_of
from ropecheck.conformance.subject import Subject

_START_BYTES = 1 << 14

_encoder = msgspec.json.Encoder()


def rescue(out: Path) -> list[Path]:
    """Put aside, as OUT/unfinished/ID.json, what an earlier run into OUT had in flight when it was killed; where it
    is now. What cannot be read is kept as it is."""
    kept = []
    for path in sorted((out / "in-flight").glob("*.json")):
        if not path.read_bytes().strip():
            continue
        try:
            stored = read_any(path)
            name = f"{subject_of(stored).id}.json"
        except UsageError:
            name = f"{path.stem}-{hashlib.sha256(path.read_bytes()).hexdigest()[:12]}.json"
        (out / "unfinished").mkdir(exist_ok=True)
        kept.append(path.replace(out / "unfinished" / name))
    return kept


class Slot:
    """One file that holds one scenario as JSON."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._used = 0
        self._map = self._open(_START_BYTES)

    def _open(self, size: int) -> mmap.mmap:
        with naming(self._path), self._path.open("wb") as file:
            file.write(b"\n" * size)
        with self._path.open("r+b") as file:
            return mmap.mmap(file.fileno(), size)

    def write(self, scenario: Subject) -> None:
        """Put the scenario on disk in place of the last one."""
        body = _encoder.encode(scenario)
        if len(body) > len(self._map):
            self._map.close()
            self._map = self._open(2 * len(body))
            self._used = 0
        if len(body) < self._used:
            self._map[len(body) : self._used] = b"\n" * (self._used - len(body))
        self._map[: len(body)] = body
        self._used = len(body)

    def remove(self) -> None:
        """Nothing is in flight here any more."""
        self._map.close()
        self._path.unlink(missing_ok=True)

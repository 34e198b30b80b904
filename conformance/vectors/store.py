"""Vector files: FOLDER/ID.json. Reading names file and field; writing never overwrites other content unasked."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

import ropecheck
from ropecheck.conformance.errors import UsageError, json_of
from ropecheck.conformance.store.files import pretty, write_atomic
from ropecheck.conformance.vectors import types as v

DEFAULT = Path("vectors")

PACKAGED = Path(ropecheck.__file__).parent / "vectors"
"""The committed set, in a checkout and in a wheel."""
"""Where the vectors of this repository are."""


def read(path: Path) -> v.Vector:
    """One vector. Raises UsageError naming file and field."""
    return json_of(path, v.Vector)


def paths(where: Path, but: Path | None = None) -> tuple[Path, ...]:
    """The vector files of a folder and of those in it, or the file itself. Raises UsageError when there is no such
    place. `but`: a file that lies among them and is none."""
    if where.is_file():
        return (where,)
    if not where.is_dir():
        raise UsageError(f"{where}: no such file or folder")
    skip = None if but is None else but.resolve()
    return tuple(path for path in sorted(where.rglob("*.json")) if path.resolve() != skip)


def path_of(folder: Path, vector: v.Vector) -> Path:
    """Where a vector lies."""
    return folder / v.folder_of(vector.input) / f"{vector.id}.json"


def encoded(vector: v.Vector) -> bytes:
    """The file."""
    return pretty(vector)


@dataclass(slots=True, kw_only=True)
class Changes:
    """What writing a set of vectors into a folder would do."""

    new: list[v.Vector] = field(default_factory=list)
    same: list[Path] = field(default_factory=list)
    """Already there; the hash of the specification alone may differ, see `same_but_for_spec`."""
    other: list[tuple[Path, v.Vector]] = field(default_factory=list)
    """There, with other content."""
    left_over: list[Path] = field(default_factory=list)
    """Vector files that are none of the set."""


def changes(folder: Path, vectors: Sequence[v.Vector]) -> Changes:
    """Compare a set with a folder. Raises UsageError when a path of the set is no file."""
    out = Changes()
    wanted = set()
    for vector in vectors:
        path = path_of(folder, vector)
        wanted.add(path)
        if path.exists() and not path.is_file():
            raise UsageError(f"{path}: is in the way: not a file")
        if not path.exists():
            out.new.append(vector)
        elif same_but_for_spec(path, vector):
            out.same.append(path)
        else:
            out.other.append((path, vector))
    if folder.is_dir():
        found = (path for name in v.folders() for path in sorted((folder / name).glob("*.json")))
        out.left_over = [path for path in found if path not in wanted]
    return out


def same_but_for_spec(path: Path, vector: v.Vector) -> bool:
    """Whether a file holds this vector. The hash of the specification may differ: `lint` shows that the vector still
    holds, and a file that changed with every edit of the specification would hide the changes that count."""
    data = path.read_bytes()
    try:
        there = msgspec.json.decode(data, type=v.Vector)
    except msgspec.DecodeError:
        return False
    provenance = msgspec.structs.replace(vector.provenance, spec=there.provenance.spec)
    return data == encoded(msgspec.structs.replace(vector, provenance=provenance))


def write(folder: Path, vectors: Iterable[v.Vector]) -> int:
    """Write vectors; returns the bytes written. Raises UsageError when the folder cannot be written."""
    total = 0
    for vector in vectors:
        data = encoded(vector)
        try:
            write_atomic(path_of(folder, vector), data)
        except OSError as error:
            raise UsageError(f"{path_of(folder, vector)}: {error.strerror or error}") from error
        total += len(data)
    return total

"""A corpus on disk: one file per scenario, named by its content, and what each one reached of which engine.

    DIR/scenarios/ab/abcdef012345.json             the scenario or case alone, as `ropecheck replay` reads it
    DIR/reached/sglang 0.5.23 cpu/ab/abcdef012345.json   the names of what it reached there

Writers never change a file: a scenario's name is its content, and one that is there already is left. So any number of
processes on any number of machines may add to one folder at a time, and readers never meet half a file.
"""

import contextlib
import os
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ropecheck.conformance.errors import UsageError
from ropecheck.conformance.store.files import pretty, read_any, subject_of
from ropecheck.conformance.subject import Subject, size_of

DEFAULT = Path(".ropecheck") / "corpus"


@dataclass(frozen=True, slots=True)
class Corpus:
    """The corpus in a folder, which need not be there yet."""

    folder: Path

    def add(self, subject: Subject, engine: str = "", reached: Iterable[str] = ()) -> bool:
        """Keep a scenario, and what it reached of an engine if that is known. True when the scenario is new here.

        Raises OSError when the folder cannot be written.
        """
        new = _put(self._scenario(subject.id), pretty(subject))
        if engine:
            _put(self._reached(engine, subject.id), msgspec.json.encode(sorted(reached)) + b"\n")
        return new

    def ids(self) -> list[str]:
        """Of every scenario, in order."""
        return sorted(path.stem for path in (self.folder / "scenarios").glob("??/*.json"))

    def subjects(self) -> Iterator[Subject]:
        """Every scenario, by id. Raises UsageError for a file that is none, or whose name is not its content."""
        for id in self.ids():
            path = self._scenario(id)
            try:
                stored = read_any(path)
            except UsageError:
                if not path.exists():  # removed by a minimisation meanwhile
                    continue
                raise
            subject: Subject = subject_of(stored)
            if subject.id != id:
                raise UsageError(f"{path}: its content has id {subject.id}; add it again with `ropecheck corpus add`")
            yield subject

    def engines(self) -> list[str]:
        """Engines for which it is known what scenarios reach."""
        return sorted(path.name for path in (self.folder / "reached").glob("*") if path.is_dir())

    def reached(self, engine: str) -> dict[str, frozenset[str]]:
        """Id -> what the scenario reached of an engine; of the scenarios for which that is known."""
        found = {}
        for id in self.ids():
            with contextlib.suppress(FileNotFoundError):
                body = self._reached(engine, id).read_bytes()
                try:
                    found[id] = frozenset(msgspec.json.decode(body, type=list[str]))
                except msgspec.DecodeError as error:
                    raise UsageError(f"{self._reached(engine, id)}: not a list of names: {error}") from error
        return found

    def remove(self, id: str) -> None:
        """Forget a scenario and what it reached."""
        for path in (self._scenario(id), *(self._reached(engine, id) for engine in self.engines())):
            path.unlink(missing_ok=True)

    def _scenario(self, id: str) -> Path:
        return self.folder / "scenarios" / id[:2] / f"{id}.json"

    def _reached(self, engine: str, id: str) -> Path:
        return self.folder / "reached" / engine / id[:2] / f"{id}.json"


def engine_name(target: str, version: str, device: str) -> str:
    """As `reached` names an engine."""
    return f"{target} {version} {device}".replace("/", "_")


def _put(path: Path, body: bytes) -> bool:
    """Write a file whole, unless it is there. The temporary's name is no other writer's, on any machine."""
    if path.exists():
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{uuid.uuid4().hex}")
    try:
        temporary.write_bytes(body)
        os.link(temporary, path)  # fails when somebody else was first: their content is the same
    except FileExistsError:
        return False
    finally:
        temporary.unlink(missing_ok=True)
    return True


def minimal(reached: dict[str, frozenset[str]], sizes: dict[str, tuple[int, int, str]]) -> set[str]:
    """Ids of scenarios that together reach all that the corpus reaches, small ones first.

    Each name is reached by the smallest scenario that does; then, largest first, a scenario goes whose names are all
    reached by others that stay. None of the rest can go without a loss.
    """
    smallest: dict[str, str] = {}
    for id in sorted(reached, key=sizes.__getitem__):
        for name in reached[id]:
            smallest.setdefault(name, id)
    kept = set(smallest.values())
    times: dict[str, int] = {}
    for id in kept:
        for name in reached[id]:
            times[name] = times.get(name, 0) + 1
    for id in sorted(kept, key=sizes.__getitem__, reverse=True):
        if all(times[name] > 1 for name in reached[id]):
            kept.discard(id)
            for name in reached[id]:
                times[name] -= 1
    return kept


def minimise(corpus: Corpus) -> list[str]:
    """Remove what reaches nothing that others do not, on any engine; returns the ids. What was never run stays."""
    sizes = {subject.id: size_of(subject) for subject in corpus.subjects()}
    known: set[str] = set()
    kept: set[str] = set()
    for engine in corpus.engines():
        reached = {id: names for id, names in corpus.reached(engine).items() if id in sizes}
        known |= set(reached)
        kept |= minimal(reached, sizes)
    removed = sorted(known - kept)
    for id in removed:
        corpus.remove(id)
    return removed

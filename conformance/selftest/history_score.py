"""The score on bugs that really happened: which of them does a default run catch?

`data/history.toml` names each bug, the last version that has it, the first that has not, and the rule and signature
that must tell them apart. Caught: the run fails with that rule and signature on the wrong version, and not on the
right one, where the rule is checked.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from ropecheck.conformance.errors import UsageError
from ropecheck.conformance.matrix.matrix import Cell, Column, state
from ropecheck.conformance.targets.pip_overlay import version_key
from ropecheck.conformance.versions import is_version

FILE = Path(__file__).parents[1] / "data" / "history.toml"


class Bug(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One past bug of SGLang."""

    id: str
    title: str
    links: tuple[str, ...]
    kind: str
    """Its class: "mis-sized", "aliasing", "stale", "routing", "sync", ..."""
    wrong: str = ""
    """The last release that has it; "" when no release of the range shows it."""
    right: str = ""
    """The first release without it; "" when it is still there."""
    since: str = ""
    """The first release of the range that has it."""
    rule: str = ""
    mode: str = ""
    signature: str = ""
    missed: str = ""
    """Why no scenario of this suite can catch it."""


class Judged(msgspec.Struct, frozen=True):
    """A bug and what became of it. state: "caught", "missed", "not run"."""

    bug: Bug
    state: str
    why: str


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    bug: tuple[Bug, ...]


def load(path: Path = FILE) -> tuple[Bug, ...]:
    """The bugs of the file. Raises UsageError naming file and field."""
    try:
        bugs = msgspec.convert(tomllib.loads(path.read_text("utf-8")), _File).bug
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise UsageError(f"{path}: {error}") from error
    seen: set[str] = set()
    for bug in bugs:
        if bug.id in seen:
            raise UsageError(f"{path}: bug {bug.id} is there twice")
        seen.add(bug.id)
        if not bug.missed and not (bug.rule and bug.mode and bug.signature and bug.wrong):
            raise UsageError(f"{path}: bug {bug.id}: rule, mode, signature and wrong are needed, or missed says why")
        for field in ("wrong", "right", "since"):
            value = getattr(bug, field)
            if value and not is_version(value):
                raise UsageError(f"{path}: bug {bug.id}: {field}: {value!r} is not a version")
    return bugs


def versions_needed(bugs: tuple[Bug, ...]) -> list[str]:
    """The releases that the score has to run, oldest first."""
    needed = {version for bug in bugs if not bug.missed for version in (bug.wrong, bug.right) if version}
    return sorted(needed, key=version_key)


def judge(bug: Bug, columns: Mapping[str, Column]) -> Judged:
    """What the runs say about the bug. columns: by version."""
    if bug.missed:
        return Judged(bug, "missed", bug.missed)
    for version in filter(None, (bug.wrong, bug.right)):
        if version not in columns:
            return Judged(bug, "not run", f"sglang=={version} is not provisioned")
        if columns[version].problem:
            return Judged(bug, "not run", f"{version}: {columns[version].problem}")
    if not _fails(bug, columns[bug.wrong]):
        found, why = state(columns[bug.wrong], bug.rule)
        return Judged(bug, "missed", f"{bug.wrong} does not fail so: {found} ({why})")
    if not bug.right:
        return Judged(bug, "caught", f"fails on {bug.wrong}; no release is right yet")
    if _fails(bug, columns[bug.right]):
        return Judged(bug, "missed", f"{bug.right} still fails so")
    if not columns[bug.right].cells.get(bug.rule, Cell(0)).checked:
        return Judged(bug, "missed", f"{bug.right} never reaches {bug.rule}")
    return Judged(bug, "caught", f"fails on {bug.wrong}, right on {bug.right}")


def _fails(bug: Bug, column: Column) -> bool:
    cell = column.cells.get(bug.rule, Cell(0))
    return any((shape.mode, shape.signature) == (bug.mode, bug.signature) for shape in cell.failures)


def lines(judged: list[Judged]) -> list[str]:
    """The score for people: one line per bug, and the sum."""
    width = max((len(one.bug.id) for one in judged), default=0)
    found = [
        f"{one.state:8} {one.bug.id:{width}}  {one.bug.title}: {one.bug.rule or one.bug.kind}"
        f"{', ' + one.bug.signature if one.bug.signature else ''} ({one.why})"
        for one in judged
    ]
    caught = sum(one.state == "caught" for one in judged)
    not_run = sum(one.state == "not run" for one in judged)
    found.append(f"caught {caught} of {len(judged)} past bugs" + (f"; {not_run} not run" if not_run else ""))
    return found

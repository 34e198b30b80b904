"""The known-failure list: one TOML file per bug, with the scenario that shows it beside it.

An entry says which failure is expected of which versions of which target, why the expected value is right, and where
the bug is reported. Its witness is replayed first in every run; when it passes, or fails in another way, the run
fails: a list that nobody must clean hides the next bug.
"""

import datetime
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from ropecheck.conformance.errors import UsageError, meant, toml_of
from ropecheck.conformance.families.case import Case
from ropecheck.conformance.judge.outcome import Failure, Outcome
from ropecheck.conformance.known.base import alike
from ropecheck.conformance.known.differences import KnownDifference
from ropecheck.conformance.known.model import BUGS
from ropecheck.conformance.known.scheduler import SCHEDULER_BUGS
from ropecheck.conformance.scenario.operations import Scenario
from ropecheck.conformance.scripts.script import Script
from ropecheck.conformance.store.files import pretty, read_any, subject_of, write_atomic
from ropecheck.conformance.versions import parse_range, within
from ropecheck.spec.aliases import todays
from ropecheck.spec.rules import all_rules

CAUSES = BUGS | SCHEDULER_BUGS
"""Every cause by its name, and what comes out."""

FOLDER = Path(__file__).parents[1] / "data" / "known"
"""The list that ships with the suite."""


class Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One bug that is expected."""

    rule: str
    mode: str
    signature: str
    target: str
    versions: str = ""
    """The versions that have it, such as ">=0.5.20,<=0.5.23"; "" for all."""
    device: str = ""
    """"cpu" or "cuda" where only that device shows it; "" for both."""
    reason: str
    """How the right value follows, in words that convince without running anything."""
    link: str
    first_seen: datetime.date
    expires: datetime.date | None = None
    witness: str
    """File name of a scenario beside the entry."""
    cause: str = ""
    """A name in `CAUSES`: when the bug applies and what comes out. A failure that it does not
    predict is new."""
    shows: str = ""
    """The witness's first difference, in numbers: another fault of the same shape does not hide here."""

    @property
    def key(self) -> tuple[str, str, str]:
        """The failure that it stands for."""
        return (self.rule, self.mode, self.signature)


class Known(msgspec.Struct, frozen=True):
    """An entry, where it is, and its witness."""

    path: Path
    entry: Entry
    witness: Scenario | Script

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def rule(self) -> str:
        return self.entry.rule

    @property
    def reason(self) -> str:
        return self.entry.reason

    @property
    def link(self) -> str:
        return self.entry.link


class Check(msgspec.Struct, frozen=True):
    """What became of an entry. state: "open" (fails as said), "stale", "changed", "expired", "unrun", "gone" (passes
    in code that is no release: the entry stays until one has proven it)."""

    known: Known | KnownDifference
    state: str
    message: str


def load(folder: Path = FOLDER) -> tuple[Known, ...]:
    """Every entry, by file name. Raises UsageError naming file and field."""
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder of known failures")
    found = tuple(_read(path) for path in sorted(folder.glob("*.toml")))
    seen: dict[tuple[object, ...], Known] = {}
    for known in found:
        entry = known.entry
        identity = (entry.key, entry.target, entry.versions, entry.device, entry.cause)
        if identity in seen:
            raise UsageError(f"{known.path}: says the same as {seen[identity].name}")
        seen[identity] = known
    return found


def _read(path: Path) -> Known:
    entry = toml_of(path, Entry)
    entry = msgspec.structs.replace(entry, rule=todays(entry.rule)[0])
    for field in ("rule", "mode", "signature", "target", "reason", "link", "witness"):
        if not getattr(entry, field).strip():
            raise UsageError(f"{path}: {field} is empty")
    if Path(entry.witness).name != entry.witness or entry.witness == "..":
        raise UsageError(f"{path}: witness: {entry.witness!r} is no name of a file beside the entry")
    if "*" in entry.rule + entry.mode + entry.signature:
        raise UsageError(f"{path}: an entry stands for one failure; wildcards are not allowed")
    if entry.rule not in all_rules():
        raise UsageError(f"{path}: unknown rule {entry.rule!r}{meant(entry.rule, all_rules())}")
    if entry.cause and entry.cause not in CAUSES:
        raise UsageError(f"{path}: unknown cause {entry.cause!r}{meant(entry.cause, CAUSES)}")
    try:
        parse_range(entry.versions)
    except ValueError as error:
        raise UsageError(f"{path}: versions: {error}") from error
    return Known(path, entry, _witness(path.parent / entry.witness))


def _witness(path: Path) -> Scenario | Script:
    subject = subject_of(read_any(path))
    if isinstance(subject, Case):
        raise UsageError(f"{path}: a prompt-table case, not a scenario or a script")
    return subject


def applying(entries: Iterable[Known], target: str, version: str, device: str) -> tuple[Known, ...]:
    """The entries that this target, version and device must answer for. `target` is the engine's own name."""
    return tuple(
        known
        for known in entries
        if known.entry.target == target and known.entry.device in ("", device) and within(version, known.entry.versions)
    )


def shown(failure: Failure) -> str:
    """The first difference in a line, to tell a failure from another of the same shape; "" where it has none."""
    first = failure.difference
    if first is None:
        return ""
    place = "" if first.column is None else f" column {first.column}"
    return f"{first.axis}{place}: {first.observed}, must be {first.expected}"


def check(known: Known, outcome: Outcome, today: datetime.date, released: bool = True) -> Check:
    """Judge an entry by its witness's outcome, on a release or on code that is none."""
    entry = known.entry
    alike = [failure for failure in outcome.failures if failure.key == entry.key]
    if alike and entry.shows and all(shown(failure) != entry.shows for failure in alike):
        return Check(known, "changed", f"its witness shows {shown(alike[0])!r}, not {entry.shows!r}")
    if alike:
        if entry.expires is not None and entry.expires < today:
            return Check(known, "expired", f"expired on {entry.expires.isoformat()} and still fails")
        return Check(known, "open", "fails as expected")
    if outcome.unrun:
        first = outcome.unrun[0]
        return Check(known, "unrun", f"its witness could not run ({first.stage}: {first.message})")
    if outcome.failures:
        first_key = " / ".join(outcome.failures[0].key)
        return Check(known, "changed", f"its witness fails otherwise: {first_key}")
    if not released and outcome.checked.get(entry.rule):
        return Check(known, "gone", "its witness passes here")
    if not outcome.checked.get(entry.rule):
        why = f": {outcome.not_offered[0][1]}" if outcome.not_offered else ""
        return Check(known, "stale", f"its witness does not check the rule here{why}")
    return Check(known, "stale", "its witness passes: the bug is fixed, remove the entry")


def check_difference(entry: KnownDifference, case: Case, outcome: Outcome, target: str, version: str) -> Check:
    """Judge a known difference of prompt tables by its witness's outcome."""
    if any(entry.explains(case, failure, target, version) for failure in outcome.failures):
        return Check(entry, "open", "differs as expected")
    if outcome.unrun:
        first = outcome.unrun[0]
        return Check(entry, "unrun", f"its witness could not run ({first.stage}: {first.message})")
    if entry.kind == "unsettled" and outcome.checked:
        return Check(entry, "open", "answered by the paper here")
    if outcome.failures:
        first_key = " / ".join(outcome.failures[0].key)
        return Check(entry, "changed", f"its witness {case.name!r} fails otherwise: {first_key}")
    if outcome.not_offered:
        return Check(entry, "stale", f"its witness {case.name!r} is not offered here: {outcome.not_offered[0][1]}")
    return Check(entry, "stale", f"its witness {case.name!r} passes: the difference is gone, remove the entry")


def match(failure: Failure, entries: Iterable[Known], predicted: Iterable[Failure] = ()) -> Known | None:
    """The entry that expects this failure: its shape, and its cause there. predicted: what fails in the scenario on an
    engine with the bugs of the list."""
    for known in entries:
        if known.entry.key == failure.key and _gives(known.entry.cause, failure, predicted):
            return known
    return None


def shared(entries: Iterable[Known]) -> dict[tuple[str, str, str], tuple[str, ...]]:
    """What entries of several modelled bugs show alike -> these bugs."""
    found: dict[tuple[str, str, str], set[str]] = {}
    for known in entries:
        if known.entry.cause in BUGS:
            found.setdefault(known.entry.key, set()).add(known.entry.cause)
    return {key: tuple(sorted(causes)) for key, causes in found.items() if len(causes) > 1}


def nearest(failure: Failure, entries: Iterable[Known], predicted: Iterable[Failure]) -> Known | None:
    """The entry that is closest to a failure which the listed bugs predict, number for number, where none has its
    shape: what a wrong table shows first depends on what else is in it."""
    causes = next((other.causes or BUGS for other in predicted if alike(failure, other)), ())

    def distance(known: Known) -> tuple[bool, bool, bool]:
        rule, mode, signature = known.entry.key
        return ((rule, mode) != (failure.rule, failure.mode), signature != failure.signature, rule != failure.rule)

    return min((known for known in entries if known.entry.cause in causes), key=distance, default=None)


def _gives(cause: str, failure: Failure, predicted: Iterable[Failure]) -> bool:
    """Whether this cause gives this failure; "" stands for nothing in particular and so for everything."""
    return not cause or any(alike(failure, other) for other in predicted if not other.causes or cause in other.causes)


def entries_for(
    failures: Sequence[Failure], entries: Sequence[Known], predicted: Sequence[Failure] = ()
) -> list[Known | None]:
    """The entry that expects each failure.

    A consequence (`follows`) is expected with its causes: with the failures of the rule that it follows, in the same
    scenario, when each of them is. Those of a modelled bug must have been predicted as well, and whatever they
    predict is expected, in whatever shape.
    """
    own = [match(failure, entries, predicted) for failure in failures]
    found = []
    for failure, known in zip(failures, own, strict=True):
        if known is None and failure.follows:
            causes = [
                entry
                for cause, entry in zip(failures, own, strict=True)
                if cause.rule == failure.follows and not cause.follows
            ]
            known = causes[0] if causes and None not in causes else None
            if known is not None and known.entry.cause:
                known = known if any(alike(failure, other) for other in predicted) else None
        found.append(known or nearest(failure, entries, predicted))
    return found


def add(folder: Path, entry: Entry, witness: Scenario | Script) -> Path:
    """Write an entry and its witness; returns the entry's path. Raises UsageError when it is there already."""
    path = folder / f"{_slug(f'{entry.target} {entry.rule} {entry.mode} {entry.signature}')}.toml"
    if path.exists():
        raise UsageError(f"{path}: there is an entry for this failure already; edit it")
    write_atomic(folder / entry.witness, pretty(witness))
    write_atomic(path, render(entry).encode())
    return path


def remove(known: Known, all_entries: Iterable[Known]) -> None:
    """Delete an entry, and its witness when no other entry uses it."""
    known.path.unlink(missing_ok=True)
    others = [other for other in all_entries if other.path != known.path and other.path.exists()]
    if all(other.entry.witness != known.entry.witness for other in others):
        (known.path.parent / known.entry.witness).unlink(missing_ok=True)


def render(entry: Entry) -> str:
    """The entry as TOML, in the order of the fields."""
    lines = []
    for field, value in msgspec.structs.asdict(entry).items():
        if value is None or value == "":
            continue
        lines.append(f"{field} = {value.isoformat() if isinstance(value, datetime.date) else _quoted(value)}")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """A TOML basic string; JSON's escapes are a subset of TOML's, but for DEL."""
    return msgspec.json.encode(text).decode().replace("\x7f", "\\u007f")


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")

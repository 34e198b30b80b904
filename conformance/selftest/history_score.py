"""The score on bugs that really happened: red on the last release that has one, green on the first that has not.

`data/history.toml` names each bug with a witness, which is a scenario of the default run or a file of `data/history`,
and with what it shows: rule, mode, signature and the very value. Caught: on the wrong release the witness fails just
so, and on the right one it checks the rule and nothing of it fails. Only the witnesses run, one worker a release.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path

import msgspec

from ropecheck.conformance.errors import GaveUp, UsageError, toml_of
from ropecheck.conformance.judge.outcome import Failure, Outcome
from ropecheck.conformance.known import failures as known_list
from ropecheck.conformance.known.find import find_scenario
from ropecheck.conformance.run.events import Event, ScenarioDone
from ropecheck.conformance.run.phases import Phase
from ropecheck.conformance.run.seat import RunLimits
from ropecheck.conformance.run.session import Settings
from ropecheck.conformance.run.session import run as run_session
from ropecheck.conformance.store.files import Stored, StoredCase, read_any
from ropecheck.conformance.subject import Subject
from ropecheck.conformance.targets.pip_overlay import version_key
from ropecheck.conformance.targets.registry import Target
from ropecheck.conformance.versions import is_version

FILE = Path(__file__).parents[1] / "data" / "history.toml"
WITNESSES = FILE.with_suffix("")
"""Folder of the witnesses that are no scenario of the default run."""


class WitnessShown(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What the witness shows on the wrong release; what is not given is not compared."""

    column: int | None = None
    request: int | None = None
    expected: int | str | None = None
    observed: int | str | None = None
    message: str = ""
    """The whole message, for a failure that has no value."""


class PastBug(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One past bug of SGLang."""

    id: str
    title: str
    links: tuple[str, ...]
    kind: str
    """Its class: "mis-sized", "aliasing", "stale", "routing", "sync", ..."""
    seed: bool = False
    """One of the changes that the suite began with."""
    wrong: str = ""
    """The last release that has it; "" when no release of the range shows it."""
    right: str = ""
    """The first release without it; "" when it is still there."""
    since: str = ""
    """The first release of the range that has it."""
    rule: str = ""
    mode: str = ""
    signature: str = ""
    witness: str = ""
    """Name of a chosen scenario or prompt-table case, or of a file in `data/history`."""
    shows: WitnessShown | None = None
    beside: tuple[str, ...] = ()
    """Bugs that the right release still has, by their ids: what the witness shows of them there is theirs."""
    why: str = ""
    """How the wrong table came about, and what follows instead: for readers who have not seen the change."""
    missed: str = ""
    """Why no scenario of this suite can catch it."""

    @property
    def key(self) -> tuple[str, str, str]:
        """The failure on the wrong release."""
        return (self.rule, self.mode, self.signature)


class Judged(msgspec.Struct, frozen=True):
    """A bug and what became of it. state: "caught", "missed", "not run"."""

    bug: PastBug
    state: str
    why: str


Seen = Mapping[str, Outcome] | str
"""What a release's run of the witnesses came to: scenario id -> outcome, or why there is none."""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    bug: tuple[PastBug, ...]


def load(path: Path = FILE) -> tuple[PastBug, ...]:
    """The bugs of the file. Raises UsageError naming file and field."""
    bugs = toml_of(path, _File).bug
    seen: set[str] = set()
    for bug in bugs:
        if bug.id in seen:
            raise UsageError(f"{path}: bug {bug.id} is there twice")
        seen.add(bug.id)
        needed = (bug.rule, bug.mode, bug.signature, bug.wrong, bug.witness, bug.shows not in (None, WitnessShown()))
        if not bug.missed and not all(needed):
            what = "rule, mode, signature, wrong, witness and shows"
            raise UsageError(f"{path}: bug {bug.id}: {what} are needed, or missed says why")
        if unknown := set(bug.beside) - {one.id for one in bugs}:
            raise UsageError(f"{path}: bug {bug.id}: beside: no bug {', '.join(sorted(unknown))}")
        for field in ("wrong", "right", "since"):
            value = getattr(bug, field)
            if value and not is_version(value):
                raise UsageError(f"{path}: bug {bug.id}: {field}: {value!r} is not a version")
    return bugs


@cache
def witness(name: str) -> Subject:
    """The scenario or case of that name. Raises UsageError."""
    file = WITNESSES / name
    stored = read_any(file) if file.is_file() else find_scenario(name, WITNESSES, known_list.FOLDER)
    if isinstance(stored, StoredCase):
        return stored.case
    if not isinstance(stored, Stored):
        raise UsageError(f"{name}: a client script is no witness of a past bug")
    return stored.scenario


def versions_needed(bugs: Iterable[PastBug]) -> list[str]:
    """The releases that the score has to run, oldest first."""
    needed = {version for bug in bugs if not bug.missed for version in (bug.wrong, bug.right) if version}
    return sorted(needed, key=version_key)


def needed_on(bugs: Iterable[PastBug], version: str) -> list[Subject]:
    """The witnesses that this release has to run."""
    asked = (witness(bug.witness) for bug in bugs if not bug.missed and version in (bug.wrong, bug.right))
    return list({one.id: one for one in asked}.values())


def run(target: Target, witnesses: list[Subject], out: Path) -> Seen:
    """Run the witnesses on a release."""
    seen: dict[str, Outcome] = {}

    def note(event: Event) -> None:
        if isinstance(event, ScenarioDone):
            seen[event.scenario.id] = event.outcome

    drive: Callable[..., None] = lambda driver: driver.check_all(witnesses, total=len(witnesses))  # noqa: E731
    settings = Settings(
        target=target,
        out=out,
        phases=(Phase(name="history", summary="", drive=drive),),
        limits=RunLimits(scenario=60.0, start=600.0),  # a busy machine takes its time
        witnesses=False,
        shrink_seconds=0,
        complete=False,
    )
    try:
        summary = run_session(settings, [note])
    except GaveUp as error:
        return str(error)
    if summary.interrupted:
        raise KeyboardInterrupt
    return summary.gave_up or seen


def judge(bug: PastBug, seen: Mapping[str, Seen]) -> Judged:
    """What the runs say about the bug. seen: by version."""
    if bug.missed:
        return Judged(bug, "missed", bug.missed)
    shown: dict[str, Outcome] = {}
    for version in filter(None, (bug.wrong, bug.right)):
        outcomes = seen.get(version, f"sglang=={version} is not provisioned")
        outcome = outcomes if isinstance(outcomes, str) else outcomes.get(witness(bug.witness).id)
        if not isinstance(outcome, Outcome):
            return Judged(bug, "not run", f"{version}: {outcome or 'its witness was not run'}")
        if outcome.unrun:
            return Judged(bug, "not run", f"{version}: {outcome.unrun[0].stage}: {outcome.unrun[0].message}")
        shown[version] = outcome
    fails = [failure for failure in shown[bug.wrong].failures if failure.key == bug.key]
    if not any(shows(bug, failure) for failure in fails):
        return Judged(bug, "missed", f"{bug.wrong} does not fail so: {described(shown[bug.wrong], fails)}")
    if not bug.right:
        return Judged(bug, "caught", f"fails on {bug.wrong}; no release is right yet")
    after = shown[bug.right]
    theirs = {one.key for one in load() if one.id in bug.beside} - {bug.key}
    if any(failure.key not in theirs for failure in after.failures):
        return Judged(bug, "missed", f"{bug.right} is not right: {described(after, ())}")
    if not after.checked.get(bug.rule):
        return Judged(bug, "missed", f"{bug.right} never reaches {bug.rule}: {described(after, ())}")
    return Judged(bug, "caught", f"fails on {bug.wrong}, right on {bug.right}")


def shows(bug: PastBug, failure: Failure) -> bool:
    """Whether the failure is the bug's to the value."""
    want, found = bug.shows or WitnessShown(), value_of(failure)
    return all(value in (None, "", getattr(found, field)) for field, value in msgspec.structs.asdict(want).items())


def value_of(failure: Failure) -> WitnessShown:
    """What a failure shows, as a bug pins it."""
    first = failure.difference
    if first is None:
        return WitnessShown(message=failure.message)
    shown = {name: value for name, value in msgspec.structs.asdict(first).items() if name != "axis"}
    return WitnessShown(message=failure.message, **shown)


def described(outcome: Outcome, failures: Iterable[Failure]) -> str:
    """An outcome in one line: these failures, or all that it has."""
    found = [f"{' / '.join(one.key)}: {one.message}" for one in (*failures,) or outcome.failures]
    found += [f"not offered: {reason}" for _, reason in outcome.not_offered]
    return "; ".join(found[:3]) or f"{sum(outcome.checked.values())} checks pass"


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


def shown_lines(bugs: Iterable[PastBug], seen: Mapping[str, Seen]) -> Iterable[str]:
    """What each bug's witness shows on its releases, to be pinned."""
    for bug in bugs:
        for version in filter(None, () if bug.missed else (bug.wrong, bug.right)):
            outcomes = seen[version]
            outcome = None if isinstance(outcomes, str) else outcomes.get(witness(bug.witness).id)
            yield f"{bug.id} on {version}: {bug.witness}"
            for failure in outcome.failures if outcome else ():
                yield f"    {' / '.join(failure.key)}: {msgspec.json.encode(value_of(failure)).decode()}"
            yield f"    {described(outcome, ()) if outcome else outcomes}"


def exit_code(judged: Iterable[Judged]) -> int:
    """3 when something did not run, 1 when a bug is missed that should be caught, else 0."""
    states = [(one.state, one.bug.missed) for one in judged]
    if any(state == "not run" for state, _ in states):
        return 3
    return 1 if ("missed", "") in states else 0

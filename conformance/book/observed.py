"""What real engines gave: known failures' witnesses on the default engine, past bugs' on their last wrong release.

`python -m ropecheck.conformance.book.observed [known] [past]` asks them (the releases must be provisioned, `ropecheck
target add`) and keeps the failures, both tables and all, in data/observed.json, for the pages that draw them.
"""

import sys
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

import msgspec

from ropecheck.conformance.errors import UsageError
from ropecheck.conformance.judge.outcome import Failure
from ropecheck.conformance.known import failures as known_list
from ropecheck.conformance.run.events import Event, ScenarioDone
from ropecheck.conformance.run.phases import Phase
from ropecheck.conformance.run.session import Settings
from ropecheck.conformance.run.session import run as run_session
from ropecheck.conformance.selftest import history_score
from ropecheck.conformance.selftest.history_score import PastBug
from ropecheck.conformance.store.files import pretty, write_atomic
from ropecheck.conformance.targets import provisioned, registry
from ropecheck.conformance.targets.provisioned import home

FILE = Path(__file__).parents[1] / "data" / "observed.json"


class Observation(msgspec.Struct, frozen=True, omit_defaults=True):
    """One witness on one engine."""

    engine: str
    """ "sglang 0.5.23"."""
    witness: str
    """The scenario's id: another one makes this stale."""
    failure: Failure


class Observed(msgspec.Struct, frozen=True):
    """known: file name of the entry without its ending -> what its witness showed. past: the same by a bug's id."""

    known: dict[str, Observation] = {}
    past: dict[str, Observation] = {}


@cache
def load() -> Observed:
    """What is kept."""
    return msgspec.json.decode(FILE.read_bytes(), type=Observed) if FILE.is_file() else Observed()


def of_known(entries: Iterable[known_list.Known]) -> dict[str, Observation]:
    """The witnesses on the default engine."""
    entries = list(entries)
    outcomes = {}

    def note(event: Event) -> None:
        if isinstance(event, ScenarioDone):
            outcomes[event.scenario.id] = event.outcome

    target = registry.find(registry.DEFAULT, "cpu")
    witnesses = [known.witness for known in entries]
    phase = Phase(name="observed", summary="", drive=lambda driver: driver.check_all(witnesses, total=len(witnesses)))
    settings = Settings(
        target=target, out=home() / "observed", phases=(phase,), witnesses=False, shrink_seconds=0, complete=False
    )
    summary = run_session(settings, [note])
    engine = f"{summary.header.hello.target} {summary.header.hello.version}"
    found = {}
    for known in entries:
        outcome = outcomes[known.witness.id]
        failure = next((one for one in outcome.failures if one.key == known.entry.key), None)
        if failure is not None:
            found[known.path.stem] = Observation(engine, known.witness.id, failure)
    return found


def of_past(bugs: Iterable[PastBug]) -> dict[str, Observation]:
    """The witnesses of past bugs on the last release that has each."""
    bugs = [bug for bug in bugs if not bug.missed]
    found = {}
    for version in dict.fromkeys(bug.wrong for bug in bugs):
        own = [bug for bug in bugs if bug.wrong == version]
        witnesses = list({one.id: one for one in (history_score.witness(bug.witness) for bug in own)}.values())
        seen = history_score.run(registry.find(f"sglang=={version}", "cpu"), witnesses, home() / "observed")
        if isinstance(seen, str):
            raise UsageError(f"sglang=={version}: {seen}")
        for bug in own:
            subject = history_score.witness(bug.witness)
            failures = [
                one for one in seen[subject.id].failures if one.key == bug.key and history_score.shows(bug, one)
            ]
            if failures:
                found[bug.id] = Observation(f"sglang {version}", subject.id, failures[0])
    return found


def write(observed: Observed) -> None:
    """Keep it."""
    write_atomic(FILE, pretty(observed))
    load.cache_clear()


def main(argv: Sequence[str]) -> int:
    """Ask the engines again, for known failures, past bugs, or both."""
    registry.register_source(provisioned.targets)
    known, past = load().known, load().past
    if not argv or "known" in argv:
        known = of_known(known_list.load())
        write(Observed(known, past))
    if not argv or "past" in argv:
        past = of_past(history_score.load())
    write(Observed(known, past))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

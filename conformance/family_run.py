"""A whole run of the families against one target: cases out, answers in, failures told from known differences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from adapters.protocol import Answer, Job
from conformance.families import Case, offered, step
from conformance.family_cases import all_cases, chosen, from_items
from conformance.family_known import Difference, load
from conformance.family_verdict import judge
from conformance.outcome import Failure, Outcome, Unrun
from spec.families import FAMILIES

CASES_PER_JOB = 32

Ask = Callable[[Job], Answer]


class FamilyReport(msgspec.Struct, frozen=True):
    """What a run came to."""

    target: str
    version: str
    outcomes: tuple[Outcome, ...]
    unexpected: tuple[tuple[str, Failure], ...]
    """(case name, failure) that no known difference explains."""
    expected: dict[str, int]
    """Known difference -> failures that it explains."""
    stale: tuple[str, ...]
    """Known differences whose witness does not show them any more."""
    unrun: tuple[tuple[str, Unrun], ...]

    @property
    def exit_code(self) -> int:
        """0 as expected, 1 a new failure or a stale entry, 3 something could not run, 4 nothing was checked."""
        if self.unexpected or self.stale:
            return 1
        if self.unrun:
            return 3
        return 0 if any(outcome.checked for outcome in self.outcomes) else 4


def jobs(cases: Iterable[Case]) -> Iterator[tuple[Job, tuple[Case, ...]]]:
    """The cases as jobs of several steps; their order is kept."""
    batch: list[Case] = []
    for case in cases:
        batch.append(case)
        if len(batch) == CASES_PER_JOB:
            yield _job(batch), tuple(batch)
            batch = []
    if batch:
        yield _job(batch), tuple(batch)


def _job(cases: Sequence[Case]) -> Job:
    return Job(f"families {cases[0].id}", tuple(step(case) for case in cases))


def run(ask: Ask, target: str, version: str, seed: int = 0, count: int = 40) -> FamilyReport:
    """Every family on one target. `ask` sends a job to a worker and waits for its answer."""
    return collect(ask, all_cases(target, seed, count), target, version, load())


def collect(ask: Ask, cases: Iterable[Case], target: str, version: str, known: Sequence[Difference]) -> FamilyReport:
    """The same for given cases and a given list of known differences."""
    outcomes: list[Outcome] = []
    unexpected: list[tuple[str, Failure]] = []
    unrun: list[tuple[str, Unrun]] = []
    explained: dict[str, int] = {}
    shown: set[tuple[str, str]] = set()
    names: set[str] = set()
    for job, batch in jobs(cases):
        answer = ask(job)
        for case, result in zip(batch, answer.results, strict=True):
            outcome = judge(case, result)
            outcomes.append(outcome)
            names.add(case.name)
            unrun.extend((case.name, one) for one in outcome.unrun)
            for failure in outcome.failures:
                found = [entry for entry in known if entry.explains(case, failure, target, version)]
                if not found:
                    unexpected.append((case.name, failure))
                for entry in found:
                    explained[entry.id] = explained.get(entry.id, 0) + 1
                    shown.add((entry.id, case.name))
    stale = tuple(
        entry.id
        for entry in known
        if entry.target == target and entry.witness in names and (entry.id, entry.witness) not in shown
    )
    return FamilyReport(target, version, tuple(outcomes), tuple(unexpected), explained, stale, tuple(unrun))


def witness(entry: Difference) -> Case:
    """The case that an entry names. Raises LookupError for a name that no case has."""
    for family in FAMILIES:
        cases: list[Case] = [*chosen(family), *(from_items(family) if offered(family, "sglang") == "checked" else ())]
        for case in cases:
            if case.name == entry.witness:
                return case
    raise LookupError(f"{entry.id}: no case is named {entry.witness!r}")

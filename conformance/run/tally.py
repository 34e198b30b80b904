"""Counting: a listener that turns outcomes into a Summary. Judging is the verdict's, not the tally's."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from ropecheck.conformance.families.case import Case
from ropecheck.conformance.judge.outcome import Failure, Outcome, Unrun
from ropecheck.conformance.known import differences
from ropecheck.conformance.known.base import OnBase, news, otherwise
from ropecheck.conformance.known.differences import KnownDifference
from ropecheck.conformance.known.failures import Known, entries_for
from ropecheck.conformance.known.model import BUGS
from ropecheck.conformance.run.events import MAX_UNRUN, Counts, Finding, Header, ScenarioDone, Summary
from ropecheck.conformance.scenario import dimensions
from ropecheck.conformance.scenario.operations import Scenario
from ropecheck.conformance.scripts.script import Script
from ropecheck.conformance.store.files import AnyStored, Stored, StoredCase, StoredScript, pretty, write_atomic
from ropecheck.conformance.subject import Subject, size_of

Expected = Known | KnownDifference | OnBase | None
"""What expects a failure."""


class Tally:
    """Counts outcomes and keeps, of each finding, the smallest witness. Witnesses are stored as they come, so that a
    run that dies leaves what it found."""

    def __init__(self, header: Header) -> None:
        self.summary = Summary(header=header)
        self._findings: dict[tuple[str, str, str], Finding] = {}
        self._folder = header.out / "failures"
        self._trouble: OSError | None = None

    def add(self, done: ScenarioDone, base: Outcome | None = None) -> None:
        """Count one scenario; `base` is what it came to there, where a base is compared with.

        Raises OSError, once it is counted, when its file could not be written.
        """
        outcome, summary = done.outcome, self.summary
        totals = summary.totals
        totals.scenarios += 1
        totals.forwards += outcome.forwards
        totals.engine_ns += outcome.engine_ns
        totals.compare_ns += outcome.compare_ns
        for rule, checked in outcome.checked.items():
            if rule not in summary.rules:
                summary.rules[rule] = [0, 0]
            summary.rules[rule][0] += checked
        reached = summary.reached.setdefault(done.phase, {})
        for rule, modes in outcome.by_mode.items():
            seen_in = summary.by_mode.setdefault(rule, {})
            if rule not in reached:
                reached[rule] = set()
            reached[rule].update(modes)
            for mode, checked in modes.items():
                seen_in[mode] = seen_in.get(mode, 0) + checked
        for mode, forwards in outcome.modes.items():
            summary.modes.setdefault(mode, [0, 0])[0] += forwards
        for situation, times in outcome.situations.items():
            summary.situations[situation] = summary.situations.get(situation, 0) + times
            kind, _, bound = situation.partition(" x ")
            if kind == dimensions.PREFIX:  # a baseline knows them as it knows rules
                reached.setdefault(kind, set()).add(bound)
        for mode, names in outcome.ran.items():
            seen = summary.ran.setdefault(mode, {})
            for name, forwards in names.items():
                seen[name] = seen.get(name, 0) + forwards
        for name, entered in outcome.functions.items():
            summary.functions[name] = entered or summary.functions.get(name, False)
        for file, lines in done.lines.items():
            summary.lines.setdefault(file, set()).update(lines)
        for pair in set(outcome.not_offered):
            summary.not_offered[pair] = summary.not_offered.get(pair, 0) + 1
        expected_by = self.expectations(done, base)
        if base is None:
            self._count(done, expected_by)
        new = self._failures(done, base, expected_by) if outcome.failures else 0
        if outcome.unrun:
            self._unrun(done.scenario, outcome.unrun)
        if new:
            totals.failed += 1
        elif outcome.unrun:
            totals.could_not_run += 1
        elif outcome.failures:
            totals.expected += 1
        elif outcome.state == "not_offered":
            totals.not_offered += 1
        else:
            totals.passed += 1
        if self._trouble is not None:
            raise self._trouble

    def _count(self, done: ScenarioDone, expected_by: Sequence[Expected]) -> None:
        """Of each entry, whether it said that this scenario fails with it, and whether it does."""
        outcome = done.outcome
        shown = {known.name for known in expected_by if known is not None}
        asked = (one for one in done.predicted if one.mode in outcome.by_mode.get(one.rule, ()))
        failed = {failure.key for failure in outcome.failures}  # which entries of these keys say is in `shown`
        must = {(one.key, cause) for one in asked if one.key not in failed for cause in one.causes or BUGS}
        if not must and not shown:
            return
        entries: tuple[Known | KnownDifference, ...] = (*self.summary.header.known, *self.summary.header.differences)
        for known in entries:
            if isinstance(known, KnownDifference):
                says = self._says(known, done) if known.gives else known.name in shown
            else:
                says = known.name in shown or ((known.entry.key, known.entry.cause) in must)
            if says or known.name in shown:
                counts = self.summary.entries.setdefault(done.phase, {}).setdefault(known.name, Counts())
                counts.predicted += says
                counts.shown += known.name in shown
                if known.name not in shown and not counts.right:
                    counts.right = f"{outcome.name} ({outcome.scenario})"

    def _says(self, known: KnownDifference, done: ScenarioDone) -> bool:
        """Whether a difference is the first that explains one of the predicted failures."""
        if not isinstance(done.scenario, Case) or (known.kind == "unsettled" and not done.outcome.failures):
            return False  # the paper's answer is as good
        every = [self._explaining(done, done.scenario, one) for one in done.predicted if done.outcome.by_mode]
        return any(found[:1] == [known] for found in every)

    def _explaining(self, done: ScenarioDone, case: Case, failure: Failure) -> list[KnownDifference]:
        header = self.summary.header
        release = header.hello.target, header.hello.version
        return differences.explaining(case, failure, done.predicted, header.differences, *release)

    def _failures(self, done: ScenarioDone, base: Outcome | None, expected_by: Sequence[Expected]) -> int:
        """Group the failures; returns how many of them no entry expects."""
        new = 0
        size = size_of(done.scenario)
        for failure, known in zip(done.outcome.failures, expected_by, strict=True):
            self.summary.rules.setdefault(failure.rule, [0, 0])[1] += 1
            self.summary.modes.setdefault(failure.mode, [0, 0])[1] += 1
            finding = self._findings.get(failure.key)
            if finding is None:
                finding = Finding(key=failure.key, known=known, scenario=done.scenario, failure=failure, size=size)
                self._findings[failure.key] = finding
                self.summary.findings.append(finding)
                self._store(finding, done.outcome)
            elif (known is not None, size) < (finding.known is not None, finding.size):
                finding.known = known
                finding.scenario, finding.failure, finding.size = done.scenario, failure, size
                self._store(finding, done.outcome)
            finding.count += 1
            if known is None and base is not None and finding.failure is failure:
                finding.was = otherwise(failure, base)
            finding.unexpected += known is None
            new += known is None
        return new

    def expectations(self, done: ScenarioDone, base: Outcome | None = None) -> Sequence[Expected]:
        """The entry that expects each failure. With a base, what it does alike is expected, and nothing else is."""
        failures = done.outcome.failures
        if base is not None:
            fresh = news(done.outcome, base)
            return [None if failure in fresh else OnBase(self.summary.header.base) for failure in failures]
        if isinstance(done.scenario, Case):
            return [self._explained(done, done.scenario, failure) for failure in failures]
        return entries_for(failures, self.summary.header.known, done.predicted)

    def _explained(self, done: ScenarioDone, case: Case, failure: Failure) -> KnownDifference | None:
        """The first known difference that explains the failure; all that do are counted."""
        found = self._explaining(done, case, failure)
        for one in found:
            self.summary.differences[one.id] = self.summary.differences.get(one.id, 0) + 1
        return found[0] if found else None

    def _store(self, finding: Finding, outcome: Outcome) -> None:
        before = finding.file
        finding.file = self._write(finding.scenario, outcome.failures, outcome.unrun)
        if before and before != finding.file and all(other.file != before for other in self.summary.findings):
            (self._folder.parent / before).unlink(missing_ok=True)

    def shrunk(self, finding: Finding, scenario: Scenario | Script, failure: Failure) -> None:
        """A smaller witness of a finding has been found."""
        finding.found = finding.found or finding.size
        finding.scenario, finding.failure, finding.size = scenario, failure, size_of(scenario)
        outcome = Outcome(scenario=scenario.id, name=scenario.name, failures=(failure,))
        self._store(finding, outcome)

    def beside(self, scenario: Scenario, outcome: Outcome) -> str:
        """Store what shows a finding in another form; its file, relative to OUT."""
        return self._write(scenario, outcome.failures, ())

    def _unrun(self, scenario: Subject, unrun: tuple[Unrun, ...]) -> None:
        if len(self.summary.unrun) < MAX_UNRUN:
            self.summary.unrun.append((scenario, unrun[0], self._write(scenario, (), unrun)))

    def _write(self, scenario: Subject, failures: tuple[Failure, ...], unrun: tuple[Unrun, ...]) -> str:
        header = self.summary.header
        make: Callable[..., AnyStored]
        if isinstance(scenario, Script):
            make = partial(StoredScript, script=scenario)
        elif isinstance(scenario, Case):
            make = partial(StoredCase, case=scenario)
        else:
            make = partial(Stored, scenario=scenario)
        stored = make(
            target=header.target,
            engine=header.hello.target,
            version=header.hello.version,
            device=header.device,
            seed=header.seed,
            failures=failures,
            unrun=unrun,
        )
        try:
            write_atomic(self._folder / f"{scenario.id}.json", pretty(stored))
        except OSError as error:
            self._trouble = error
        return str(Path("failures") / f"{scenario.id}.json")

"""The smallest way in: an engine's own pytest file calls `run_conformance(MyAdapter())`. See docs/adopt.md.

An adapter is any object with the method `forward(asked)`; what it lacks it declines with `NotOffered`. Everything runs
in this process. Sessions, ownership and copy counts need an engine's own request objects: they are checked through the
worker protocol (adapters/protocol.py), or with the vectors.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from ropecheck.adapters.batch import Batch, BatchPart
from ropecheck.conformance.adopt.bridge import Checker
from ropecheck.conformance.adopt.ledger import AdoptLedger, explained
from ropecheck.conformance.adopt.types import Adapter, Asked, HeldRequest, NotOffered
from ropecheck.conformance.errors import UsageError
from ropecheck.conformance.judge.outcome import Outcome
from ropecheck.conformance.run import phases as all_phases
from ropecheck.conformance.run.events import ScenarioDone, Scope
from ropecheck.conformance.run.phases import Options
from ropecheck.conformance.run.trace import Passing, trace
from ropecheck.conformance.scenario.operations import Scenario
from ropecheck.conformance.scenarios.random.shrink import shrink
from ropecheck.conformance.subject import Subject, size_of
from ropecheck.conformance.targets.registry import Target
from ropecheck.spec.modes import all_modes

__all__ = [
    "Adapter",
    "AdoptLedger",
    "Asked",
    "Batch",
    "BatchPart",
    "HeldRequest",
    "NotOffered",
    "known_modes",
    "run_conformance",
    "survey",
]


def known_modes() -> tuple[str, ...]:
    """What `modes` may name: every declared forward mode, and "padding"."""
    return (*all_modes(), "padding")


_OFFERED = Target(name="adapter", argv=(), offers=("forwards",))


EXPLAIN_SECONDS = 10.0
"""For smaller witnesses."""


class _Driver:
    """Checks scenarios in this process, one after the other."""

    def __init__(self, check: Checker) -> None:
        self.options = Options()
        self.scope = Scope()
        self.ledger = AdoptLedger()
        self._check = check
        self._seen: set[str] = set()
        self._passing = Passing()

    @property
    def found_new(self) -> bool:
        return bool(self.ledger.failures)

    @property
    def engine(self) -> str:
        return "adapter"

    def check_all(self, scenarios: Iterable[Subject], total: int | None = None) -> None:
        del total
        for scenario in scenarios:
            if isinstance(scenario, Scenario) and scenario.id not in self._seen:
                self._seen.add(scenario.id)
                self.check(scenario)

    def check(self, scenario: Scenario) -> Outcome:
        outcome = self._check(scenario)
        self.ledger.add(scenario, outcome)
        self._passing.note(ScenarioDone("", scenario, outcome))
        return outcome

    def explain(self, seconds: float) -> None:
        """Make witnesses smaller, and find out which functions ran for what is wrong."""
        deadline = time.monotonic() + seconds
        for finding in self.ledger.failures.values():
            left = deadline - time.monotonic()
            if finding.failure.follows or left <= 0 or not isinstance(finding.scenario, Scenario):
                continue
            smaller, failure = shrink(finding.scenario, finding.key, self._check, left)
            if failure is not None:
                finding.scenario, finding.failure, finding.size = smaller, failure, size_of(smaller)
        summary = self.ledger.summary()
        trace(summary, summary.findings, self._passing, self._check.traced)
        self.ledger.right_steps = summary.right_steps

    def warn(self, message: str, loud: bool = False) -> None:
        del loud
        self.ledger.warnings.append(message)


def survey(adapter: Adapter, *, phases: Sequence[str] = ("chosen",), modes: Iterable[str] | None = None) -> AdoptLedger:
    """Drive the adapter and say what came of it, without raising for its failures.

    Raises UsageError for an unknown phase or mode, or an adapter without `forward`.
    """
    if not callable(getattr(adapter, "forward", None)):
        raise UsageError(f"adapter {type(adapter).__name__}: has no method forward(asked)")
    wanted = frozenset(known_modes() if modes is None else modes)
    unknown = sorted(wanted - set(known_modes()))
    if unknown:
        raise UsageError(f"modes: unknown {unknown[0]!r}; known: {', '.join(known_modes())}")
    driver = _Driver(Checker(adapter, wanted))
    for phase in all_phases.select(phases, _OFFERED):
        phase.drive(driver)
    if driver.ledger.failures:
        driver.explain(EXPLAIN_SECONDS)
    return driver.ledger


def run_conformance(
    adapter: Adapter, *, phases: Sequence[str] = ("chosen",), modes: Iterable[str] | None = None
) -> AdoptLedger:
    """Check an engine in this process. Returns what was checked.

    adapter: see `Adapter`. phases: those of `ropecheck list phases`. modes: only these; None: all that it offers.
    Raises AssertionError, explained on one screen, when a rule is broken, when the adapter itself fails, or when
    nothing was checked; UsageError for an unknown phase or mode.
    """
    ledger = survey(adapter, phases=phases, modes=modes)
    if ledger.failures or ledger.unrun or not ledger.checked:
        raise AssertionError(explained(ledger))
    return ledger

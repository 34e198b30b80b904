"""Shared by the core tests: a scenario's outcome on the reference engine or a planted fault, without a process."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ropecheck.conformance.judge.outcome import Failure, Outcome
from ropecheck.conformance.judge.verdict import judge
from ropecheck.conformance.plan.planner import Plan, plan
from ropecheck.conformance.reference_engine import ReferenceEngine, answer
from ropecheck.conformance.scenario.operations import Scenario
from ropecheck.conformance.selftest.mutant_score import touches
from ropecheck.conformance.selftest.mutants import Mutant
from ropecheck.conformance.selftest.mutants.generic import PlantedFault


def outcome(scenario: Scenario, make: Callable[[], ReferenceEngine] = ReferenceEngine) -> Outcome:
    """What the suite says of an engine that answers this scenario."""
    planned = plan(scenario)
    return judge(planned, answer(planned.job, make()))


def failures(mutant: Mutant, tried: tuple[Plan, ...]) -> Iterator[Failure]:
    """What a planted fault shows in these scenarios."""
    for planned in tried:
        if touches(mutant, planned):
            yield from judge(planned, answer(planned.job, mutant.make())).failures


def unnamed(faults: dict[str, PlantedFault], tried: tuple[Plan, ...]) -> list[str]:
    """Faults that none of their rules names in their mode."""
    return [
        name
        for name, one in faults.items()
        if not any(f.rule in one.rules and f.mode == one.mode for f in failures(one.mutant, tried))
    ]

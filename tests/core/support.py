"""Shared by the core tests: a scenario's outcome on the reference engine or a planted fault, without a process."""

from __future__ import annotations

from collections.abc import Callable

from ropecheck.conformance.judge.outcome import Outcome
from ropecheck.conformance.judge.verdict import judge
from ropecheck.conformance.plan.planner import plan
from ropecheck.conformance.reference_engine import ReferenceEngine, answer
from ropecheck.conformance.scenario.operations import Scenario


def outcome(scenario: Scenario, make: Callable[[], ReferenceEngine] = ReferenceEngine) -> Outcome:
    """What the suite says of an engine that answers this scenario."""
    planned = plan(scenario)
    return judge(planned, answer(planned.job, make()))

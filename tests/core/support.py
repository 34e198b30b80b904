"""Shared by the core tests: a scenario's outcome on the reference engine or a planted fault, without a process."""

from __future__ import annotations

from collections.abc import Callable

from conformance.outcome import Outcome
from conformance.plan import plan
from conformance.reference_engine import ReferenceEngine
from conformance.reference_worker import answer
from conformance.verdict import judge
from reference.operations import Scenario


def outcome(scenario: Scenario, make: Callable[[], ReferenceEngine] = ReferenceEngine) -> Outcome:
    """What the suite says of an engine that answers this scenario."""
    planned = plan(scenario)
    return judge(planned, answer(planned.job, make()))

"""What a run checks: a scenario of forwards, or one call of a prompt-table builder. Both have an id, a name and a
family, travel as one job, and are stored and replayed alike."""

from __future__ import annotations

from dataclasses import dataclass

from ropecheck.adapters import protocol
from ropecheck.conformance.families.case import Case, step
from ropecheck.conformance.scenario.operations import Scenario

Subject = Scenario | Case


@dataclass(frozen=True, slots=True)
class CasePlan:
    """A case and the job that it is. The builders are called on the host, as the engines' processors call them."""

    scenario: Case
    job: protocol.Job


def plan_case(case: Case) -> CasePlan:
    """One job of one step, so that a crash costs one case. Raises OutOfDomain for a case that cannot be laid out."""
    return CasePlan(case, protocol.Job(case.id, (step(case),)))

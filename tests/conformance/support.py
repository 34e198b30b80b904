"""Scenarios whose operations name misbehaviours, and a plan and a judge that understand them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from ropecheck.adapters import protocol
from ropecheck.conformance import subject
from ropecheck.conformance.judge.outcome import Difference, Failure, Outcome, TableView, Unrun
from ropecheck.conformance.run import session
from ropecheck.conformance.scenario.operations import Build, Scenario
from ropecheck.conformance.scenario.words import idle
from ropecheck.conformance.targets.registry import Target
from tests.conformance.planted_worker import SUITE_BUG

RULE = "table.past_table"
ROOT = Path(__file__).parents[2]


def scenario(*codes: int, name: str = "") -> Scenario:
    """A scenario of one operation per code; further zeros at the end make it another scenario."""
    return Scenario(name=name or "codes " + " ".join(map(str, codes)), ops=tuple(idle(code) for code in codes))


def planted(how: str = "well", flag: Path | None = None, forks: bool = False) -> Target:
    """The misbehaving worker as a target. flag: where it keeps what it did before; forks: from one process."""
    return Target(
        name="planted",
        argv=(sys.executable, "-m", "tests.conformance.planted_worker", how),
        env={"PYTHONPATH": str(ROOT), "PLANTED_FLAG": str(flag)},
        devices=("cpu", "cuda"),
        forks=forks,
    )


@dataclass(frozen=True)
class StubPlan:
    scenario: Scenario
    job: protocol.Job


def stub_plan(scenario: Scenario, device: str = "cpu") -> StubPlan:
    steps = tuple(protocol.Observe((op.buffer_rows,)) for op in scenario.ops if isinstance(op, Build))
    return StubPlan(scenario, protocol.Job(scenario.id, steps, device))


def stub_judge(plan: StubPlan, answer: protocol.JobAnswer) -> Outcome:
    """Raised A and B are two signatures of one rule; NotOffered is not offered; everything else passes."""
    if any(isinstance(op, Build) and op.buffer_rows == SUITE_BUG for op in plan.scenario.ops):
        raise ZeroDivisionError("in the judge")
    failures, not_offered, unrun, checked = [], [], [], 0
    for step, result in enumerate(answer.results):
        if isinstance(result, protocol.NotOfferedAnswer):
            not_offered.append(("decode", result.reason))
        elif isinstance(result, protocol.Raised) and result.stage != "engine":
            unrun.append(Unrun(stage=result.stage, message=result.message, step=step))
        elif isinstance(result, protocol.Raised):
            failures.append(failure(result.message[:1], step, result.where))
            checked += 1
        else:
            checked += 1
    return Outcome(
        scenario=plan.scenario.id,
        name=plan.scenario.name,
        checked={RULE: checked} if checked else {},
        failures=tuple(failures),
        not_offered=tuple(not_offered),
        unrun=tuple(unrun),
        modes={"decode": checked} if checked else {},
        situations={"decode x media": checked},
        forwards=answer.forwards,
        engine_ns=answer.engine_ns,
    )


def stub(setattr: Callable[[ModuleType, str, object], object]) -> None:
    """Puts this plan and this judge wherever a run takes them from."""
    setattr(subject, "plan", stub_plan)
    setattr(session, "judge", stub_judge)


def failure(signature: str, step: int = 0, where: str = "", follows: str = "") -> Failure:
    return Failure(
        rule=RULE,
        mode="decode",
        signature=signature,
        step=step,
        label="",
        message=f"column 1: (7, 7, 7), must be (4, 4, 4) [{signature}]",
        difference=Difference("t", 1, 1, 4, 7),
        expected=TableView((9, 7), ((6, 4), (6, 4), (6, 4)), (0, 1)),
        observed=TableView((9, 7), ((6, 7), (6, 7), (6, 7)), ()),
        where=where,
        follows=follows,
    )

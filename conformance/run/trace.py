"""Which engine functions made a wrong result: witnesses run once more with the worker taking notes, and beside them
scenarios that pass, so that what runs for everything can be told from what runs for the wrong ones."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgspec

from ropecheck.adapters import protocol
from ropecheck.conformance.plan.planner import Plan
from ropecheck.conformance.run.choice import last_mode
from ropecheck.conformance.run.events import Finding, ScenarioDone, Summary
from ropecheck.conformance.scenario.operations import Scenario
from ropecheck.conformance.subject import AnyPlan, Subject

PER_MODE = 3
"""Passing scenarios kept of each mode."""
MOST = 60
"""Findings whose witness is traced."""

Run = Callable[[Iterable[Subject]], dict[str, tuple[AnyPlan, protocol.JobAnswer]]]
"""Runs subjects with Job.trace, as many at once as there are workers; by their ids, those that were answered."""


@dataclass(slots=True)
class Passing:
    """A few small scenarios that pass, of every mode."""

    kept: dict[str, list[Subject]] = field(default_factory=dict)

    def note(self, done: ScenarioDone) -> None:
        """Keep the scenario if it passes and its modes have room."""
        outcome, scenario = done.outcome, done.scenario
        if outcome.failures or outcome.unrun:
            return
        for mode in outcome.modes if isinstance(scenario, Scenario) else (last_mode(scenario),):
            kept = self.kept.setdefault(mode, [])
            if len(kept) < PER_MODE:
                kept.append(scenario)

    def scenarios(self, sorts: set[type]) -> list[Subject]:
        """All of these sorts, once each."""
        return list({one.id: one for kept in self.kept.values() for one in kept if type(one) in sorts}.values())


def steps_of(plan: AnyPlan, op: int) -> range:
    """The job's steps that belong to operation `op`: after the last check before it, up to its own last check."""
    if not isinstance(plan, Plan):
        return range(len(plan.job.steps))
    before = [check.result for check in plan.checks if check.op < op]
    own = [check.result for check in plan.checks if check.op == op]
    start = max(before, default=-1) + 1
    return range(start, max(own, default=len(plan.job.steps) - 1) + 1)


def trace(summary: Summary, findings: Iterable[Finding], passing: Passing, run: Run) -> None:
    """Fill in `ran` of the findings, and the summary's account of steps with right results."""
    # A case or a script takes long.
    asked = [one for one in findings if one.unexpected or isinstance(one.scenario, Scenario)][:MOST]
    sorts = {Scenario, *(type(finding.scenario) for finding in asked)}
    traced = run({finding.scenario.id: finding.scenario for finding in asked}.values())
    for finding in asked:
        if (found := traced.get(finding.scenario.id)) is None or not found[1].traced:
            continue
        plan, answer = found
        steps = steps_of(plan, finding.failure.step)
        finding.ran = _joined(answer, steps)
        _right(summary, answer, range(steps.start))
    if not any(finding.ran for finding in summary.findings):
        return  # the worker cannot tell
    for _, answer in run(passing.scenarios(sorts)).values():
        _right(summary, answer, range(len(answer.traced)))


def _joined(answer: protocol.JobAnswer, steps: Iterable[int]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for step in steps if step < len(answer.traced) for name in answer.traced[step]))


def _right(summary: Summary, answer: protocol.JobAnswer, steps: Iterable[int]) -> None:
    for step in steps:
        names = answer.traced[step] if step < len(answer.traced) else ()
        if names:
            summary.right_steps += 1
        for name in names:
            summary.right_ran[name] = summary.right_ran.get(name, 0) + 1


def traced_job(job: protocol.Job) -> protocol.Job:
    """The same job, to be traced."""
    return msgspec.structs.replace(job, trace=True)

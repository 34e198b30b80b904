"""What a run checks: a scenario of forwards, one call of a prompt-table builder, or a client's script for a scheduler.
All have an id, a name and a family, travel as one job, and are stored and replayed alike."""

from dataclasses import dataclass

import msgspec

from ropecheck.adapters import protocol
from ropecheck.conformance.families.case import Case, step
from ropecheck.conformance.plan.planner import Plan, plan
from ropecheck.conformance.scenario.operations import Build, Scenario, Submit, Turn
from ropecheck.conformance.scripts.plan import play_of
from ropecheck.conformance.scripts.script import Script, size_of_script

Subject = Scenario | Case | Script


@dataclass(frozen=True, slots=True)
class CasePlan:
    """A case and the job that it is. The builders are called on the host, as the engines' processors call them."""

    scenario: Case
    job: protocol.Job


def plan_case(case: Case) -> CasePlan:
    """One job of one step, so that a crash costs one case. Raises OutOfDomain for a case that cannot be laid out."""
    return CasePlan(case, protocol.Job(case.id, (step(case),)))


@dataclass(frozen=True, slots=True)
class ScriptPlan:
    """A script and the job that it is."""

    scenario: Script
    job: protocol.Job


AnyPlan = Plan | CasePlan | ScriptPlan

_encoder = msgspec.msgpack.Encoder()


def plan_script(script: Script) -> ScriptPlan:
    """One job of one step. Raises OutOfDomain for a script that cannot be played."""
    return ScriptPlan(script, protocol.Job(script.id, (protocol.PlayStep(_encoder.encode(play_of(script))),)))


def plan_of(subject: Subject, device: str) -> AnyPlan:
    """The job of anything that can be checked. Raises OutOfDomain."""
    if isinstance(subject, Script):
        return plan_script(subject)
    return plan_case(subject) if isinstance(subject, Case) else plan(subject, device)


def size_of(scenario: Subject) -> tuple[int, int, str]:
    """Fewest operations first, then fewest tokens (patches for media), then the id so that ties do not depend on
    which worker was faster. A case's operations are its segments."""
    tokens = 0
    if isinstance(scenario, Case):
        segments = [segment for prompt in scenario.prompts for segment in prompt]
        for segment in segments:
            t, h, w = segment.grid or (0, 0, 0)
            tokens += segment.tokens + segment.features + t * h * w
        return len(segments), tokens, scenario.id
    if isinstance(scenario, Script):
        return size_of_script(scenario)
    for op in scenario.ops:
        if isinstance(op, Submit | Turn):
            for run in op.prompt:
                t, h, w = run.grid or (0, 0, 0)
                tokens += run.tokens + t * h * w
        elif isinstance(op, Build):
            tokens += len(op.batch.reqs)
    return len(scenario.ops), tokens, scenario.id

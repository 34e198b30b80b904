"""How strong the suite is: every planted fault, what catches it first, and rules that nothing ever breaks.

Faults run in this process, on the messages of the worker protocol; a test drives one through a real worker.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

from ropecheck.adapters import protocol
from ropecheck.conformance.judge.verdict import judge
from ropecheck.conformance.plan.planner import Plan, plan
from ropecheck.conformance.scenarios.chosen import chosen, laws
from ropecheck.conformance.scenarios.exhaustive import sweep
from ropecheck.conformance.selftest.mutants import Mutant, all_mutants
from ropecheck.conformance.selftest.reference_engine import ReferenceEngine
from ropecheck.conformance.selftest.reference_worker import answer
from ropecheck.spec.rules import all_rules

SMALLEST_BOUND = "small"
"""The bound whose scenarios alone are tried on every fault."""

ELSEWHERE = ("families.", "live.", "prefix.", "schedule.")
"""Rules that their own phase's tests plant faults for."""


@dataclass(frozen=True, slots=True)
class Catch:
    """The first failure that a fault causes."""

    scenarios: int
    seconds: float
    scenario: str
    rule: str
    signature: str


@dataclass(frozen=True, slots=True)
class Scored:
    """One fault. first: in the order of a default run. bound: whether the smallest bound alone catches it."""

    mutant: Mutant
    first: Catch | None
    bound: Catch | None
    rules: frozenset[str]
    """Rules that it breaks in the chosen scenarios and the laws."""


@dataclass(frozen=True, slots=True)
class Score:
    """All faults, whether the reference itself is caught, and the rules that no fault breaks."""

    scored: tuple[Scored, ...]
    reference: Catch | None
    vacuous: tuple[str, ...]

    @property
    def caught(self) -> int:
        return sum(one.first is not None for one in self.scored)

    @property
    def exit_code(self) -> int:
        return 0 if self.caught == len(self.scored) and self.reference is None and not self.vacuous else 1


def score(progress: Iterable[Mutant] | None = None) -> Iterator[Scored]:
    """Score the faults one by one."""
    first = [plan(scenario) for scenario in chain(chosen(), laws.scenarios())]
    small = [plan(scenario) for scenario in sweep(SMALLEST_BOUND)]
    for mutant in progress or all_mutants().values():
        caught, rules = _run_all(mutant, [planned for planned in first if touches(mutant, planned)])
        bound = _first(mutant.make, [planned for planned in small if touches(mutant, planned)])
        yield Scored(mutant, caught or bound, bound, rules)


def touches(mutant: Mutant, planned: Plan) -> bool:
    """Whether a scenario can show the fault at all."""
    if not mutant.mode:
        return True
    steps = (step.forward if isinstance(step, protocol.Cost) else step for step in planned.job.steps)
    return any(isinstance(step, protocol.Forward) and step.mode == mutant.mode for step in steps)


def summed_up(scored: Iterable[Scored]) -> Score:
    """The whole score. Runs the reference as well, which nothing may catch."""
    every = tuple(scored)
    broken: set[str] = set()
    for one in every:
        broken |= one.rules
    reference = _first(ReferenceEngine, (plan(scenario) for scenario in chain(chosen(), laws.scenarios())))
    here = (rule for rule in all_rules().values() if "cpu" in rule.devices and not rule.id.startswith(ELSEWHERE))
    vacuous = tuple(rule.id for rule in here if rule.id not in broken)
    return Score(every, reference, vacuous)


def _run_all(mutant: Mutant, plans: Iterable[Plan]) -> tuple[Catch | None, frozenset[str]]:
    caught: Catch | None = None
    rules: set[str] = set()
    started = time.perf_counter()
    for number, planned in enumerate(plans, start=1):
        failures = judge(planned, answer(planned.job, mutant.make())).failures
        rules |= {failure.rule for failure in failures}
        if failures and caught is None:
            seconds = time.perf_counter() - started
            caught = Catch(number, seconds, planned.scenario.name, failures[0].rule, failures[0].signature)
    return caught, frozenset(rules)


def _first(make: Callable[[], ReferenceEngine], plans: Iterable[Plan]) -> Catch | None:
    started = time.perf_counter()
    for number, planned in enumerate(plans, start=1):
        failures = judge(planned, answer(planned.job, make())).failures
        if failures:
            seconds = time.perf_counter() - started
            return Catch(number, seconds, planned.scenario.name, failures[0].rule, failures[0].signature)
    return None


def lines(result: Score) -> Iterator[str]:
    """The score for a terminal."""
    for one in result.scored:
        bound = f"{SMALLEST_BOUND} (scenario {one.bound.scenarios})" if one.bound else "chosen scenarios"
        if one.first is None:
            yield f"MISSED  {one.mutant.name}  [{one.mutant.like}]  {one.mutant.says}"
        else:
            yield (
                f"caught  {one.mutant.name}  [{one.mutant.like}]  by {one.first.rule}: {one.first.signature}; after "
                f"{one.first.scenarios} scenarios, {one.first.seconds:.2f} s; smallest bound: {bound}"
            )
    if result.reference is not None:
        yield f"THE REFERENCE ITSELF IS CAUGHT by {result.reference.rule} in {result.reference.scenario}"
    for rule in result.vacuous:
        yield f"vacuous: no planted fault ever breaks {rule}"
    yield f"{result.caught} of {len(result.scored)} planted faults caught, {len(result.vacuous)} vacuous rules"

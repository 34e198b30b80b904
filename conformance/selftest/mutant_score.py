"""How strong the suite is: every planted fault, what catches it first, and rules that nothing ever breaks.

Faults run in this process, on the messages of the worker protocol; a test drives one through a real worker.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from itertools import chain
from pathlib import Path

import msgspec

from ropecheck.adapters import protocol
from ropecheck.conformance.families.case import Case
from ropecheck.conformance.judge.outcome import Failure
from ropecheck.conformance.judge.verdict import judge
from ropecheck.conformance.plan.planner import Plan, plan
from ropecheck.conformance.reference_engine import ReferenceEngine, answer
from ropecheck.conformance.routes.verdict import judge as judge_prompt
from ropecheck.conformance.scenarios.chosen import chosen, laws
from ropecheck.conformance.scenarios.exhaustive import sweep
from ropecheck.conformance.selftest import builder, stream
from ropecheck.conformance.selftest.mutants import Mutant, all_mutants
from ropecheck.spec.rules import all_rules

SMALLEST_BOUND = "small"
"""The bound whose scenarios alone are tried on every fault."""


class Catch(msgspec.Struct, frozen=True):
    """The first failure that a fault causes."""

    scenarios: int
    seconds: float
    scenario: str
    rule: str
    signature: str


class Scored(msgspec.Struct, frozen=True):
    """One fault. first: in the order of a default run. bound: the smallest bound's scenarios alone."""

    name: str
    like: str
    says: str
    first: Catch | None
    bound: Catch | None = None
    rules: tuple[str, ...] = ()
    """Rules that it breaks in the chosen scenarios and the laws, or in the chosen prompts."""


class Score(msgspec.Struct, frozen=True):
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


Tried = Iterable[tuple[str, Iterable[Failure]]]
"""(name of a scenario, prompt or stream, what is said of it)."""


def trials() -> dict[str, Callable[[], Scored]]:
    """Every fault: of engines, of builders of prompt tables, and of a scheduler's event streams."""
    found: dict[str, Callable[[], Scored]] = {}
    for name, mutant in all_mutants().items():
        found[name] = partial(_engine, mutant)
    for slip in builder.SLIPS:
        found[slip.name] = partial(_of, slip, _prompts(slip.answer))
    for one in stream.SLIPS:
        found[one.name] = partial(_of, one, _streamed(one))
    return found


def score(kept: Mapping[str, Scored]) -> Iterator[Scored]:
    """Score the faults one by one; those that are kept from before are taken as they are."""
    for name, trial in trials().items():
        yield kept.get(name) or trial()


def touches(mutant: Mutant, planned: Plan) -> bool:
    """Whether a scenario can show the fault at all."""
    if not mutant.mode:
        turning = any(isinstance(step, protocol.Rotary) for step in planned.job.steps)
        if type(mutant.make()).rotate is not ReferenceEngine.rotate:
            return turning
        return not turning or any(isinstance(step, protocol.BuildForward | protocol.Cost) for step in planned.job.steps)
    steps = (step.forward if isinstance(step, protocol.Cost) else step for step in planned.job.steps)
    return any(isinstance(step, protocol.BuildForward) and step.mode == mutant.mode for step in steps)


def summed_up(scored: Iterable[Scored]) -> Score:
    """The whole score. Runs the reference as well, which nothing may catch."""
    every = tuple(scored)
    broken = {rule for one in every for rule in one.rules}
    told = ((slip.name, slip.right()) for slip in stream.SLIPS)
    right = chain(_engines(ReferenceEngine, _first_plans()), _prompts(builder.right), told)
    here = (rule for rule in all_rules().values() if "cpu" in rule.devices)
    return Score(every, _caught(right)[0], tuple(rule.id for rule in here if rule.id not in broken))


@cache
def _first_plans() -> tuple[Plan, ...]:
    return tuple(plan(scenario) for scenario in chain(chosen(), laws.scenarios()))


@cache
def _small_plans() -> tuple[Plan, ...]:
    return tuple(plan(scenario) for scenario in sweep(SMALLEST_BOUND))


@cache
def _cases() -> tuple[Case, ...]:
    return tuple(builder.every_case())


def _engine(mutant: Mutant) -> Scored:
    def shown(plans: Iterable[Plan]) -> Tried:
        return _engines(mutant.make, (planned for planned in plans if touches(mutant, planned)))

    caught, rules = _caught(shown(_first_plans()))
    bound, _ = _caught(shown(_small_plans()), stop=True)
    return Scored(mutant.name, mutant.like, mutant.says, caught or bound, bound, rules)


def _of(slip: builder.BuilderSlip | stream.StreamSlip, tried: Tried) -> Scored:
    caught, rules = _caught(tried)
    return Scored(slip.name, slip.like, slip.says, caught, None, rules)


def _streamed(slip: stream.StreamSlip) -> Tried:
    yield slip.name, slip.wrong()


def _engines(make: Callable[[], ReferenceEngine], plans: Iterable[Plan]) -> Tried:
    return ((planned.scenario.name, judge(planned, answer(planned.job, make())).failures) for planned in plans)


def _prompts(give: Callable[[Case], protocol.Result | None]) -> Tried:
    for case in _cases():
        given = give(case)
        if given is not None:
            yield case.name, judge_prompt(case, given).failures


def _caught(tried: Tried, stop: bool = False) -> tuple[Catch | None, tuple[str, ...]]:
    """The first catch, and the rules that are broken anywhere. stop: at the first."""
    caught: Catch | None = None
    rules: set[str] = set()
    started = time.perf_counter()
    for number, (name, found) in enumerate(tried, start=1):
        failures = list(found)
        rules |= {failure.rule for failure in failures}
        if failures and caught is None:
            seconds = time.perf_counter() - started
            caught = Catch(number, seconds, name, failures[0].rule, failures[0].signature)
            if stop:
                break
    return caught, tuple(sorted(rules))


class Kept:
    """Scores that were found before, by the same suite: one JSON line each, written as they are found."""

    def __init__(self, path: Path, suite: str) -> None:
        """Raises OSError. A file of another suite is begun anew."""
        self.path = path
        head = msgspec.json.encode(suite)
        lines = path.read_bytes().splitlines() if path.is_file() else []
        if not lines or lines[0] != head:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(head + b"\n")
            lines = []
        self.scored: dict[str, Scored] = {}
        for line in lines[1:]:
            try:
                one = msgspec.json.decode(line, type=Scored)
            except msgspec.DecodeError:
                continue  # cut off in the middle
            self.scored[one.name] = one

    def add(self, one: Scored) -> None:
        """Keep it."""
        if one.name not in self.scored:
            self.scored[one.name] = one
            with self.path.open("ab") as file:
                file.write(msgspec.json.encode(one) + b"\n")


def lines(result: Score) -> Iterator[str]:
    """The score for a terminal."""
    yield from map(line, result.scored)
    if result.reference is not None:
        yield f"THE REFERENCE ITSELF IS CAUGHT by {result.reference.rule} in {result.reference.scenario}"
    for rule in result.vacuous:
        yield f"vacuous: no planted fault ever breaks {rule}"
    yield f"{result.caught} of {len(result.scored)} planted faults caught, {len(result.vacuous)} vacuous rules"


def line(one: Scored) -> str:
    """One fault."""
    if one.first is None:
        return f"MISSED  {one.name}  [{one.like}]  {one.says}"
    bound = f"; smallest bound: scenario {one.bound.scenarios}" if one.bound else ""
    return (
        f"caught  {one.name}  [{one.like}]  by {one.first.rule}: {one.first.signature}; after "
        f"{one.first.scenarios} scenarios, {one.first.seconds:.2f} s{bound}"
    )

"""Answers of the reference and of planted faults, to hold the rules against."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

from ropecheck.adapters import protocol
from ropecheck.conformance.families.case import Case
from ropecheck.conformance.judge.outcome import Outcome
from ropecheck.conformance.judge.verdict import judge
from ropecheck.conformance.plan.planner import Plan, plan
from ropecheck.conformance.reference_engine import ReferenceEngine, answer
from ropecheck.conformance.scenarios.chosen import chosen
from ropecheck.conformance.scenarios.chosen.laws import scenarios as laws
from ropecheck.conformance.selftest import builder

Engine = Callable[[], ReferenceEngine]


@cache
def plans() -> tuple[Plan, ...]:
    """Every chosen scenario and every instance of a law."""
    return tuple(plan(scenario) for scenario in (*chosen(), *laws()))


@cache
def references() -> tuple[Outcome, ...]:
    """What is said of the reference, per plan."""
    return tuple(judge(planned, answered(planned)) for planned in plans())


@cache
def cases() -> tuple[Case, ...]:
    """The chosen prompts of every family and route."""
    return tuple(builder.every_case())


def answered(planned: Plan, make: Engine = ReferenceEngine) -> protocol.JobAnswer:
    """What an engine answers, without a process."""
    return answer(planned.job, make())


def broken(planned: Plan, given: protocol.JobAnswer) -> set[str]:
    """The rules that an answer breaks."""
    return {failure.rule for failure in judge(planned, given).failures}


def asking(rule: str) -> Iterator[Plan]:
    """Plans whose right answer the rule is asked about first, the others behind them."""
    marked = [(rule not in outcome.checked, planned) for planned, outcome in zip(plans(), references(), strict=True)]
    yield from (planned for without, planned in sorted(marked, key=lambda pair: pair[0]))

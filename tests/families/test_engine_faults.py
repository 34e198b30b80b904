"""Every rule on prompt tables that a run of SGLang reaches catches a fault in a function of the real engine."""

from __future__ import annotations

from functools import cache

import msgspec
import pytest

from ropecheck.conformance.families.case import Case
from ropecheck.conformance.families.cases import all_cases
from ropecheck.conformance.families.routes import PREFIX
from ropecheck.conformance.families.verdict import judge as judge_builder
from ropecheck.conformance.routes.cases import cases
from ropecheck.conformance.routes.verdict import judge as judge_route
from ropecheck.conformance.run import baseline
from ropecheck.conformance.subject import plan_of
from tests.adapters_sglang.family_faults import FAULTS
from tests.adapters_sglang.support import Worker

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("planted")]

NOT_PLANTED = {
    "families.route_layout": "a processor's expansion is transformers' code; test_routes.py plants in answers"
}


@cache
def by_name() -> dict[str, Case]:
    return {case.name: case for case in (*all_cases("sglang", count=0), *cases("sglang"))}


def wrong(worker: Worker, case: Case, fault: str = "") -> set[tuple[str, str]]:
    """Broken rules and what is said of them."""
    job = plan_of(case, "cpu").job
    (result,) = worker.run(msgspec.structs.replace(job, id=f"fault:{fault}") if fault else job).results
    judge = judge_route if case.builder.startswith(PREFIX) else judge_builder
    return {(failure.rule, failure.message) for failure in judge(case, result).failures}


@pytest.mark.parametrize("rule", FAULTS)
def test_each_rule_catches_a_fault_of_the_engines(rule: str, planted_worker: Worker) -> None:
    case = by_name()[FAULTS[rule][0]]
    found = wrong(planted_worker, case, rule) - wrong(planted_worker, case)
    assert rule in {broken for broken, _ in found}


def test_there_is_a_fault_for_every_rule_that_a_run_reaches() -> None:
    known = baseline.load("sglang", "0.5.23", "cpu")
    assert known is not None
    reached = {rule for phase in known.phases.values() for rule in phase}
    mine = {rule for rule in reached if rule.split(".")[0] in ("families", "prefix")}
    assert mine == set(FAULTS) | set(NOT_PLANTED)

"""Comparing in the worker comes to the same as sending every table: right ones, wrong ones, and those that stay."""

from __future__ import annotations

import msgspec
import pytest

from ropecheck.adapters import protocol
from ropecheck.conformance.judge.verdict import judge
from ropecheck.conformance.plan.planner import plan
from ropecheck.conformance.scenario.operations import Scenario
from ropecheck.conformance.scenarios.chosen import chosen
from tests.adapters_sglang.support import Worker

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("planted")]


def scenarios() -> list[Scenario]:
    """Every third chosen scenario, and some whose failure is known."""
    found = chosen()
    return [*found[::3], *(scenario for scenario in found if "retract" in scenario.name or "ragged" in scenario.name)]


def test_both_ways_come_to_the_same(planted_worker: Worker) -> None:
    """Also with tables that are settled at each step, and not at the end."""
    failed = matched = 0
    for scenario in scenarios():
        planned = plan(scenario, "cuda")
        job = msgspec.structs.replace(planned.job, device="cpu")
        if not any(isinstance(step, protocol.BuildForward) for step in job.steps):
            continue
        bare = tuple(
            msgspec.structs.replace(s, expect=()) if isinstance(s, protocol.BuildForward) else s for s in job.steps
        )
        left = judge(planned, planted_worker.run(msgspec.structs.replace(job, steps=bare)))
        failed += len(left.failures)
        for settled in (job.id, "one by one:"):
            compared = planted_worker.run(msgspec.structs.replace(job, id=settled))
            right = judge(planned, compared)
            assert left.failures == right.failures and left.checked == right.checked, scenario.name
            assert left.unrun == right.unrun, scenario.name
            answers = (result for result in compared.results if isinstance(result, protocol.TablesAnswer))
            matched += sum(table.matched for answer in answers for table in answer.tables)
    assert failed and matched

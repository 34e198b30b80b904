"""Seeds of `fuzz` that once ended with a false alarm: tables behind a stale one, neighbours of a request that never came
to be."""

from __future__ import annotations

import pytest

from ropecheck.conformance.known.failures import entries_for
from ropecheck.conformance.known.model import predicted
from ropecheck.conformance.plan.planner import plan
from ropecheck.conformance.scenarios.random import random_scenarios, stateful_scenarios
from tests.adapters_sglang.support import Worker
from tests.known.test_causes import BUGS, ENTRIES, failures_of

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("planted")]


@pytest.mark.parametrize("seed", [2, 7, 995574])
def test_nothing_that_a_seed_draws_is_new(seed: int, planted_worker: Worker) -> None:
    failed = 0
    for scenario in (*random_scenarios(seed, 15), *stateful_scenarios(seed, 10)):
        planned = plan(scenario)
        failures = failures_of(planted_worker, planned)
        failed += bool(failures)
        if failures:
            assert None not in entries_for(failures, ENTRIES, predicted(planned, BUGS)), scenario.name
    assert failed

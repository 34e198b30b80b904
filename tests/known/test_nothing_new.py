"""Nothing is new where nothing is planted: in seeds of `fuzz` that once ended with a false alarm (tables behind a
stale one, requests that never were), and with any known bug mended in memory."""

from __future__ import annotations

import pytest

from ropecheck.adapters.sglang.mends import MENDS
from ropecheck.conformance.known.failures import entries_for
from ropecheck.conformance.known.model import predicted
from ropecheck.conformance.plan.planner import plan
from ropecheck.conformance.scenarios.chosen import chosen
from ropecheck.conformance.scenarios.random import random_scenarios, stateful_scenarios
from tests.adapters_sglang.support import Worker
from tests.known.test_causes import failures_of
from tests.known.test_witnesses import BUGS, ENTRIES

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


def test_a_mend_ends_its_own_cause_and_leaves_what_was_right(planted_worker: Worker) -> None:
    """A turn with a picture, and a retraction: most mends go around them."""
    names = ("session, text then image", "retract, text")
    plans = [plan(one) for one in chosen() if one.name in names]
    assert len(plans) == len(names)
    for planned in plans:
        for cause in MENDS:
            assert not failures_of(planted_worker, planned, f"mend:{cause}"), (cause, planned.scenario.name)

"""A seed is one set of scenarios, whatever else the process has imported, on every machine."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from ropecheck.conformance.scenarios.random import random_scenarios, stateful_scenarios

COUNT = 60

SCRIPT = f"""
import importlib, sys
for name in sys.argv[2:]:
    importlib.import_module(name)
from ropecheck.conformance.scenarios import random
for scenario in getattr(random, sys.argv[1])(0, {COUNT}):
    print(scenario.id)
"""

LOCAL = (
    "ropecheck.conformance.scenarios.chosen",
    "ropecheck.conformance.scenarios.exhaustive",
    "ropecheck.conformance.selftest.mutants",
    "ropecheck.conformance.families.cases",
)
"""Modules of this suite, whose constants a generator could come to know."""


def _ids(maker: str, *modules: str, hash_seed: str = "0") -> list[str]:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-c", SCRIPT, maker, *modules]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.parametrize("maker", ["random_scenarios", "stateful_scenarios"])
def test_a_seed_is_one_set_whatever_is_imported(maker: str) -> None:
    alone = _ids(maker)
    assert _ids(maker, *LOCAL, hash_seed="1") == alone
    here = {"random_scenarios": random_scenarios, "stateful_scenarios": stateful_scenarios}[maker]
    assert [scenario.id for scenario in here(0, COUNT)] == alone


@pytest.mark.parametrize("make", [random_scenarios, stateful_scenarios])
def test_as_many_different_ones_as_asked_for(make: object) -> None:
    assert callable(make)
    scenarios = list(make(0, 120))
    assert len(scenarios) == len({scenario.id for scenario in scenarios}) == 120


@pytest.mark.parametrize("make", [random_scenarios, stateful_scenarios])
def test_more_of_a_seed_begin_alike_and_seeds_differ(make: object) -> None:
    assert callable(make)
    ids = {seed: [scenario.id for scenario in make(seed, 40)] for seed in (0, 1)}
    assert [scenario.id for scenario in make(0, 10)] == ids[0][:10]
    assert not set(ids[0]) & set(ids[1])

"""A seed is one set of scenarios, whatever else the process has imported, on every machine."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from ropecheck.conformance.scenarios.random import random_scenarios, stateful_scenarios
from ropecheck.conformance.scripts.draws import random_scripts

COUNT = 60

SCRIPT = f"""
import importlib, sys
for name in sys.argv[2:]:
    importlib.import_module(name)
from ropecheck.conformance.scenarios import random
from ropecheck.conformance.scripts.draws import random_scripts
for made in {{"random_scripts": random_scripts, **vars(random)}}[sys.argv[1]](0, {COUNT}):
    print(made.id)
"""

MAKERS = {
    "random_scenarios": random_scenarios,
    "stateful_scenarios": stateful_scenarios,
    "random_scripts": random_scripts,
}

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


@pytest.mark.parametrize("maker", MAKERS)
def test_a_seed_is_one_set_whatever_is_imported(maker: str) -> None:
    alone = _ids(maker)
    assert _ids(maker, *LOCAL, hash_seed="1") == alone
    assert [made.id for made in MAKERS[maker](0, COUNT)] == alone  # type: ignore[operator]


@pytest.mark.parametrize("make", MAKERS.values())
def test_as_many_different_ones_as_asked_for(make: object) -> None:
    assert callable(make)
    scenarios = list(make(0, 120))
    assert len(scenarios) == len({scenario.id for scenario in scenarios}) == 120


@pytest.mark.parametrize("make", MAKERS.values())
def test_more_of_a_seed_begin_alike_and_seeds_differ(make: object) -> None:
    assert callable(make)
    ids = {seed: [scenario.id for scenario in make(seed, 40)] for seed in (0, 1)}
    assert [scenario.id for scenario in make(0, 10)] == ids[0][:10]
    assert not set(ids[0]) & set(ids[1])

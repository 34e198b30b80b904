"""Scenarios from Hypothesis as a plain iterable, so that workers can check them side by side."""

from __future__ import annotations

from collections.abc import Iterator

import hypothesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.stateful import run_state_machine_as_test

from ropecheck.conformance.scenario.operations import Build, Scenario
from ropecheck.conformance.scenarios.random.machine import machine
from ropecheck.conformance.scenarios.random.strategies import scenarios

SPREAD = 1_000_003
"""Keeps the parts of one seed apart from those of its neighbours."""

BATCH = 50
"""Scenarios that are generated before any of them is handed on."""


def _settings(count: int, steps: int = 30) -> settings:
    return settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        stateful_step_count=steps,
        suppress_health_check=list(HealthCheck),
        print_blob=False,
        verbosity=hypothesis.Verbosity.quiet,
    )


def random_scenarios(seed: int, count: int) -> Iterator[Scenario]:
    """`count` scenarios or a few less; the same ones for the same seed."""
    for part in range(0, count, BATCH):
        yield from _numbered(_drawn(seed * SPREAD + part, min(BATCH, count - part)), "random", seed, part)


def stateful_scenarios(seed: int, count: int) -> Iterator[Scenario]:
    """`count` runs of the state machine or a few less; the same ones for the same seed."""
    for part in range(0, count, BATCH):
        yield from _numbered(_run(seed * SPREAD + part, min(BATCH, count - part)), "stateful", seed, part)


def _drawn(seed: int, count: int) -> list[Scenario]:
    found: list[Scenario] = []

    @hypothesis.seed(seed)
    @_settings(count)
    @given(scenarios())
    def collect(scenario: Scenario) -> None:
        found.append(scenario)

    collect()
    return found


def _run(seed: int, count: int) -> list[Scenario]:
    found: list[Scenario] = []
    run_state_machine_as_test(hypothesis.seed(seed)(machine(found.append)), settings=_settings(count))
    return found


def _numbered(found: list[Scenario], kind: str, seed: int, part: int) -> Iterator[Scenario]:
    for number, scenario in enumerate(found, start=part + 1):
        if any(isinstance(op, Build) for op in scenario.ops):
            yield Scenario(name=f"{kind} {seed}.{number}", ops=scenario.ops, family=scenario.family)

"""The suite can fail: every planted fault is caught, by the rule and signature that it deserves."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Annotated

import pytest

from ropecheck.adapters import protocol
from ropecheck.conformance.plan.planner import Plan, plan
from ropecheck.conformance.scenarios.chosen import chosen, modes
from ropecheck.conformance.selftest import mutant_score, stream
from ropecheck.conformance.selftest.mutant_score import touches
from ropecheck.conformance.selftest.mutants import MUTANTS, all_mutants
from ropecheck.conformance.selftest.mutants.generic import FAULTS, planted
from ropecheck.spec.modes import all_modes
from ropecheck.spec.modes.declaration import DECLARED, RUNNING, CommittedLen, Mode, Tokens, Whole, mode
from tests.core.caught import CAUGHT
from tests.core.support import failures, outcome, unnamed


@cache
def plans() -> tuple[Plan, ...]:
    return tuple(plan(scenario) for scenario in chosen())


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_fault_is_named(name: str) -> None:
    assert any((failure.rule, failure.signature) == CAUGHT[name] for failure in failures(MUTANTS[name], plans()))


@pytest.mark.parametrize("name", all_modes())
def test_what_follows_from_a_declaration_is_enough_to_catch_what_follows_from_it(name: str) -> None:
    """Faults that any mode can have, in the scenarios that every mode has."""
    found = all_modes()[name]
    faults = planted({name: found})
    assert len(faults) >= 6
    assert unnamed(faults, tuple(map(plan, modes.of_mode(found)))) == []


@pytest.fixture
def strange() -> Iterator[Mode]:
    """A mode that nobody has written: every second token from the newest one on."""

    @mode("strange", reads=RUNNING, buffers=("graph",), copies=(0, 1), source="this test")
    def declared(seq_len: CommittedLen, count: Annotated[int, Whole(1, 4)]) -> Tokens:
        """A strange forward reads every second token."""
        return Tokens(seq_len, count, step=2)

    yield declared
    del DECLARED["strange"]


def test_a_mode_that_nobody_has_written_has_faults_and_scenarios(strange: Mode) -> None:
    assert any("strange" in name for name in all_mutants())
    faults = planted({strange.name: strange})
    scenarios = list(modes.of_mode(strange))
    assert len(faults) >= len(FAULTS) - 6 and len(scenarios) >= 6
    assert not any(outcome(scenario).failures for scenario in scenarios)
    assert unnamed(faults, tuple(map(plan, scenarios))) == []


def test_a_fault_is_tried_only_where_its_mode_is() -> None:
    decoding = next(m for name, m in all_mutants().items() if name.startswith("any mode, decode:"))
    hit, missed = (
        next(
            p
            for p in plans()
            if ("decode" in {s.mode for s in p.job.steps if isinstance(s, protocol.BuildForward)}) == there
        )
        for there in (True, False)
    )
    assert touches(decoding, hit) and not touches(decoding, missed)


def test_each_slip_of_a_stream_is_tried_with_its_own_stream() -> None:
    made = mutant_score.trials()
    for slip in stream.SLIPS:
        assert slip.rule in made[slip.name]().rules

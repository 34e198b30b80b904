"""Modes outside the repository (docs/examples) through the real engine's functions, and slips in them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from ropecheck.conformance.judge.outcome import Outcome
from ropecheck.conformance.judge.verdict import judge
from ropecheck.conformance.plan.planner import Plan, plan
from ropecheck.conformance.scenarios.chosen.modes import of_mode
from ropecheck.conformance.selftest.mutants.generic import planted
from ropecheck.spec.modes import all_modes, load
from ropecheck.spec.modes.declaration import DECLARED, Mode
from tests.adapters_sglang.support import LOOKAHEAD, UNO, Worker
from tests.core.support import unnamed

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("planted")]


@contextlib.contextmanager
def declared(path: Path) -> Iterator[tuple[Mode, ...]]:
    """For the length of a test: no other may enumerate them."""
    found = load(path)
    yield found
    for one in found:
        del DECLARED[one.name]


@pytest.fixture
def lookahead() -> Iterator[Mode]:
    with declared(LOOKAHEAD) as (mode,):
        yield mode


def answered(worker: Worker, planned: Plan, job: str) -> Outcome:
    return judge(planned, worker.run(msgspec.structs.replace(planned.job, id=job)))


def test_the_real_verify_places_it_and_a_slip_there_is_told(lookahead: Mode, planted_worker: Worker) -> None:
    """The given indices, with each request's delta; other columns and no table are failures of the mode."""
    assert lookahead.name == "lookahead_verify" and lookahead.name in all_modes()
    tried = [plan(one) for one in of_mode(lookahead)]
    right = [answered(planted_worker, one, "as it is") for one in tried]
    assert [one.state for one in right] == ["pass"] * len(tried)
    assert sum(one.modes.get(lookahead.name, 0) for one in right) >= len(tried)
    for fault, rule in (
        ("every table further", "table.past_table"),
        ("a drafted column one on", "table.past_table"),
        ("no table", "table.present"),
    ):
        told = [answered(planted_worker, one, f"fault:{fault}").failures for one in tried]
        assert any((one.rule, one.mode) == (rule, lookahead.name) for each in told for one in each), fault


def test_every_generic_fault_in_it_is_caught(lookahead: Mode) -> None:
    """One row, a neighbour's delta, too few columns, ..: in the scenarios that the mode has by itself."""
    faults = planted({lookahead.name: lookahead})
    assert len(faults) >= 6
    assert unnamed(faults, tuple(map(plan, of_mode(lookahead)))) == []


def test_unos_batches_have_no_three_rows(planted_worker: Worker) -> None:
    """A finding (docs/scheduler.md): the 1-D table is right, and the one that an M-RoPE model reads is not there."""
    with declared(UNO) as modes:
        for mode in modes:
            planned = plan(next(iter(of_mode(mode))))
            found = answered(planted_worker, planned, "as it is")
            assert not found.unrun
            assert {(one.rule, one.signature) for one in found.failures} == {("table.present", "table missing")}

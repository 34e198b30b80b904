"""The reference at speed against a second derivation: every table of every scenario, cell by cell."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ropecheck.conformance.scenario.forward import ExpectedTables
from ropecheck.conformance.scenario.lifecycle import apply
from ropecheck.conformance.scenario.operations import Finish, Open, Operation, Scenario, Submit, Turn
from ropecheck.conformance.scenario.words import decode, draft, draft_extend, extend, mixed, verify, window
from ropecheck.conformance.scenarios.chosen import chosen
from ropecheck.conformance.scenarios.exhaustive import sweep
from ropecheck.conformance.scenarios.random import histories, scenarios
from ropecheck.reference import compose
from ropecheck.reference.requests import State
from ropecheck.reference.timeline import timeline
from ropecheck.spec.families import family
from ropecheck.spec.history import History, OutOfDomain, TokenIndex, ideal_column, image, prompt_table, text
from tests.naive import indices


def assert_equal(state: State, run: ExpectedTables) -> None:
    """Positions and rows, from the requests' own histories."""
    for label, tables in run.tables.items():
        step = int(label.removeprefix("step ")) if label.startswith("step ") else 0
        index: list[int] = []
        columns: list[tuple[int, ...]] = []
        for part in run.batch.parts:
            for row, req in enumerate(part.reqs):
                request = state.requests[req]
                table = prompt_table(family(state.family), request.prompt + request.ahead)
                read = indices(part.mode or run.batch.mode, part, row, step)
                index += read
                columns += [ideal_column(table, TokenIndex(one)) for one in read]
        spare = tables.positions.size - len(index)
        assert spare >= 0 and (spare == 0 or run.buffer)
        assert tables.positions.tolist() == index + [0] * spare
        if tables.rows is not None:
            assert tables.rows.T.tolist() == [list(column) for column in columns] + [[0, 0, 0]] * spare


def check(scenario: Scenario) -> None:
    state = State(family=scenario.family)
    for op in scenario.ops:
        moved = apply(state, op)
        if moved.forward is not None:
            assert_equal(state, moved.forward)
        state = moved.state


@pytest.mark.parametrize("scenario", chosen(), ids=lambda scenario: scenario.name)
def test_chosen_scenarios(scenario: Scenario) -> None:
    check(scenario)


def test_the_small_scope() -> None:
    for number, scenario in enumerate(sweep("small")):
        if number % 7 == 0:
            check(scenario)


@settings(max_examples=60, deadline=None)
@given(scenarios())
def test_random_scenarios(scenario: Scenario) -> None:
    check(scenario)


@settings(deadline=None)
@given(histories(), st.integers(0, 200))
def test_a_timeline_reads_the_ideal_function(history: History, more: int) -> None:
    line = timeline("qwen2_vl", history, len(history))
    whole = prompt_table(family("qwen2_vl"), (*history, text(more)))
    indices = np.arange(len(whole), dtype=np.int64)
    assert line.take(indices).T.tolist() == [list(column) for column in whole]


@given(histories(), histories())
def test_composing_turns_is_building_the_whole(before: History, turn: History) -> None:
    parts = [timeline("qwen2_vl", part, 0).table for part in (before, turn)]
    whole = timeline("qwen2_vl", (*before, *turn), 0)
    assert compose.appended(*parts).tolist() == whole.table.tolist()
    assert compose.delta(whole.table) == whole.delta


IMAGE: History = (text(2), image(1, 4, 6))


def test_a_turn_of_text_has_its_parents_table_up_to_what_it_keeps_of_it() -> None:
    state = State(family="qwen2_vl")
    first = (Open(0), Turn(0, 0, IMAGE), extend((window(0),)), Finish(0))
    for op in (*first, Turn(0, 1, (text(3),), parent=0), Turn(0, 2, (text(3),), parent=0, offset=5)):
        state = apply(state, op).state
    covered = {req: (one.tabulated_runs, one.line.tabulated) for req, one in state.requests.items()}
    assert covered == {0: (2, 8), 1: (2, 8), 2: (2, 5)}  # the third keeps three tokens of the picture


@pytest.mark.parametrize(
    ("ops", "reason"),
    [
        ((decode((0,)),), "does not exist"),
        ((Submit(0, IMAGE), decode((0,))), "is waiting"),
        ((Submit(0, IMAGE), Submit(0, IMAGE)), "exists already"),
        ((Submit(0, ()),), "empty prompt"),
        ((Submit(0, IMAGE), extend((window(0, 9),))), "8 left"),
        ((Submit(0, IMAGE), extend((window(0, hit=8),))), "a hit leaves"),
        ((Submit(0, IMAGE), extend((window(0), window(0)))), "twice"),
        ((Submit(0, IMAGE), Submit(1, IMAGE), extend((window(0, 2), window(1, 2)))), "one at a time"),
        ((Submit(0, IMAGE), extend((window(0),)), verify((0,), ((1,),))), "parents come first"),
        ((Submit(0, IMAGE), mixed((window(0),), ())), "decode: a batch without requests"),
        ((Submit(0, IMAGE), extend((window(0),)), draft((0,), 2, buffer="graph")), "short of the live columns"),
        (
            (Submit(0, IMAGE), extend((window(0),)), verify((0,), ((),), buffer="tier")),
            "not loaded into a buffer 'tier'",
        ),
    ],
)
def test_states_that_no_request_leads_to_are_refused(ops: tuple[Operation, ...], reason: str) -> None:
    state = State(family="qwen2_vl")
    with pytest.raises(OutOfDomain, match=reason):
        for op in ops:
            state = apply(state, op).state


@pytest.mark.parametrize(
    "op",
    [
        draft((0,), 2, buffer="dp", buffer_rows=1),
        draft((0,), 2, buffer="multi_layer", buffer_rows=1),
        draft_extend((0,), 2, buffer="frozen_kv", buffer_rows=1),
        decode((0,), buffer="frozen_kv", buffer_rows=1),
        extend((window(0),), buffer="multi_layer", buffer_rows=1),
    ],
)
def test_a_buffer_that_the_forward_is_never_loaded_into_is_refused(op: Operation) -> None:
    state = State(family="qwen2_vl")
    for before in (
        Submit(0, IMAGE),
        *(() if op == extend((window(0),), buffer="multi_layer", buffer_rows=1) else [extend((window(0),))]),
    ):
        state = apply(state, before).state
    with pytest.raises(OutOfDomain, match="is not loaded into a buffer"):
        apply(state, op)

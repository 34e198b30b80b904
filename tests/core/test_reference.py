"""The reference is the specification at speed: every table of every scenario, cell by cell."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ropecheck.reference.batches import Batch, Expected
from ropecheck.spec.modes.cells import Cell, Place

from ropecheck.conformance.scenario.legal import refuse_nonsense
from ropecheck.conformance.scenario.lifecycle import apply
from ropecheck.conformance.scenario.operations import Operation, Scenario, Submit
from ropecheck.conformance.scenario.words import decode, draft, draft_extend, extend, mixed, verify, window
from ropecheck.conformance.scenarios.chosen import chosen
from ropecheck.conformance.scenarios.exhaustive import sweep
from ropecheck.conformance.scenarios.random import histories, scenarios
from ropecheck.reference import compose
from ropecheck.reference.requests import Request, State
from ropecheck.reference.timeline import timeline
from ropecheck.spec.families import family
from ropecheck.spec.history import History, OutOfDomain, image, prompt_table, text
from ropecheck.spec.modes import (
    decode,
    dllm_extend,
    draft_decode,
    draft_extend_v2,
    extend,
    idle,
    mixed,
    padding,
    ragged_verify,
    split_prefill,
    target_verify,
)


def place(state: State, request: Request) -> Place:
    """The request as the specification sees it, straight from its history."""
    rule = family(state.family)
    return Place(
        columns=prompt_table(rule, request.prompt),
        tabulated=len(prompt_table(rule, request.prompt[: request.tabulated_runs])),
        has_media=any(not run.is_text for run in request.prompt),
    )


def spec_cells(state: State, batch: Batch, label: str) -> tuple[Cell, ...]:
    """The specification's cells of one table."""
    places = [place(state, state.requests[req]) for req in batch.reqs]
    step = int(label.removeprefix("step ")) if label.startswith("step ") else 0
    windows = [
        extend.Window(place=p, prefix_len=a, extend_len=n)
        for p, a, n in zip(places, batch.prefix_lens, batch.extend_lens, strict=False)
    ]
    match batch.mode:
        case "extend":
            return extend.forward(windows)
        case "split_prefill":
            return split_prefill.forward(windows)
        case "mixed":
            tail = len(places) - batch.decoding
            return mixed.forward(windows[:tail], places[tail:], batch.seq_lens[tail:])
        case "decode":
            return decode.forward(places, batch.seq_lens)
        case "target_verify" if batch.verify_lens:
            return ragged_verify.forward(places, batch.seq_lens, batch.parents, batch.ragged_tokens)
        case "target_verify":
            return target_verify.forward(places, batch.seq_lens, batch.parents)
        case "draft_decode":
            return draft_decode.forward(places, batch.seq_lens, batch.topk, step)
        case "draft_extend_v2":
            return draft_extend_v2.forward(places, batch.seq_lens, batch.num_draft_tokens)
        case "dllm_extend":
            return dllm_extend.forward(batch.block_offsets, batch.block_size)
        case _:
            return idle.forward()


def assert_equal(state: State, run: Expected) -> None:
    """Positions, rows and the rules that govern them."""
    for label, tables in run.tables.items():
        cells = spec_cells(state, run.batch, "" if label == "padded" else label)
        if label == "padded":
            cells = padding.forward(cells, tables.positions.size, 3)
        assert tables.positions.tolist() == [cell.index for cell in cells]
        if tables.mrope is not None:
            assert tables.mrope.T.tolist() == [list(cell.column) for cell in cells]
        governed = [
            (span.request, span.index_rule, span.column_rule)
            for span in tables.spans
            for _ in range(span.start, span.stop)
        ]
        want = [(cell.request, cell.index_rule, cell.column_rule) for cell in cells]
        if label != "padded":
            assert governed == want


def check(scenario: Scenario) -> None:
    state = State(family=scenario.family)
    for op in scenario.ops:
        moved = apply(state, op)
        for run in moved.forwards:
            assert_equal(state, run)
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
    assert compose.appended(*parts).tolist() == timeline("qwen2_vl", (*before, *turn), 0).table.tolist()


IMAGE: History = (text(2), image(1, 4, 6))


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
        ((Submit(0, IMAGE), mixed((window(0),), ())), "needs a window and a decoding request"),
        ((Submit(0, IMAGE), extend((window(0),)), draft((0,), 2, buffer="graph")), "short of the live columns"),
        ((Submit(0, IMAGE), extend((window(0),)), verify((0,), ((),), buffer="dp")), "to its tier"),
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
        extend((window(0),), buffer="graph", buffer_tokens=9),
    ],
)
def test_a_buffer_that_the_forward_is_never_loaded_into_is_refused(op: Operation) -> None:
    with pytest.raises(OutOfDomain, match=r"ops\[0\].pad: .* is none of"):
        refuse_nonsense(Scenario(name="x", ops=(op,)))

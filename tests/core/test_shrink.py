"""Shrinking: fewer requests, operations, runs and tokens, and still the same failure."""

from __future__ import annotations

import pytest

from ropecheck.conformance.scenario.operations import Build, Scenario, Submit
from ropecheck.conformance.scenario.words import decode, draft, extend, mixed, window
from ropecheck.conformance.scenarios.chosen.script import PROMPTS, running, scenario, spec_round
from ropecheck.conformance.scenarios.random import random_scenarios, shrink, stateful_scenarios
from ropecheck.conformance.scenarios.random.shrink import candidates, without_request
from ropecheck.conformance.selftest.mutants import MUTANTS
from ropecheck.conformance.selftest.mutants.generic import planted
from tests.core.support import outcome


def big() -> Scenario:
    """More than anything needs."""
    return scenario(
        "big",
        "",
        running(PROMPTS["two images"], PROMPTS["text"], PROMPTS["long video"], PROMPTS["image"]),
        decode((0, 1, 2, 3)),
        spec_round((0, 2), 3, (2, 1), path="direct"),
        decode((3, 1)),
        decode((0, 2)),
    )


def test_a_decode_fault_shrinks_to_one_request_and_two_forwards() -> None:
    make = MUTANTS["decode delta missing"].make
    key = ("table.past_table", "decode", "delta missing")
    small, failure = shrink(big(), key, lambda candidate: outcome(candidate, make))
    assert failure is not None and failure.key == key
    assert [op.batch.mode for op in small.ops if isinstance(op, Build)] == ["extend", "decode"] and len(small.ops) == 3
    (submit,) = (op for op in small.ops if isinstance(op, Submit))
    assert len(submit.prompt) == 1


def test_a_neighbours_delta_needs_two_requests() -> None:
    make = MUTANTS["decode delta of the first request"].make
    key = ("table.text_only", "decode", "delta of another request")
    small, failure = shrink(big(), key, lambda candidate: outcome(candidate, make))
    assert failure is not None
    assert sum(isinstance(op, Submit) for op in small.ops) == 2 and len(small.ops) <= 5


def test_a_draft_graphs_stale_padding_shrinks_to_two_loads() -> None:
    make = planted()["any mode, draft_decode: the graph buffer's padding is stale"].mutant.make
    key = ("padding.harmless_fill", "draft_decode", "fill not zero")
    start = scenario(
        "graph",
        "",
        running(PROMPTS["image"], PROMPTS["text"], PROMPTS["video"]),
        draft((0, 1, 2), num_steps=4, topk=2, buffer="graph", buffer_rows=6),
        decode((0, 2), buffer="graph", buffer_rows=3),
        draft((1,), num_steps=4, topk=2, buffer="graph", buffer_rows=6),
    )
    small, failure = shrink(start, key, lambda candidate: outcome(candidate, make))
    assert failure is not None and failure.label == "padded"
    loads = [op.batch for op in small.ops if isinstance(op, Build) and op.buffer]
    assert [(len(batch.reqs), batch.number("num_steps")) for batch in loads] == [(2, 2), (1, 2)]
    assert len(small.ops) == 5


def test_nothing_shrinks_without_the_failure() -> None:
    same, failure = shrink(big(), ("table.index", "decode", "off by one"), outcome)
    assert same == big() and failure is None


def test_a_request_is_taken_out_of_every_operation() -> None:
    both = mixed((window(1),), (0,))
    assert without_request(both, 0) == extend((window(1),))
    assert without_request(both, 1) == decode((0,))
    assert without_request(Submit(0, PROMPTS["text"]), 0) is None
    assert all(candidate.id != big().id for candidate in candidates(big()))


@pytest.mark.parametrize("make", [random_scenarios, stateful_scenarios])
def test_a_seed_gives_the_same_scenarios(make: object) -> None:
    assert callable(make)
    one, two, other = ([scenario.id for scenario in make(seed, 12)] for seed in (1, 1, 2))
    assert one == two != other

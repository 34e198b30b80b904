"""A stream's failing forward as operations: what is said of it, and what cannot be."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ropecheck.adapters import events
from ropecheck.adapters.events import Arrived, Closed, Event, Forward, Opened, Output, PromptRun, Retracted
from ropecheck.conformance.judge.outcome import Failure, Outcome, Unrun
from ropecheck.conformance.judge.verdict import judge
from ropecheck.conformance.plan.planner import plan
from ropecheck.conformance.reference_engine import ReferenceEngine, answer
from ropecheck.conformance.scenario import operations as ops
from ropecheck.conformance.scenario import words
from ropecheck.conformance.selftest.mutants import MUTANTS
from ropecheck.conformance.selftest.stream import ARRIVE, DECODE, FIRST, PREFILL
from ropecheck.conformance.trace.check import check_lines
from ropecheck.conformance.trace.function_level import compared, said
from ropecheck.spec.history import image, text

OTHER = Arrived("b", (PromptRun("text", 2),), 4)
BESIDE = Forward(mode="extend", reqs=("b",), tokens=(2,), positions=(0, 1), rows=((0, 1),) * 3, answers=((60,),))
BESIDE = replace(BESIDE, seq_lens=(2,), prefix_lens=(0,))
WRONG = replace(DECODE, rows=((9,), (9,), (9,)))
"""The decode of a picture's request, whose column is 4."""
VERIFY = Forward(
    mode="target_verify",
    reqs=("a",),
    tokens=(3,),
    positions=(6, 7, 7),
    rows=((4, 5, 5),) * 3,
    answers=((51, 52),),
    parents=((0, 0),),
)
OPENED = Opened("s")
TURN = replace(ARRIVE, session="s")


def asked(*stream: Event) -> tuple[Failure, ops.Scenario | str]:
    lines = [events.line(one) for one in (events.TraceHeader(events.VERSION, "qwen2_vl"), *stream)]
    failure = check_lines(lines).failures[-1]
    return failure, said(b"".join(lines), failure, "x")


def operations(*stream: Event) -> tuple[ops.Operation, ...]:
    scenario = asked(*stream)[1]
    assert isinstance(scenario, ops.Scenario), scenario
    return scenario.ops


PROMPT = (text(1), image(1, 4, 4), text(1))
SUBMIT, PREFILLED = ops.Submit(0, PROMPT, 2), words.extend([words.window(0, 6)])


def test_other_requests_are_left_out() -> None:
    assert operations(OTHER, ARRIVE, BESIDE, PREFILL, FIRST, WRONG) == (SUBMIT, PREFILLED, words.decode([0]))


def test_a_scenario_that_reads_other_tokens_is_not_the_failure() -> None:
    lines = [
        events.line(one) for one in (events.TraceHeader(events.VERSION, "qwen2_vl"), ARRIVE, PREFILL, FIRST, WRONG)
    ]
    failure = check_lines(lines).failures[-1]
    assert failure.expected is not None and failure.expected.positions is not None
    for expected in (
        replace(failure.expected, positions=tuple(one + 1 for one in failure.expected.positions)),
        replace(failure.expected, rows=((8,),) * 3),
    ):
        told = said(b"".join(lines), replace(failure, expected=expected), "x")
        assert told == "the scheduler's own choices lead to other tokens there"


def test_a_verify_and_what_it_commits() -> None:
    later = replace(WRONG, positions=(8,), seq_lens=(9,))
    told = operations(ARRIVE, PREFILL, FIRST, VERIFY, later)
    verify = words.verify([0], [(0, 0)], topk=2)
    assert told == (SUBMIT, PREFILLED, verify, ops.Accept(0, 2), words.decode([0]))
    assert operations(ARRIVE, PREFILL, FIRST, replace(VERIFY, rows=((9, 9, 9),) * 3))[-1] == verify


def test_a_retraction_and_a_prefix_hit() -> None:
    again = replace(PREFILL, tokens=(3,), positions=(4, 5, 6), rows=((9, 9, 9),) * 3, seq_lens=(7,), prefix_lens=(4,))
    told = operations(ARRIVE, PREFILL, FIRST, Retracted("a"), again)
    assert told == (SUBMIT, PREFILLED, ops.Retract(0), words.extend([words.window(0, 3, 4)]))


def test_a_mixed_batch() -> None:
    rows = ((0, 1, 9),) * 3
    both = Forward("mixed", ("b", "a"), (2, 1), (0, 1, 6), rows, ((60,), (51,)), seq_lens=(2, 7), prefix_lens=(0, 6))
    told = operations(ARRIVE, PREFILL, FIRST, OTHER, both)
    assert told[-1] == words.mixed([words.window(1, 2)], [0])


def test_turns_of_its_session_are_kept() -> None:
    ended = Output("a", (50,), "length")
    turn = Arrived("c", (PromptRun("text", 1),), 2, "s", "a")
    wrong = Forward("extend", ("c",), (1,), (7,), ((9,),) * 3, ((70,),), seq_lens=(8,), prefix_lens=(7,))
    one = replace(TURN, max_new_tokens=1)
    told = operations(OPENED, one, OTHER, PREFILL, BESIDE, ended, turn, wrong)
    assert told[:2] == (ops.Open(0), ops.Turn(0, 0, PROMPT, max_new_tokens=1))
    assert told[3:] == (
        ops.Finish(0),
        ops.Turn(0, 1, (text(1),), parent=0, max_new_tokens=2),
        words.extend([words.window(1, 1, 7)]),
    )


@pytest.mark.parametrize(
    ("stream", "why"),
    [
        ((OPENED, TURN, PREFILL, FIRST, Closed("s"), WRONG), "no operation closes a session"),
        ((replace(ARRIVE, embeds=True), PREFILL, FIRST, WRONG), "no operation sends embeddings"),
        ((ARRIVE, events.Transfer("a", (50,)), WRONG), "another engine computed the prompt"),
        ((ARRIVE, PREFILL, FIRST, Output("a", (77,))), "schedule.reply speaks of no forward"),
        ((ARRIVE, PREFILL, FIRST, replace(WRONG, mode="draft_decode", draft=True)), "the forward is the draft model's"),
        ((ARRIVE, replace(PREFILL, prefix_lens=(2,), rows=((9,) * 6,) * 3)), "window of 6 tokens, 4 left"),
    ],
)
def test_what_cannot_be_said(stream: tuple[Event, ...], why: str) -> None:
    told = asked(*stream)[1]
    assert isinstance(told, str)
    assert why in told


def test_alike_otherwise_or_right() -> None:
    failure, scenario = asked(ARRIVE, PREFILL, FIRST, replace(WRONG, rows=((6,),) * 3))
    assert isinstance(scenario, ops.Scenario)
    planned = plan(scenario, "cpu")
    right = judge(planned, answer(planned.job, ReferenceEngine()))
    assert "the same forwards are right there" in compared(failure, scenario, right)
    lost = judge(planned, answer(planned.job, MUTANTS["decode delta missing"].make()))
    assert lost.failures
    assert compared(failure, scenario, lost) == ""
    other = replace(failure, signature="off by one", difference=None)
    assert "it fails otherwise there (table.past_table: delta missing)" in compared(other, scenario, lost)
    broken = Outcome(scenario="x", name="x", unrun=(Unrun(stage="run", message="a crash"),))
    assert compared(failure, scenario, broken) == "it could not run there: a crash"

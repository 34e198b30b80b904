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


def test_what_comes_behind_the_failure_is_not_said() -> None:
    lines = [
        events.line(one)
        for one in (events.TraceHeader(events.VERSION, "qwen2_vl"), ARRIVE, PREFILL, FIRST, WRONG, OTHER, BESIDE)
    ]
    (failure,) = check_lines(lines).failures
    scenario = said(b"".join(lines), failure, "x")
    assert isinstance(scenario, ops.Scenario) and scenario.ops == (SUBMIT, PREFILLED, words.decode([0]))
    assert (scenario.name, scenario.family) == ("x", "qwen2_vl")


TEXT = (PromptRun("text", 2),)


def words_of(req: str, start: int, count: int, mode: str = "extend", answer: int = 70) -> Forward:
    at = tuple(range(start, start + count))
    lens = {"seq_lens": (start + count,), "prefix_lens": (start,)}
    return replace(Forward(mode, (req,), (count,), at, (at,) * 3, ((answer,),)), **lens)


def wrong(event: Forward) -> Forward:
    """Its last column is far away."""
    assert event.rows is not None
    return replace(event, rows=tuple((*row[:-1], 99) for row in event.rows))


def turn_of(name: str, **how: object) -> Arrived:
    return replace(Arrived(name, TEXT, 2, "s"), **how)


@pytest.mark.parametrize(
    ("how", "said_as"),
    [
        ({"offset": 1}, {"offset": 1}),
        ({"replace": True}, {"replace": True}),
        ({"drop_previous_output": True}, {"drop_previous_output": True}),
        ({"max_new_tokens": 7}, {"max_new_tokens": 7}),
        ({"parent": ""}, {"parent": None}),
    ],
)
def test_how_a_turn_is_said(how: dict[str, object], said_as: dict[str, object]) -> None:
    first = (OPENED, turn_of("a"), words_of("a", 0, 2), Output("a", (70,), "length"))
    turn = turn_of("b", **{"parent": "a", **how})
    kept = {"offset": 1, "drop_previous_output": 2, "parent": 0}.get(next(iter(how)), 3)
    told = operations(*first, turn, wrong(words_of("b", 0, kept + 2)))
    right = ops.Turn(0, 1, (text(2),), parent=0, max_new_tokens=2)
    assert told[-2] == replace(right, **said_as)
    assert told[-1] == words.extend([words.window(1, kept + 2)])


def test_a_streaming_sessions_turns_have_no_parent() -> None:
    first = (Opened("s", True), turn_of("a"), words_of("a", 0, 2), Output("a", (70,), "length"))
    told = operations(*first, turn_of("b"), wrong(words_of("b", 0, 5)))
    assert told[0] == ops.Open(0, True)
    assert told[-2] == ops.Turn(0, 1, (text(2),), max_new_tokens=2)


@pytest.mark.parametrize(
    ("how", "width", "why"),
    [
        ({"offset": 0}, 2, "no operation has an offset of 0"),
        ({"offset": -1}, 4, "no operation has an offset of -1"),
        ({"beams": 2}, 5, "no operation searches beams"),
    ],
)
def test_turns_that_no_operation_is(how: dict[str, object], width: int, why: str) -> None:
    first = (OPENED, turn_of("a"), words_of("a", 0, 2), Output("a", (70,), "length"))
    last = (turn_of("b", parent="a", **how), wrong(words_of("b", 0, width)), Output("b", (70,), "length"))
    assert asked(*first, *last)[1] == why


def test_ends_are_finishes_and_aborts() -> None:
    for end, op in (("length", ops.Finish(0)), ("abort", ops.Abort(0))):
        first = (OPENED, turn_of("a"), words_of("a", 0, 2), Output("a", (70,), end))
        told = operations(*first, turn_of("b"), wrong(words_of("b", 0, 2)))
        assert told[3] == op


def test_chunks_are_windows_without_a_hit() -> None:
    long = Arrived("a", (PromptRun("text", 9),), 2)
    told = operations(long, words_of("a", 0, 4), wrong(words_of("a", 4, 3)))
    assert told[1:] == (words.extend([words.window(0, 4)]), words.extend([words.window(0, 3)]))


def test_verifies_of_several_requests() -> None:
    start = (Arrived("a", TEXT, 9), Arrived("b", TEXT, 9), words_of("a", 0, 2), words_of("b", 0, 2))
    rows = ((2, 3, 3, 3, 2, 3, 4, 5),) * 3
    both = Forward("target_verify", ("a", "b"), (4, 4), rows[0], rows, ((51, 52), (61,)))
    trees = replace(both, parents=((0, 0, 0), (0, 1, 2)))
    lens = {"seq_lens": (5, 4)}
    later = replace(Forward("decode", ("a", "b"), (1, 1), (4, 3), ((99, 3),) * 3, ((71,), (72,))), **lens)
    told = operations(*start, trees, later)
    assert told[4] == words.verify([0, 1], [(0, 0, 0), (0, 1, 2)], topk=3)
    assert told[5:7] == (ops.Accept(0, 2), ops.Accept(1, 1))
    chains = replace(both, positions=(2, 3, 4, 5) * 2, rows=((2, 3, 4, 5) * 2,) * 3, answers=())
    assert operations(*start, wrong(chains))[-1] == words.verify([0, 1], [(0, 1, 2)] * 2, topk=1)


def test_the_same_wrong_number_is_alike_and_the_first_reason_is_told() -> None:
    failure, scenario = asked(ARRIVE, PREFILL, FIRST, replace(WRONG, rows=((6,),) * 3))
    assert isinstance(scenario, ops.Scenario)
    planned = plan(scenario, "cpu")
    lost = judge(planned, answer(planned.job, MUTANTS["decode delta missing"].make()))
    assert failure.difference is not None
    assert compared(replace(failure, signature="off by one"), scenario, lost) == ""
    assert compared(replace(failure, difference=None), scenario, lost) == ""
    assert compared(replace(failure, mode="extend"), scenario, lost).startswith("it fails otherwise there")
    other = replace(failure.difference, observed=7)
    assert compared(replace(failure, signature="x", difference=other), scenario, lost).startswith("it fails otherwise")
    two = (Unrun("run", "first"), Unrun("run", "second"))
    assert compared(failure, scenario, Outcome("x", "x", unrun=two)) == "it could not run there: first"
    absent = Outcome("x", "x", not_offered=(("decode", "none"), ("extend", "more")))
    assert compared(failure, scenario, absent) == "it could not run there: none"


def test_forwards_before_the_failure_may_have_failed_too() -> None:
    later = replace(WRONG, positions=(7,), seq_lens=(8,), answers=((52,),))
    decode = words.decode([0])
    assert operations(ARRIVE, PREFILL, FIRST, WRONG, later) == (SUBMIT, PREFILLED, decode, decode)

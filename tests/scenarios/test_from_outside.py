"""Small scripts with right values that came from outside: what every forward of them must read."""

from __future__ import annotations

import numpy as np
import pytest

from ropecheck.adapters import protocol
from ropecheck.conformance.judge.verdict import judge
from ropecheck.conformance.known.model import READER, KnownEngine
from ropecheck.conformance.plan.planner import plan
from ropecheck.conformance.reference_engine import ReferenceEngine, answer
from ropecheck.conformance.scenario.lifecycle import apply
from ropecheck.conformance.scenario.operations import (
    Accept,
    Finish,
    Open,
    Operation,
    Retract,
    Rotate,
    Scenario,
    Submit,
    Turn,
)
from ropecheck.conformance.scenario.words import decode, draft, draft_extend, extend, mixed, verify, window
from ropecheck.reference.requests import BOS, State
from ropecheck.spec.history import OutOfDomain, image, text, video


def read(family: str, *ops: Operation) -> list[np.ndarray]:
    """The three rows of every forward's first table."""
    state = State(family=family)
    found = []
    for op in ops:
        step = apply(state, op)
        state = step.state
        if step.forward is not None and step.forward.tables[""].rows is not None:
            found.append(step.forward.tables[""].rows)
    return found


SLOW = (text(1), video(2, 2, 2, 3.0), text(1))


@pytest.mark.parametrize(
    ("op", "right"),
    [
        (decode((0,)), [9]),
        (verify((0,), ((0, 1),)), [9, 10, 11]),
        (draft_extend((0,), 3), [9, 10, 11]),
        (draft((0,), 2), [9]),
    ],
)
def test_a_positive_delta_in_every_mode(op: Operation, right: list[int]) -> None:
    """delta +5 of four tokens: what comes next stands at 9. A chain's root is the first token behind what is held."""
    *_, last = read("qwen2_5_vl", Submit(0, SLOW), extend((window(0),)), op)
    assert last.tolist() == [right] * 3


def test_a_positive_delta_with_five_tokens_held_and_beside_text() -> None:
    start: tuple[Operation, ...] = (Submit(0, SLOW), extend((window(0),)), decode((0,)))
    for op in (verify((0,), ((0, 1),)), draft_extend((0,), 3)):
        assert read("qwen2_5_vl", *start, op)[-1].tolist() == [[10, 11, 12]] * 3
    assert read("qwen2_5_vl", *start, draft((0,), 2))[-1].tolist() == [[10]] * 3
    beside = (*start, Submit(1, (text(3),)), mixed((window(1),), (0,)))
    assert read("qwen2_5_vl", *beside)[-1].tolist() == [[0, 1, 2, 10]] * 3


def test_a_session_turn_that_asks_for_no_reply() -> None:
    first, second = (text(2), image(1, 4, 6), text(2)), (text(2), image(1, 8, 4), text(2))
    ops = (
        Open(0),
        Turn(0, 0, first, max_new_tokens=0),
        extend((window(0),)),
        Finish(0),
        Turn(0, 1, second, parent=0),
        extend((window(1, hit=10),)),
        decode((1,)),
    )
    before, after, decoded = read("qwen3_vl", *ops)
    assert before[0].tolist() == [0, 1, 2, 2, 2, 2, 2, 2, 5, 6]
    assert after.tolist() == [
        [7, 8, *[9] * 8, 13, 14],
        [7, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 14],
        [7, 8, *[9, 10] * 4, 13, 14],
    ]
    assert decoded.tolist() == [[15]] * 3


def test_a_long_recording_ends_behind_what_its_reader_has_prepared() -> None:
    """389 tokens, admitted by their number, and 128,000 positions."""
    op = Submit(0, (text(2), video(384, 2, 2, 187.5), text(3)))
    line = apply(State(family="qwen2_5_vl"), op).state.requests[0].line
    assert int(line.table.max()) == 143_630 and line.delta == 143_242
    planned = plan(Scenario("", (op, Rotate(0, "served")), family="qwen2_5_vl"))
    raised = answer(planned.job, KnownEngine(frozenset({READER})))
    (failure,) = judge(planned, raised).failures
    assert (failure.rule, failure.signature) == ("rotary.readers_bound", "looks past its end")
    assert failure.message.startswith("served, native: position 143630 of 128000 prepared")
    grown = answer(planned.job, ReferenceEngine())
    assert not judge(planned, grown).failures


def test_a_start_of_sequence_is_no_part_of_a_history_that_goes_on() -> None:
    """Two tokens of an image, then a start of sequence and an image of one: (0, 0, 0), (0, 0, 1), (2, 2, 2)."""
    start = (Open(0), Turn(0, 0, (image(1, 2, 4),), max_new_tokens=0), extend((window(0),)), Finish(0))
    second = Turn(0, 1, (image(1, 2, 2),), parent=0, bos=True)
    assert read("qwen2_vl", *start, second, extend((window(1),)))[-1].T.tolist() == [[0, 0, 0], [0, 0, 1], [2, 2, 2]]
    sent = next(
        step
        for step in plan(Scenario("", (*start, second, extend((window(1),))))).job.steps
        if isinstance(step, protocol.TurnStep) and step.bos
    )
    assert (
        len(sent.ids) == 2 and sent.ids[0] == BOS and sent.media is not None and sent.media.items[0].spans == ((1, 2),)
    )
    assert sent.media.table.shape == (3, 2)  # the processor has seen the start of sequence
    with pytest.raises(OutOfDomain, match="continues nothing"):
        read("qwen2_vl", Open(0), Turn(0, 0, (text(1),), bos=True))


WRITTEN = (Submit(0, (text(1), image(1, 1, 2), text(1)), ahead=(image(1, 2, 1), text(1))), extend((window(0),)))


def test_a_written_image_is_read_from_its_table() -> None:
    """1 text, a line of two, 1 text: 0, 1, 3. The image stands at 4, two rows of one, and its end marker at 6."""
    columns = [step[:, 0].tolist() for step in read("glm_image", *WRITTEN, *[decode((0,))] * 3)[1:]]
    assert columns == [[4, 4, 4], [4, 5, 4], [6, 6, 6]]


@pytest.mark.parametrize(
    ("family", "ops", "reason"),
    [
        ("glm_image", (*WRITTEN, *[decode((0,))] * 4), "writes more than it said"),
        ("glm_image", (*WRITTEN, Retract(0)), "writes an image"),
        ("glm_image", (*WRITTEN, Accept(0, 9)), "writes more than it said"),
        ("qwen2_vl", (Submit(0, (text(1),), ahead=(image(1, 2, 2),)),), "writes no images"),
    ],
)
def test_what_no_request_writes(family: str, ops: tuple[Operation, ...], reason: str) -> None:
    with pytest.raises(OutOfDomain, match=reason):
        read(family, *ops)

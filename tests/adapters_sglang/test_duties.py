"""What the adapter owes besides tables: changed inputs, cached deltas, aborts, an exception's stage, its own buffers,
and every parameter of a turn. For each there is a fault, or a fact, of the real engine that must be reported."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from ropecheck.adapters import protocol as p
from ropecheck.adapters.batch import Batch, BatchPart
from ropecheck.conformance.judge.verdict import judge
from ropecheck.conformance.plan.planner import plan
from ropecheck.conformance.scenarios.chosen import chosen
from tests.adapters_sglang.support import PICTURE, WORDS, Worker, forward, prompt, submit, windows

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("planted")]

START = (submit(0, PICTURE), submit(1, WORDS))
DECODE = forward("decode", (0, 1), seq_len=(10, 6))
VERIFY = forward("target_verify", (0, 1), seq_len=(9, 5), num_draft_tokens=3, parents=((0, 1), (0, 1)), path="caller")


def planted(planted_worker: Worker, fault: str, *steps: p.Step) -> p.Result:
    """The last result of a job that runs with the fault."""
    return planted_worker.ask(*START, *steps, job=f"plant:{fault}")[-1]


@pytest.mark.parametrize("step", [DECODE, VERIFY], ids=["by hand", "by the caller"])
@pytest.mark.parametrize(
    ("fault", "name"),
    [
        ("seq_lens written", "seq_lens"),
        ("seq_lens_cpu written", "seq_lens_cpu"),
        ("inputs replaced", "multimodal_inputs"),
        ("media written", "multimodal_inputs"),
        ("media replaced", "multimodal_inputs"),
        ("reqs replaced", "reqs"),
    ],
)
def test_a_changed_input_is_reported(planted_worker: Worker, fault: str, name: str, step: p.BuildForward) -> None:
    result = planted(planted_worker, fault, step)
    assert isinstance(result, p.TablesAnswer)
    assert result.changed == (name,)


@pytest.mark.parametrize("step", [DECODE, VERIFY], ids=["by hand", "by the caller"])
def test_an_engine_that_changes_nothing_is_not_accused(planted_worker: Worker, step: p.BuildForward) -> None:
    (result,) = planted_worker.ask(*START, step)
    assert isinstance(result, p.TablesAnswer) and result.changed == ()


@pytest.mark.parametrize(
    ("fault", "stage"),
    [
        ("lengths gone", "engine"),
        ("a stand-in called wrongly", "adapter"),
        ("a stand-in asked for more", "adapter"),
    ],
)
def test_whose_exception_it_was(planted_worker: Worker, fault: str, stage: str) -> None:
    result = planted(planted_worker, fault, DECODE)
    assert isinstance(result, p.Raised)
    assert result.stage == stage


def test_graph_buffers_are_the_jobs_own(planted_worker: Worker) -> None:
    """The engine's buffers belong to the process: what one scenario left there would reach the next."""
    step = forward("decode", (0, 1), seq_len=(10, 6), padding=p.Padding("graph", 4, 4))
    assert isinstance(planted(planted_worker, "a shared pool", step), p.TablesAnswer)


def test_a_value_that_the_host_reads_from_the_device_is_counted(planted_worker: Worker) -> None:
    """Counting goes on a device without values: what reads one is no lack of the release."""
    result = planted(planted_worker, "the device read", p.Cost(DECODE))
    assert isinstance(result, p.Counted) and result.to_host == 1
    (plain,) = planted_worker.ask(*START, p.Cost(DECODE))
    assert isinstance(plain, p.Counted) and plain.to_host == 0


def test_a_cached_delta_is_reported(planted_worker: Worker) -> None:
    """A request with media that decodes beside a prefill: the engine keeps what it adds to each next length."""
    prefill = BatchPart((1,), {"prefix_len": (0,), "extend_len": (5,)}, mode="extend")
    decode = BatchPart((0,), {"seq_len": (10,)}, mode="decode")
    before, _, after = planted_worker.ask(
        *START,
        windows((0,), (0,), (9,)),
        p.Generate(0, (7,)),
        p.Observe((0, 1)),
        p.BuildForward(Batch("mixed", (prefill, decode))),
        p.Observe((0, 1)),
    )[1:]
    assert isinstance(before, p.States) and isinstance(after, p.States)
    assert [state.delta_cache for state in before.states] == [None, None]
    media, words = after.states
    assert media.delta_cache is not None and words.delta_cache is None
    assert set(np.frombuffer(media.delta_cache.data, media.delta_cache.dtype).tolist()) == {-4}


def test_aborts_are_reported(planted_worker: Worker) -> None:
    """By the user, of one that runs (one that waits leaves the queue unmarked); by the engine, which refuses to replace
    a turn of a streaming session."""
    ids, media = prompt(PICTURE)
    steps = (*START, p.Abort(0), p.Observe((0, 1)), windows((1,), (0,), (2,)), p.Abort(1), p.Observe((0, 1)))
    seen = [found.states for found in planted_worker.ask(*steps) if isinstance(found, p.States)]
    assert [[state.aborted for state in states] for states in seen] == [[False, False], [False, True]]
    *_, refused = planted_worker.ask(
        p.Open(0, True),
        p.TurnStep(0, 0, ids, media),
        windows((0,), (0,), (9,)),
        p.Generate(0, (91, 92)),
        p.Finish(0),
        p.TurnStep(0, 1, (5, 6), replace=True),
        p.Observe((1,)),
    )
    assert isinstance(refused, p.States)
    assert refused.states[0].aborted and refused.states[0].note


@pytest.mark.parametrize("drop", [False, True])
def test_a_turn_that_drops_the_previous_output(planted_worker: Worker, drop: bool) -> None:
    *_, states = planted_worker.ask(
        p.Open(0),
        p.TurnStep(0, 0, (1, 2, 3)),
        windows((0,), (0,), (3,)),
        p.Generate(0, (91, 92)),
        p.Finish(0),
        p.TurnStep(0, 1, (7, 8), parent=0, drop_previous_output=drop),
        p.Observe((1,)),
    )
    assert isinstance(states, p.States)
    assert states.states[0].unpadded_ids == ((1, 2, 3, 7, 8) if drop else (1, 2, 3, 91, 92, 7, 8))


def test_what_is_lost_is_told_once(planted_worker: Worker) -> None:
    """A session that cannot be opened is one failure where sessions are known; what needs it is not offered."""
    planned = plan(next(one for one in chosen() if one.name == "streaming, text then image"))
    job = msgspec.structs.replace(planned.job, id="plant:no streaming sessions")
    outcome = judge(planned, planted_worker.run(job))
    assert [failure.signature for failure in outcome.failures] == ["raises Lost"]
    assert {reason for _, reason in outcome.not_offered} == {"its session could not be opened"} and not outcome.unrun


def test_nothing_that_this_release_has_is_lost(planted_worker: Worker) -> None:
    assert planted_worker.hello.lost == ()

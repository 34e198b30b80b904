"""The worker over its pipe, against values derived from the specification. One worker serves all tests here."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from ropecheck.adapters import protocol as p
from ropecheck.spec.history import History, text
from tests.adapters_sglang.support import PICTURE, WORDS, Worker, columns, forward, prompt, submit, tables, windows

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("planted")]


@pytest.fixture
def worker(planted_worker: Worker) -> Worker:
    """With nothing planted."""
    return planted_worker


def test_hello_names_every_mode_of_the_engine(worker: Worker) -> None:
    hello = worker.hello
    assert hello.protocol == p.PROTOCOL and hello.target == "sglang"
    assert set(hello.modes) == set(hello.covered) | set(hello.uncovered)
    assert hello.faked


def test_chunks_and_decode(worker: Worker) -> None:
    """An image cut in two prefill chunks, a text request beside it, then a decode of both."""
    first, second, decode = worker.ask(
        submit(0, PICTURE),
        submit(1, WORDS),
        windows((0, 1), (0, 0), (4, 5)),
        windows((0,), (4,), (5,), repeat=True),
        p.Generate(0, (7,)),
        p.Generate(1, (7,)),
        forward("decode", (0, 1), seq_len=(10, 6), padding=p.Padding("graph", 4, 4)),
    )
    assert tables(first)[""][1] == columns(PICTURE, *range(4)) + columns(WORDS, *range(5))
    rest = (list(range(4, 9)), columns(PICTURE, *range(4, 9)))
    assert tables(second) == {"": rest, "again": rest}
    live = columns(PICTURE, 9) + columns(WORDS, 5)
    assert tables(decode)[""] == ([9, 5], live)
    assert tables(decode)["padded"] == ([9, 5, 0, 0], [*live, (0, 0, 0), (0, 0, 0)])


@pytest.mark.parametrize("path", ["caller", "fused"])
def test_a_speculative_round(worker: Worker, path: str) -> None:
    """Draft, verify and draft extend through the engine's own preparing functions."""
    both = (0, 1)
    draft, verify, extend = worker.ask(
        submit(0, PICTURE),
        submit(1, WORDS),
        forward("draft_decode", both, seq_len=(9, 5), num_steps=3, topk=1, path=path),
        forward("target_verify", both, seq_len=(9, 5), num_draft_tokens=3, parents=((0, 1), (0, 1)), path=path),
        forward("draft_extend_v2", both, seq_len=(9, 5), num_draft_tokens=3, host_lengths=path != "fused", path=path),
    )
    assert tables(draft) == {
        "": ([9, 5], columns(PICTURE, 9) + columns(WORDS, 5)),
        "step 1": ([10, 6], columns(PICTURE, 10) + columns(WORDS, 6)),
    }
    three = ([9, 10, 11, 5, 6, 7], columns(PICTURE, 9, 10, 11) + columns(WORDS, 5, 6, 7))
    assert tables(verify)[""] == three
    assert tables(extend)[""] == three
    assert isinstance(verify, p.TablesAnswer) and isinstance(extend, p.TablesAnswer)
    if path == "fused":
        assert any(name.endswith("build_chain_tree") for name in verify.ran)
        assert any(name.endswith("prepare_draft_extend_layout") for name in extend.ran)


def test_a_tree_and_its_direct_twin(worker: Worker) -> None:
    parents = (0, 0, 1)
    built, direct = worker.ask(
        submit(0, PICTURE),
        forward("target_verify", (0,), seq_len=(9,), topk=2, num_draft_tokens=4, parents=(parents,), path="caller"),
        forward(
            "target_verify",
            (0,),
            seq_len=(9,),
            topk=2,
            num_draft_tokens=4,
            parents=(parents,),
            positions=(9, 10, 10, 11),
        ),
    )
    assert tables(built) == tables(direct) == {"": ([9, 10, 10, 11], columns(PICTURE, 9, 10, 10, 11))}


@pytest.mark.parametrize("streaming", [False, True])
def test_an_image_after_a_reply(worker: Worker, streaming: bool) -> None:
    """The third seed's case: the table covers the reply, and the saved parent stays as it was."""
    ids, media = prompt(PICTURE)
    whole: History = (*PICTURE, text(2), *PICTURE)
    before, after, window, decode = worker.ask(
        p.Open(0, streaming),
        p.TurnStep(0, 0, ids, media),
        windows((0,), (0,), (9,)),
        p.Generate(0, (91, 92)),
        p.Finish(0),
        p.Observe((0,)),
        p.TurnStep(0, 1, ids, media, parent=None if streaming else 0),
        p.Observe((0, 1)),
        windows((1,), (0,), (20,)),
        p.Generate(1, (93,)),
        forward("decode", (1,), seq_len=(21,)),
    )[1:]
    assert isinstance(before, p.States) and isinstance(after, p.States)
    saved, parent, child = before.states[0], *after.states
    assert (parent.table, parent.delta, parent.offsets) == (saved.table, saved.delta, saved.offsets)
    assert child.unpadded_ids == (*ids, 91, 92, *ids)
    assert child.offsets == ((2, 8), (13, 19))
    assert tables(window)[""][1] == columns(whole, *range(20))
    assert tables(decode)[""][1] == columns(whole, 20)


def test_retraction_and_a_prefix_hit(worker: Worker) -> None:
    states, window = worker.ask(
        submit(0, PICTURE),
        p.Generate(0, (7, 8)),
        p.Retract(0),
        p.Schedule(0, hit=4),
        p.Observe((0,)),
        windows((0,), (4,), (7,)),
    )
    assert isinstance(states, p.States) and states.states[0].prefix_len == 4
    assert tables(window)[""] == (list(range(4, 11)), columns(PICTURE, *range(4, 11)))


def test_cost_of_a_verify(worker: Worker) -> None:
    """No copy for text; one with media, and the line that makes it."""
    chain = (0, 1)
    verify = forward("target_verify", (1,), seq_len=(5,), parents=(chain,), num_draft_tokens=3)
    both = forward("target_verify", (0, 1), seq_len=(9, 5), parents=(chain, chain), num_draft_tokens=3)
    plain, media = worker.ask(
        submit(0, PICTURE),
        submit(1, WORDS),
        p.Cost(verify),
        p.Cost(both),
    )
    assert plain == p.Counted(0, ())
    assert isinstance(media, p.Counted) and media.copies == 1
    assert media.lines[0].startswith("sglang/srt/model_executor/forward_batch_info.py:")


def test_a_failed_step_ends_neither_the_job_nor_the_worker(worker: Worker) -> None:
    """An adapter's failure and an engine's failure are told apart; the next step runs."""
    ours, theirs, fine = worker.ask(
        submit(0, WORDS),
        submit(1, PICTURE),
        forward("decode", (7,), seq_len=(1,)),
        forward("ragged_verify", (0, 1), seq_len=(5, 9), parents=((), (0,))),  # three nodes cannot be shared by two
        forward("decode", (0,), seq_len=(6,)),
    )
    assert isinstance(ours, p.Raised) and ours.stage == "adapter"
    assert isinstance(theirs, p.Raised) and theirs.stage == "engine"
    assert theirs.where.startswith("sglang/srt/model_executor/forward_batch_info.py:")
    assert tables(fine)[""][0] == [5]


def test_the_rotary_embedding_and_a_view(worker: Worker) -> None:
    """Pair 0 by t, pair 1 by h, pair 2 by w; the rest of the head stays; a view of a wider buffer gives the same."""
    table = np.array([[1, 2], [3, 4], [5, 6]], dtype=np.int64)
    heads = np.array([[1, 1, 1, 0, 0, 0, 7, 8]] * 2, dtype=np.float32)
    packed = p.Tensor("float32", heads.shape, heads.tobytes())
    step = p.Rotary(
        table=p.Tensor("int64", table.shape, table.tobytes()),
        query=packed,
        key=packed,
        head_size=8,
        rotary_dim=6,
        base=100.0,
        sections=(1, 1, 1),
    )
    copy, view, kernel = worker.ask(
        step, msgspec.structs.replace(step, buffer=9), msgspec.structs.replace(step, method="device")
    )
    assert isinstance(copy, p.Rotated) and copy == view
    angles = table.T * 100.0 ** (-np.arange(3) / 3)
    turned = np.concatenate([np.cos(angles), np.sin(angles), heads[:, 6:]], axis=1)
    assert np.allclose(np.frombuffer(copy.query.data, np.float32).reshape(2, 8), turned, atol=1e-5)
    assert kernel == p.NotOfferedAnswer("the GPU's forward needs a GPU")

"""The load step of the engine's CUDA-graph runners, through a worker."""

from __future__ import annotations

import pytest

from ropecheck.adapters import protocol as p
from tests.adapters_sglang.support import PICTURE, WORDS, Worker, columns, forward, submit, tables

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("planted")]

ZERO = (0, 0, 0)


@pytest.fixture
def worker(planted_worker: Worker) -> Worker:
    """With nothing planted."""
    return planted_worker


def both(worker: Worker, *forwards: p.BuildForward) -> list[p.Result]:
    """A job's forwards over request 0 with an image (9 tokens) and request 1 of text (5)."""
    return worker.ask(submit(0, PICTURE), submit(1, WORDS), *forwards)


def draft(*reqs: int, batch: int = 3, topk: int = 1, kind: str = "graph") -> p.BuildForward:
    return forward(
        "draft_decode",
        reqs,
        seq_len=tuple((9, 5)[req] for req in reqs),
        num_steps=3,
        topk=topk,
        path="caller",
        padding=p.Padding(kind, batch, batch * topk),
    )


def draft_extend(*reqs: int, batch: int = 3, kind: str = "graph") -> p.BuildForward:
    lengths = tuple((9, 5)[req] for req in reqs)
    padding = p.Padding(kind, batch, batch * 2)
    return forward("draft_extend_v2", reqs, seq_len=lengths, num_draft_tokens=2, path="caller", padding=padding)


def test_draft_graph_small_after_large(worker: Worker) -> None:
    """The loop's own later steps are what they are without a graph."""
    large, small = both(worker, draft(0, 1), draft(1))
    assert tables(large)["padded"] == ([9, 5, 0], [*columns(PICTURE, 9), *columns(WORDS, 5), ZERO])
    assert tables(small)["padded"] == ([5, 0, 0], [*columns(WORDS, 5), ZERO, ZERO])
    assert tables(large)["step 1"] == ([10, 6], columns(PICTURE, 10) + columns(WORDS, 6))
    assert isinstance(large, p.TablesAnswer)
    assert any(name.endswith("EAGLEDraftCudaGraphRunner.execute") for name in large.ran)


def test_draft_graph_of_two_branches_exactly_full(worker: Worker) -> None:
    (full,) = both(worker, draft(0, 1, batch=2, topk=2))
    assert tables(full)["padded"] == tables(full)[""]
    assert tables(full)[""][0] == [9, 9, 5, 5]


def test_draft_extend_graph_text_after_media(worker: Worker) -> None:
    media, words = both(worker, draft_extend(0), draft_extend(1))
    assert tables(media)["padded"] == ([9, 10, 0, 0, 0, 0], [*columns(PICTURE, 9, 10), *[ZERO] * 4])
    assert tables(words)["padded"] == ([5, 6, 0, 0, 0, 0], [*columns(WORDS, 5, 6), *[ZERO] * 4])
    assert isinstance(media, p.TablesAnswer)
    assert any(name.endswith("EAGLEDraftExtendCudaGraphRunner.execute") for name in media.ran)


def test_decode_and_verify_go_through_the_decode_runner(worker: Worker) -> None:
    decode, verify = both(
        worker,
        forward("decode", (0, 1), seq_len=(9, 5), padding=p.Padding("graph", 3, 3)),
        forward(
            "target_verify",
            (1,),
            seq_len=(5,),
            num_draft_tokens=2,
            parents=((0,),),
            path="caller",
            padding=p.Padding("graph", 2, 4),
        ),
    )
    assert tables(decode)["padded"] == ([8, 4, 0], [*columns(PICTURE, 8), *columns(WORDS, 4), ZERO])
    assert tables(verify)["padded"] == ([5, 6, 0, 0], [*columns(WORDS, 5, 6), ZERO, ZERO])
    for result in (decode, verify):
        assert isinstance(result, p.TablesAnswer)
        assert any(name.endswith("DecodeCudaGraphRunner.load_batch") for name in result.ran)


def test_buffers_last_a_job_and_no_longer(worker: Worker) -> None:
    """The frozen-KV runner leaves an older batch's columns in the padding: only of the same job."""
    _large, stale = both(worker, draft(1, 0, kind="frozen_kv"), draft(1, kind="frozen_kv"))
    assert tables(stale)["padded"] == ([5, 0, 0], [*columns(WORDS, 5), *columns(PICTURE, 9), ZERO])
    (fresh,) = both(worker, draft(1, kind="frozen_kv"))
    assert tables(fresh)["padded"] == ([5, 0, 0], [*columns(WORDS, 5), ZERO, ZERO])


def test_two_widths_do_not_share_buffers(worker: Worker) -> None:
    _wide, narrow = both(worker, draft(0, 1, topk=2, kind="frozen_kv"), draft(1, kind="frozen_kv"))
    assert tables(narrow)["padded"] == ([5, 0, 0], [*columns(WORDS, 5), ZERO, ZERO])


def test_multi_layer_buffers_hold_the_index_and_no_rows(worker: Worker) -> None:
    (result,) = both(worker, draft_extend(0, batch=2, kind="multi_layer"))
    assert tables(result)["padded"] == ([9, 10, 0, 0], [ZERO] * 4)


def test_a_kind_that_the_mode_has_not_is_the_suites_fault(worker: Worker) -> None:
    (refused,) = both(worker, draft(0, kind="multi_layer"))
    assert isinstance(refused, p.Raised) and refused.stage == "adapter"

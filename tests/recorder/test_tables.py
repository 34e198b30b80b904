"""What is read of one forward, from batches that have the engine's names: whose tokens, how many, of which mode, and
that what the engine writes later is not what was read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from ropecheck.adapters.sglang.recorder import tables  # noqa: E402 - it imports torch
from tests.recorder.support import Event, OnGpu, Torch  # noqa: E402

NO_BEAMS = SimpleNamespace()


def batch(mode: str, **fields: Any) -> Any:
    """A ForwardBatch of two requests."""
    extends = mode in ("EXTEND", "MIXED", "DRAFT_EXTEND_V2")
    kind = SimpleNamespace(name=mode, is_extend=lambda: extends)
    plain: dict[str, Any] = {
        "rids": ["a", "b"],
        "forward_mode": kind,
        "seq_lens_cpu": torch.tensor([5, 9]),
        "extend_seq_lens_cpu": [2, 3],
        "extend_prefix_lens_cpu": [3, 6],
        "spec_info": None,
    }
    return SimpleNamespace(**plain | fields)


def columns(count: int) -> tuple[Any, Any]:
    positions = torch.arange(count)
    return positions, positions.expand(3, count).clone()


def test_a_window_is_as_long_as_the_engine_says() -> None:
    read = tables.given("extend", batch("EXTEND"), *columns(5), running=NO_BEAMS).event()
    assert (read.mode, read.reqs, read.tokens) == ("extend", ("a", "b"), (2, 3))
    assert (read.prefix_lens, read.seq_lens, read.dtypes) == ((3, 6), (5, 9), ("int64", "int64"))
    assert read.positions == (0, 1, 2, 3, 4) and read.rows == ((0, 1, 2, 3, 4),) * 3


def test_a_decode_reads_one_token_each_whatever_windows_are_left_over() -> None:
    read = tables.given("decode", batch("DECODE"), *columns(2), running=NO_BEAMS).event()
    assert (read.tokens, read.prefix_lens) == ((1, 1), ())


def test_later_writes_do_not_change_what_was_read() -> None:
    positions, rows = columns(2)
    read = tables.given("decode", batch("DECODE"), positions, rows, running=NO_BEAMS)
    positions += 100
    rows += 100
    assert read.ready() is False and read.wait() is False, "no answers yet"
    assert read.event().positions == (0, 1) and read.event().rows == ((0, 1),) * 3


def test_without_a_table_there_is_none() -> None:
    read = tables.given("decode", batch("DECODE"), columns(2)[0], None, running=NO_BEAMS).event()
    assert read.rows is None and read.dtypes == ("int64", "")


def test_lengths_that_only_the_device_knows_are_copied() -> None:
    late = batch("DECODE", seq_lens_cpu=None, seq_lens=torch.tensor([7, 8]))
    assert tables.given("decode", late, *columns(2), running=NO_BEAMS).lengths() == (7, 8)


def test_beams_stand_by_their_searchs_name() -> None:
    entry = SimpleNamespace(leader_idx=1, start=2, end=5)
    running = SimpleNamespace(beam_tail=SimpleNamespace(entries=[entry]))
    read = tables.given("decode", batch("DECODE"), *columns(5), running=running)
    assert (read.mode, read.reqs) == ("beam_decode", ("a", "b", "b", "b", "b"))
    assert tables.given("decode", batch("DECODE"), *columns(2), running=running, draft=True).mode == "draft_decode"


def test_a_drafts_forward_is_read_in_equal_shares_and_commits_nothing() -> None:
    read = tables.given("decode", batch("DECODE"), *columns(8), running=NO_BEAMS, draft=True, step=2)
    assert (read.mode, read.tokens, read.step, read.settled) == ("draft_decode", (4, 4), 2, True)
    frozen = SimpleNamespace(spec_input_type=SimpleNamespace(name="FROZEN_KV_MTP_DRAFT"))
    read = tables.given("decode", batch("DECODE", spec_info=frozen), *columns(2), running=NO_BEAMS, draft=True)
    assert read.mode == "frozen_kv_draft"


def verify(**fields: Any) -> Any:
    """A tree of four nodes: the root has the children 1 and 3, and 2 is the child of 1."""
    first = torch.tensor([[1, 2, -1, -1]] * 2)
    beside = torch.tensor([[-1, 3, -1, -1]] * 2)
    info = {"draft_token_num": 4, "retrieve_next_token": first, "retrieve_next_sibling": beside}
    return batch("TARGET_VERIFY", spec_info=SimpleNamespace(**info | fields))


def test_a_verifys_trees_are_told_by_parents() -> None:
    read = tables.given("target_verify", verify(), *columns(8), running=NO_BEAMS).event()
    assert (read.mode, read.tokens, read.parents) == ("target_verify", (4, 4), ((0, 1, 0),) * 2)


def test_children_come_in_the_order_in_which_a_verify_tries_them() -> None:
    trees = tables.Trees(4, [[1, 2, -1, -1]], [[-1, 3, -1, -1]])
    assert [trees.children(0, node) for node in range(4)] == [[1, 3], [2], [], []]


def test_a_filler_has_no_parent() -> None:
    assert tables.Trees(3, [[1, -1, -1]], [[-1, -1, -1]]).parents(0) == (0, -1)


def test_a_ragged_verify_says_each_requests_share() -> None:
    layout = SimpleNamespace(verify_lens_cpu=None, verify_lens=torch.tensor([1, 3]))
    read = tables.given("target_verify", verify(ragged_verify_layout=layout), *columns(4), running=NO_BEAMS)
    assert (read.mode, read.tokens) == ("ragged_verify", (1, 3))


def test_a_ragged_verify_may_say_its_shares_on_the_host() -> None:
    layout = SimpleNamespace(verify_lens_cpu=[3, 1], verify_lens=None)
    read = tables.given("target_verify", verify(ragged_verify_layout=layout), *columns(4), running=NO_BEAMS)
    assert read.tokens == (3, 1)


def test_a_verify_without_trees_has_no_parents() -> None:
    read = tables.given("target_verify", verify(retrieve_next_token=None), *columns(8), running=NO_BEAMS)
    assert read.event().parents == () and read.nodes == 4


def test_a_drafts_windows_are_its_own_and_its_other_forwards_in_equal_shares() -> None:
    read = tables.given("extend", batch("EXTEND"), *columns(5), running=NO_BEAMS, draft=True)
    assert (read.mode, read.tokens, read.prefix_lens) == ("extend", (2, 3), (3, 6))
    read = tables.given("draft_extend_v2", batch("DRAFT_EXTEND_V2"), *columns(6), running=NO_BEAMS, draft=True)
    assert (read.mode, read.tokens, read.prefix_lens) == ("draft_extend_v2", (3, 3), ())
    block = SimpleNamespace(spec_input_type=SimpleNamespace(name="DFLASH_VERIFY"))
    read = tables.given(
        "target_verify", batch("TARGET_VERIFY", spec_info=block), *columns(6), running=NO_BEAMS, draft=True
    )
    assert (read.mode, read.nodes) == ("draft_block", 0)
    idle = tables.given("decode", batch("DECODE", rids=[]), *columns(0), running=NO_BEAMS, draft=True)
    assert (idle.reqs, idle.tokens) == ((), ())


def test_an_empty_beam_tail_is_a_beam_search_of_its_leaders() -> None:
    entries = [SimpleNamespace(leader_idx=leader, start=2 + leader, end=3 + leader) for leader in (0, 1)]
    running = SimpleNamespace(beam_tail=SimpleNamespace(entries=entries))
    assert tables.given("decode", batch("DECODE"), *columns(4), running=running).reqs == ("a", "b", "a", "b")
    assert tables.given("extend", batch("EXTEND"), *columns(5), running=running).mode == "extend"


def test_a_forward_is_complete_once_it_is_settled() -> None:
    read = tables.given("decode", batch("DECODE"), *columns(2), running=NO_BEAMS)
    assert not read.settled and not read.ready() and not read.wait()
    read.settled = True
    assert read.ready() and read.wait()


def test_copies_from_a_gpu_are_there_when_its_event_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "torch", Torch())
    positions, rows = (one.as_subclass(OnGpu) for one in columns(2))
    read = tables.given("decode", batch("DECODE"), positions, rows, running=NO_BEAMS)
    positions += 100
    Event.reached = False
    read.settled = True
    assert not read.ready() and read.wait() and Event.waited == 1
    Event.reached = True
    assert read.ready()
    assert read.event().positions == (0, 1) and read.event().rows == ((0, 1),) * 3
    host = tables.HostCopies(ids=torch.tensor([3]), none=None)
    assert host.ready() and host.values("ids") == [3] and host.values("none") is None and host.values("other") is None
    host.wait()
    assert Event.waited == 1, "what is on the host already is not waited for"

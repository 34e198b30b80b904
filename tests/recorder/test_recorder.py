"""What a recorder makes of forwards and results, call by call: which tables, in which step of a draft, whose answers,
and when nothing runs. No engine: objects with the fields of its batches, runners and results."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from ropecheck.adapters import events  # noqa: E402 - the others import torch
from ropecheck.adapters.sglang.recorder import arrivals, tables, watch  # noqa: E402
from tests.recorder.support import Kept, batch, runner  # noqa: E402
from tests.recorder.test_messages import item, request  # noqa: E402


class Recorded:
    """A recorder of a scheduler that is idle unless a test says otherwise."""

    def __init__(self, looks: bool = False) -> None:
        self.idle = True
        self.sink = Kept(looks)
        self._kept: list[Any] = []
        """Runners, which live as long as their process."""
        scheduler = SimpleNamespace(running_batch=None, is_fully_idle=lambda: self.idle)
        self.recorder = watch.Recorder(scheduler, self.sink)

    def forward(self, run: Any, given: Any) -> None:
        """A runner's forward that calls its network."""
        self._kept.append(run)
        assert self.recorder.enter(run, given)
        run.model.forward([1], given.positions, given)
        self.recorder.leave()

    def replay(self, run: Any, given: Any, graph: bool = True) -> None:
        """One that replays a graph, or says that it does not."""
        self._kept.append(run)
        assert self.recorder.enter(run, given)
        self.recorder.replayed(run, given, SimpleNamespace(can_run_graph=graph))
        self.recorder.leave()

    def launched(self, given: Any, **result: Any) -> Any:
        """A batch of one forward; its result."""
        self.recorder.begin()
        self.forward(runner(), given)
        made = SimpleNamespace(**{"accept_lens": None} | result)
        self.recorder.ran(made)
        return made


@pytest.fixture
def seen() -> Recorded:
    return Recorded()


# ---------------------------------------------------------------- forwards


def test_a_forward_is_told_with_its_own_mode_and_tables(seen: Recorded) -> None:
    seen.forward(runner(), batch("EXTEND", "a", tokens=3))
    seen.forward(runner(), batch("DECODE", "a", at=3))
    seen.forward(runner(), batch("SOME_OTHER", "a", at=4))
    assert [(one.mode, one.positions, one.draft) for one in seen.sink.forwards] == [
        ("extend", (0, 1, 2), False),
        ("decode", (3,), False),
        ("some_other", (4,), False),
    ]


def test_a_forward_inside_of_another_is_a_part_of_it(seen: Recorded) -> None:
    run = runner()
    assert seen.recorder.enter(run, batch("EXTEND", "a", tokens=2))
    assert not seen.recorder.enter(run, batch("DECODE", "a"))
    seen.recorder.leave()
    assert seen.recorder.enter(run, batch("DECODE", "a"))


def test_the_network_is_watched_once_and_goes_on_as_before(seen: Recorded) -> None:
    run = runner()
    seen.forward(run, batch("DECODE", "a"))
    watched = run.model.forward
    seen.forward(run, batch("DECODE", "a"))
    assert len(seen.sink.forwards) == 2 and run.model.forward is watched
    outside = batch("DECODE", "a")
    assert run.model.forward(1, 2, outside, 3, more=4) == ((1, 2, outside, 3), {"more": 4})
    assert len(seen.sink.forwards) == 2, "a warm-up is no forward of a client's"


def test_a_network_that_is_called_twice_in_a_forward_is_told_once() -> None:
    for looks in (False, True):
        seen, run, given = Recorded(looks), runner(), batch("DECODE", "a")
        assert seen.recorder.enter(run, given)
        run.model.forward(None, given.positions, given)
        run.model.forward(None, given.positions, given)
        seen.recorder.replayed(run, given, SimpleNamespace(can_run_graph=True))
        assert len(seen.sink.forwards) + len(seen.sink.looked) == 1


def test_the_steps_of_a_drafts_loop_are_counted_from_its_last_other_forward(seen: Recorded) -> None:
    draft, target = runner(draft=True), runner()
    for run, mode in (
        [(draft, "DECODE")] * 3 + [(draft, "EXTEND"), (draft, "DECODE"), (target, "DECODE")] + [(draft, "DECODE")] * 2
    ):
        seen.forward(run, batch(mode, "a"))
    told = [(one.draft, one.step) for one in seen.sink.forwards]
    assert told == [(True, 0), (True, 1), (True, 2), (True, 0), (True, 0), (False, 0), (True, 0), (True, 1)]


def test_a_draft_that_reads_one_row_is_left_out_and_the_target_never(seen: Recorded) -> None:
    assert not seen.recorder.enter(runner(draft=True, model_is_mrope=False), batch("DECODE", "a"))
    assert seen.recorder.enter(runner(model_is_mrope=False), batch("DECODE", "a"))


def test_who_looks_gets_the_targets_tables_and_no_copies() -> None:
    seen = Recorded(looks=True)
    given = batch("DECODE", "a", "b")
    seen.forward(runner(draft=True), given)
    seen.forward(runner(), given)
    assert [(mode, positions.tolist()) for mode, positions, _ in seen.sink.looked] == [("decode", [0, 1])]
    assert seen.sink.entries == []


# ---------------------------------------------------------------- graphs


def graph(width: int = 8, **more: Any) -> Any:
    """A graph runner with static buffers that hold 50, 51, .."""
    positions = torch.arange(50, 50 + width)
    return SimpleNamespace(
        buffers=SimpleNamespace(positions=positions, mrope_positions=positions.expand(3, -1) + 1), **more
    )


@pytest.mark.parametrize(
    ("attribute", "mode", "read"),
    [
        ("decode_cuda_graph_runner", "DECODE", True),
        ("graph_runner", "DECODE", True),
        ("decode_cuda_graph_runner", "TARGET_VERIFY", True),
        ("prefill_cuda_graph_runner", "EXTEND", True),
        ("piecewise_cuda_graph_runner", "EXTEND", True),
        ("prefill_cuda_graph_runner", "DECODE", False),
        ("decode_cuda_graph_runner", "EXTEND", False),
        ("prefill_cuda_graph_runner", "TARGET_VERIFY", False),
    ],
)
def test_a_replayed_graphs_own_buffers_are_read_without_their_padding(
    seen: Recorded, attribute: str, mode: str, read: bool
) -> None:
    seen.replay(runner(**{attribute: graph()}), batch(mode, "a", "b"))
    assert [(one.positions, one.rows) for one in seen.sink.forwards] == [((50, 51), ((51, 52),) * 3)] * read


def test_buffers_are_asked_of_the_registry_first(seen: Recorded) -> None:
    slots = {"positions": SimpleNamespace(buffer=torch.arange(70, 78))}
    registry = SimpleNamespace(has_slot=lambda name: name in slots, get_slot=slots.get)
    seen.replay(runner(graph_runner=graph(buffer_registry=registry)), batch("DECODE", "a"))
    assert [(one.positions, one.rows) for one in seen.sink.forwards] == [((70,), ((51,),) * 3)]


def test_without_a_graph_or_a_table_there_is_nothing_to_read(seen: Recorded) -> None:
    seen.replay(runner(graph_runner=graph()), batch("DECODE", "a"), graph=False)
    seen.replay(runner(), batch("DECODE", "a"))
    assert seen.sink.forwards == []
    seen.replay(runner(graph_runner=graph()), batch("DECODE", "a", mrope_positions=None))
    assert [(one.positions, one.rows) for one in seen.sink.forwards] == [((50,), None)]


def test_the_same_buffers_at_the_same_width_are_cut_once() -> None:
    """Who looks at each forward compares what stands in the same tensors."""
    seen, run = Recorded(looks=True), runner(graph_runner=graph())
    for width in (2, 2, 3, 2):
        seen.replay(run, batch("DECODE", *"abc"[:width]))
    first, again, wider, narrow = seen.sink.looked
    assert first[1] is again[1] and first[2] is again[2]
    assert [one[2].shape[1] for one in (wider, narrow)] == [len(wider[1]), len(narrow[1])] == [3, 2]
    run.graph_runner.buffers.mrope_positions = run.graph_runner.buffers.mrope_positions + 5
    seen.replay(run, batch("DECODE", "a", "b"))
    assert seen.sink.looked[-1][2].tolist() == [[56, 57]] * 3
    run.graph_runner.buffers.positions = run.graph_runner.buffers.positions + 5
    seen.replay(run, batch("DECODE", "a", "b"))
    assert seen.sink.looked[-1][1].tolist() == [55, 56]


def test_a_batch_without_positions_is_told_uncut(seen: Recorded) -> None:
    run = runner()
    given = batch("DECODE", "a", "b", positions=None)
    assert seen.recorder.enter(run, given)
    run.model.forward(None, None, given)
    assert [(one.positions, one.rows) for one in seen.sink.forwards] == [(None, ((0, 1),) * 3)]


# ---------------------------------------------------------------- answers


def test_answers_come_with_the_result_of_their_batch(seen: Recorded) -> None:
    """Two batches are under way, as in an overlapped loop."""
    first = seen.launched(batch("EXTEND", "a", "b", tokens=2), next_token_ids=torch.tensor([50, 60]))
    second = seen.launched(batch("DECODE", "a", "b"), next_token_ids=[51, 61])
    third = seen.launched(batch("DECODE", "a", "b"), next_token_ids=[52, 62])
    waits = [entry.settled for entry in seen.sink.entries]
    seen.recorder.processed(first)
    ready = [entry.settled for entry in seen.sink.entries]
    seen.recorder.processed(second)
    seen.recorder.processed(third)
    assert (waits, ready) == ([False] * 3, [True, False, False])
    assert [one.answers for one in seen.sink.forwards] == [((50,), (60,)), ((51,), (61,)), ((52,), (62,))]
    assert all(entry.settled for entry in seen.sink.entries) and seen.sink.said == ["settle"] * 3


def test_what_the_engine_passes_over_is_complete_without_answers(seen: Recorded) -> None:
    seen.launched(batch("DECODE", "a"), next_token_ids=[50])
    later = seen.launched(batch("DECODE", "b"), next_token_ids=[60])
    waits = seen.launched(batch("DECODE", "c"), next_token_ids=[70])
    seen.recorder.processed(later)
    assert [one.answers for one in seen.sink.forwards] == [(), ((60,),), ()]
    assert [entry.settled for entry in seen.sink.entries] == [True, True, False]
    seen.recorder.processed(waits)
    assert seen.sink.forwards[-1].answers == ((70,),)


def test_the_last_forward_of_a_batch_answers_and_a_draft_never(seen: Recorded) -> None:
    seen.recorder.begin()
    seen.forward(runner(), batch("EXTEND", "a"))
    seen.forward(runner(), batch("DECODE", "a"))
    seen.forward(runner(draft=True), batch("DECODE", "a"))
    result = SimpleNamespace(next_token_ids=[50])
    seen.recorder.ran(result)
    seen.recorder.processed(result)
    assert [one.answers for one in seen.sink.forwards] == [(), ((50,),), ()]
    assert all(entry.settled for entry in seen.sink.entries)


def test_forwards_before_a_batch_are_none_of_its(seen: Recorded) -> None:
    seen.forward(runner(), batch("DECODE", "a"))
    empty = SimpleNamespace(next_token_ids=[9])
    seen.recorder.begin()
    seen.recorder.ran(empty)
    seen.recorder.processed(empty)
    assert seen.sink.forwards[0].answers == () and not seen.sink.entries[0].settled


def verify(*trees: int) -> Any:
    """A verify of so many requests, three nodes each."""
    return batch("TARGET_VERIFY", *"abcd"[: len(trees)], tokens=3)


@pytest.mark.parametrize(
    ("given", "result", "answers"),
    [
        (batch("DECODE", "a", "b"), {"next_token_ids": None}, ()),
        (batch("DECODE", "a", "b"), {"next_token_ids": [5]}, ()),
        (batch("DECODE", "a", "b"), {"next_token_ids": [[5, 6], [7]]}, ((5, 6), (7,))),
        (batch("DECODE", "a", "b"), {"next_token_ids": torch.tensor([[5], [7]])}, ((5,), (7,))),
        (
            verify(1, 2),
            {"next_token_ids": torch.tensor([5, 6, 7, 8, 9, 10]), "accept_lens": torch.tensor([1, 3])},
            ((5,), (8, 9, 10)),
        ),
        (verify(1, 2), {"next_token_ids": [5, 8]}, ()),
        (verify(), {"next_token_ids": [], "accept_lens": torch.tensor([], dtype=torch.int64)}, ()),
    ],
)
def test_a_results_tokens_are_read_by_the_forwards_mode(
    seen: Recorded, given: Any, result: dict[str, Any], answers: tuple[Any, ...]
) -> None:
    seen.recorder.processed(seen.launched(given, **result))
    assert seen.sink.forwards[0].answers == answers


def test_a_beam_search_answers_for_every_row(seen: Recorded) -> None:
    entry = SimpleNamespace(leader_idx=0, start=1, end=3)
    seen.recorder.scheduler.running_batch = SimpleNamespace(beam_tail=SimpleNamespace(entries=[entry]))
    given = batch("DECODE", "a", positions=torch.arange(3), mrope_positions=torch.arange(3).expand(3, -1))
    seen.recorder.processed(seen.launched(given, next_token_ids=[5]))
    assert (seen.sink.forwards[0].mode, seen.sink.forwards[0].answers) == ("beam_decode", ((5,),))


def test_tokens_on_a_device_are_copied_at_the_launch_and_waited_for_at_the_end(
    seen: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[str] = []

    class Copies:
        def __init__(self, ids: Any) -> None:
            happened.append("copied")

        def wait(self) -> None:
            happened.append("waited")

        def values(self, name: str) -> Any:
            return {"ids": [7]}[name]

    given = batch("DECODE", "a")
    ids = SimpleNamespace(device=SimpleNamespace(type="cuda"))
    done = SimpleNamespace(synchronize=lambda: happened.append("done"))
    seen.recorder.begin()
    seen.forward(runner(), given)
    monkeypatch.setattr(tables, "HostCopies", Copies)
    result = SimpleNamespace(next_token_ids=ids, copy_done=done)
    seen.recorder.ran(result)
    assert happened == ["copied"]
    seen.recorder.processed(result)
    assert happened == ["copied", "done", "waited"]
    assert seen.sink.forwards[0].answers == ((7,),)
    for here in (torch.tensor([8]), [8], None):
        seen.recorder.ran(SimpleNamespace(next_token_ids=here))
    assert happened == ["copied", "done", "waited"], "what is on the host is not copied"


# ---------------------------------------------------------------- messages


def test_grids_are_tensors_of_the_engine_of_whatever_shape() -> None:
    for grid in (torch.tensor([[1, 4, 6]]), torch.tensor([1, 4, 6])):
        found = arrivals.prompt(request(4, item("IMAGE", (0, 3), image_grid_thw=grid)))
        assert found == (events.PromptRun(kind="image", grid=(1, 4, 6)),)
    seconds = item("VIDEO", (0, 3), video_grid_thw=torch.tensor([[2, 4, 4]]), second_per_grid_ts=torch.tensor([0.5]))
    assert arrivals.prompt(request(4, seconds))[0].seconds_per_grid == 0.5


# ---------------------------------------------------------------- ends


def test_rest_is_told_once_when_nothing_runs_and_nothing_waits(seen: Recorded) -> None:
    seen.recorder.idle()
    assert seen.sink.entries == [], "nothing has happened yet"
    open_ = seen.launched(batch("DECODE", "a"), next_token_ids=[5])
    seen.recorder.idle()
    seen.recorder.processed(open_)
    seen.idle = False
    seen.recorder.idle()
    assert not any(isinstance(entry, events.Rest) for entry in seen.sink.entries)
    seen.idle = True
    seen.recorder.idle()
    seen.recorder.idle()
    assert [entry for entry in seen.sink.entries if isinstance(entry, events.Rest)] == [events.Rest()]
    assert seen.sink.said == ["settle", "settle"]
    seen.recorder.put(events.Retracted("a"))
    seen.recorder.idle()
    assert isinstance(seen.sink.entries[-1], events.Rest)


def test_when_the_loop_raises_what_is_under_way_is_complete(seen: Recorded) -> None:
    for name in "ab":
        seen.launched(batch("DECODE", name), next_token_ids=[5])
    seen.recorder.begin()
    for name in "cd":
        seen.forward(runner(), batch("DECODE", name))
    seen.recorder.died(ValueError(f"first {'x' * 400}\nsecond"))
    assert [entry.settled for entry in seen.sink.entries[:4]] == [True] * 4
    died = seen.sink.entries[-1]
    assert (died.error, died.message[:7], len(died.message)) == ("ValueError", "first x", 300)
    seen.recorder.died(ValueError())
    assert seen.sink.entries[-1].message == ""

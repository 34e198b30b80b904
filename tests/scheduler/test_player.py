"""One script on one scheduler: when its messages come, what is told of it, how it ends and what is left. The scheduler
is one of a few lines, with the engine's names, that answers a token a turn."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
import pytest

torch = pytest.importorskip("torch")

from ropecheck.adapters import events, play  # noqa: E402 - the others import torch
from ropecheck.adapters.sglang.recorder import tables  # noqa: E402
from ropecheck.adapters.sglang.scheduler.build import NoSuchArgument  # noqa: E402
from tests.recorder.support import batch  # noqa: E402

time_module = time


class Req:
    """A request as the engine holds it."""

    def __init__(self, rid: str, left: int, session: Any = None) -> None:
        self.rid, self.left, self.session = rid, left, session
        self.output_ids = [5, 6]
        self.retracted = 0

    def finished(self) -> bool:
        return self.left <= 0

    def reset_for_retract(self, by: int = 1) -> str:
        self.retracted += by
        return "reset"


class ScheduleBatch:
    def __init__(self, reqs: list[Req]) -> None:
        self.reqs = reqs

    def process_prebuilt(self, more: int) -> int:
        return more + 1


class SenderWrapper:
    def send_output(self, output: Any, recv_obj: Any = None) -> None:
        raise AssertionError("nothing is sent to other processes")


class Receiver:
    """The engine's own."""

    rank = 3

    def recv_requests(self) -> list[Any]:
        raise AssertionError("nobody else asks for anything")


class Sessions:
    """The controller: sessions by name, and who closed what."""

    def __init__(self) -> None:
        self.sessions: dict[str, Any] = {}
        self.closed: list[str] = []

    def close(self, message: Any) -> None:
        self.closed.append(message.session_id)
        if not message.session_id.startswith("sticks"):
            self.sessions.pop(message.session_id, None)


class Scheduler:
    """Takes messages at the start of a turn, then gives each request its next token."""

    def __init__(self) -> None:
        model = SimpleNamespace(forward=None)
        self.runner = SimpleNamespace(model=model, forward=lambda given: model.forward(None, given.positions, given))
        self.tp_worker = SimpleNamespace(model_runner=self.runner)
        self.request_receiver: Any = Receiver()
        self.session_controller = Sessions()
        self.running_batch = None
        self.forward_ct = 99
        self.gracefully_exit = False
        self.running: list[Any] = []
        self.turns = 0
        self.got: list[tuple[int, Any]] = []
        self.overdue: list[list[Any]] = []
        self.flushes = 0
        self.endless = False
        self.stalls = False
        self.each: Callable[[], None] = lambda: None

    def is_fully_idle(self) -> bool:
        return not self.running

    def flush_cache(self) -> None:
        self.flushes += 1

    def run_event_loop(self) -> None:
        while self.endless or not self.gracefully_exit:
            own = self.overdue.pop(0) if self.overdue else []
            messages = self.request_receiver.recv_requests(own)
            for message in messages:
                self.handle(message)
            self.turns += 1
            self.each()
            if not self.stalls:
                self.step()

    def handle(self, message: Any) -> None:
        self.got.append((self.turns, message))
        if type(message).__name__ == "TokenizedGenerateReqInput":
            limit = message.sampling_params.max_new_tokens
            self.running.append(module().Req(message.rid, limit))

    def step(self) -> None:
        for req in list(self.running):
            req.left -= 1
            reason = {"type": "length"} if req.left <= 0 else None
            module(True).SenderWrapper().send_output(
                SimpleNamespace(rids=[req.rid], output_ids=[[7]], finished_reasons=[reason])
            )
            if reason:
                self.running.remove(req)


def module(sender: bool = False) -> Any:
    name = "scheduler_components.output_sender" if sender else "schedule_batch"
    return sys.modules[f"sglang.srt.managers.{name}"]


class Played:
    """A player, and what it tells."""

    def __init__(self, adapter: Any, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.player = adapter.player.Player(scheduler)

    def __call__(self, *actions: play.Action, **how: Any) -> list[Any]:
        header = events.TraceHeader(events.VERSION, "qwen2_vl")
        trace = self.player.play(play.Play(header, play.ServerConfig("one"), actions, **how))
        told = [msgspec.json.decode(line, type=events.Event) for line in events.lines(trace)]
        assert told[0] == header
        return told[1:]


@pytest.fixture
def scheduler(adapter: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scheduler]:
    """Its classes stand where the engine's do."""
    here = sys.modules[__name__]
    monkeypatch.setattr(here, "time", time)  # the player puts its own there
    for parent, name, cls in (
        ("sglang.srt.managers", "schedule_batch", Req),
        ("sglang.srt.managers.scheduler_components", "output_sender", SenderWrapper),
    ):
        made = ModuleType(name)
        for one in (cls, ScheduleBatch):
            setattr(made, one.__name__, type(one.__name__, (one,), dict(vars(one))))
        monkeypatch.setattr(sys.modules[parent], name, made)
        monkeypatch.setitem(sys.modules, f"{parent}.{name}", made)
    gc.freeze()  # the process of the tests is large, and collected at the end of scripts
    yield Scheduler()
    gc.unfreeze()


@pytest.fixture
def played(adapter: Any, scheduler: Scheduler) -> Played:
    return Played(adapter, scheduler)


def arrive(name: str, tokens: int = 2, stop_every: int = 0, beams: int = 1) -> play.Deliver:
    return play.Deliver(events.Arrived(name, (), tokens, beams=beams), (11, 12), stop_every=stop_every)


def kinds(told: list[Any]) -> list[str]:
    return [type(one).__name__ for one in told]


def out(name: str, finished: str = "") -> events.Output:
    return events.Output(name, (7,), finished)


# ---------------------------------------------------------------- a script


def test_a_script_is_told_from_its_messages_to_its_rest(played: Played) -> None:
    told = played(arrive("a"), arrive("b", 1))
    assert told == [
        *(events.Arrived(name, (), limit) for name, limit in (("a", 2), ("b", 1))),
        *(out("a"), out("b", "length"), out("a", "length"), events.Rest()),
    ]
    assert not played.player.dead and played.scheduler.flushes == 1


@pytest.mark.parametrize("rounds", [(3,), (1, 2), (1, 1, 1)])
def test_a_message_comes_at_its_turn(played: Played, rounds: tuple[int, ...]) -> None:
    played(arrive("a", 9), *map(play.Rounds, rounds), arrive("b"), play.Tell(events.Aborted("x")))
    assert [(turn, message.rid) for turn, message in played.scheduler.got] == [(0, "a"), (3, "b"), (3, "x")]


def test_every_script_begins_afresh(played: Played) -> None:
    assert played.player.dead is False
    first = played(arrive("a"))
    played.scheduler.forward_ct = 5
    played.scheduler.each = lambda: counts.append(played.scheduler.forward_ct)
    counts: list[int] = []
    assert played(arrive("a")) == first
    assert set(counts) == {0}, "the engine's switch that forces retraction counts by it"
    assert played(play.Tell(events.Control("flush"))) == [events.Control("flush"), events.Rest()]


def test_the_network_is_told_of_the_script(played: Played) -> None:
    network = played.player.network
    network.failed = "something"
    played(arrive("a", stop_every=4), arrive("b", beams=3), arrive("c", beams=2), accept=5)
    assert (network.accept, network.stops, network.widest, network.failed) == (5, {"a": 4, "b": 0, "c": 0}, 3, None)
    played(arrive("a"), arrive("b"))
    assert (network.accept, network.stops, network.widest) == (1, {"a": 0, "b": 0}, 0)


def test_forwards_are_told_where_they_happened(played: Played) -> None:
    turns = iter(range(1, 20))
    played.scheduler.each = lambda: played.scheduler.runner.forward(forwarded(next(turns)))
    told = played(arrive("a", 1))
    assert kinds(told) == ["Arrived", "Forward", "Output", "Forward", "Rest"]
    assert [one.positions for one in told if isinstance(one, events.Forward)] == [(1,), (2,)]


def forwarded(at: int) -> Any:
    fields: dict[str, Any] = dict.fromkeys(("tbo_children", "extend_logprob_start_lens_cpu"))
    kind = SimpleNamespace(name="NULL")
    return batch("DECODE", "a", at=at, return_logprob=False, capture_hidden_mode=kind, req_pool_indices=None, **fields)


@pytest.mark.parametrize("several", [True, False])
def test_every_network_of_a_draft_is_stood_in_for(adapter: Any, scheduler: Scheduler, several: bool) -> None:
    runners = [SimpleNamespace(model=SimpleNamespace(), forward=None) for _ in range(2)]
    inner = SimpleNamespace(draft_runner=runners[0], **({"draft_runners": runners} if several else {}))
    scheduler.draft_worker = SimpleNamespace(draft_worker=inner)  # type: ignore[attr-defined]
    adapter.player.Player(scheduler)
    assert [hasattr(one.model, "forward") for one in runners] == [True, several]
    assert callable(scheduler.runner.model.forward)


def test_what_else_is_asked_of_a_receiver_is_its_own(played: Played) -> None:
    assert played.scheduler.request_receiver is played.player and played.player.rank == 3


def test_a_prompt_that_another_engine_computes_is_sent_so(played: Played) -> None:
    played.scheduler.disaggregation_mode = SimpleNamespace(value="decode")  # type: ignore[attr-defined]
    played(arrive("a"))
    played.scheduler.disaggregation_mode = SimpleNamespace(value="prefill")  # type: ignore[attr-defined]
    played(arrive("b"))
    rooms = [message.bootstrap_room is not None for _, message in played.scheduler.got]
    assert rooms == [True, False]


# ---------------------------------------------------------------- the loop's end


def test_a_loop_that_has_no_end_of_its_own_is_left(played: Played) -> None:
    played.scheduler.endless = True
    assert played(arrive("a", 1)) == [events.Arrived("a", (), 1), out("a", "length"), events.Rest()]
    assert played.scheduler.turns == 2, "once more, when it has heard that it may end"


def test_what_does_not_come_to_rest_is_an_end(played: Played) -> None:
    played.scheduler.stalls = True
    died = played(arrive("a"), limit=7)[-1]
    assert (died.error, died.message) == ("Stuck", "requests are left, and nothing moves them")
    assert played.player.dead and played.scheduler.turns == 7


def test_sessions_that_nobody_waits_for_are_hung_up_first(played: Played) -> None:
    """What they hold others may wait for."""
    scheduler = played.scheduler
    busy, idle, done = (SimpleNamespace(session_id=name) for name in ("busy", "idle", "done"))
    reqs = [module().Req("x", 1, busy), module().Req("y", 0, done), module().Req("z", 1)]
    scheduler.session_controller.sessions.update(busy=busy, idle=idle, done=done)
    scheduler.stalls = True
    hung: list[int] = []

    def each() -> None:
        closed = [message.session_id for _, message in scheduler.got if hasattr(message, "session_id")]
        closed = [name for name in closed if name]
        for name in closed:
            scheduler.session_controller.sessions.pop(name, None)
        if closed and not hung:
            hung.append(scheduler.turns)

    scheduler.each = each
    told = played(arrive("a"), limit=5)
    assert [one.session for one in told if isinstance(one, events.Closed)] == ["idle", "done"]
    assert hung == [6] and told[-1].error == "Stuck" and scheduler.turns == 5 + 1 + 5
    del reqs


def test_what_the_engine_itself_gives_up_is_told_before_what_a_client_asks(played: Played) -> None:
    late = SimpleNamespace(rid="late")
    played.scheduler.overdue = [[], [late], [late]]
    told = played(arrive("a", 4), play.Rounds(2), arrive("b", 1))
    assert [one for one in told if isinstance(one, events.Aborted)] == [events.Aborted("late")] * 2
    assert [message.rid for _, message in played.scheduler.got] == ["a", "late", "late", "b"]
    assert [turn for turn, _ in played.scheduler.got] == [0, 1, 2, 2]


def test_a_session_that_times_out_does_so_in_a_turn_of_its_own(adapter: Any, played: Played) -> None:
    """The engine looks at its clock before it reads messages."""
    clocks: list[float] = []
    started = time.monotonic()
    played.scheduler.each = lambda: clocks.append(time.monotonic() - started)
    expires = play.Tell(events.Closed("s"), timeout=True)
    told = played(arrive("a", 5), expires, arrive("b", 1))
    assert kinds(told)[0] == "Arrived" and told.index(events.Closed("s")) < told.index(events.Arrived("b", (), 1))
    assert [(turn, message.rid) for turn, message in played.scheduler.got] == [(0, "a"), (1, "b")]
    late = [value > adapter.intake.TIMEOUT for value in clocks]
    assert late[:2] == [False, True] and all(late[1:])


def test_the_clock_is_read_where_sessions_and_schedulers_do(
    adapter: Any, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = ModuleType("ropecheck_elsewhere")
    monkeypatch.setitem(sys.modules, elsewhere.__name__, elsewhere)
    monkeypatch.setattr(scheduler, "session_controller", type("Own", (Sessions,), {"__module__": elsewhere.__name__})())
    adapter.player.Player(scheduler)
    assert vars(elsewhere)["time"] is vars(sys.modules[__name__])["time"] is not time_module
    assert isinstance(vars(elsewhere)["time"], adapter.player.Clock)


def test_a_clock_that_goes_on_at_once(adapter: Any) -> None:
    clock = adapter.player.Clock()
    assert clock.ahead == 0.0 and abs(clock.monotonic() - time.monotonic()) < 60
    clock.ahead += 5000
    assert 4900 < clock.monotonic() - time.monotonic() < 5100
    assert clock.perf_counter is time.perf_counter


# ---------------------------------------------------------------- failures


def engine_code(text: str) -> Any:
    """A function of the engine's, by the file that it says it is from."""
    space: dict[str, Any] = {}
    exec(compile(f"def work():\n    {text}", "/x/sglang/srt/managers/toy.py", "exec"), space)
    return space["work"]


def test_what_the_engine_raises_is_the_last_event(played: Played) -> None:
    played.scheduler.each = engine_code("raise KeyError('first\\nsecond' + 'x' * 400)")
    told = played(arrive("a"), play.Rounds(9), arrive("b"))
    assert kinds(told) == ["Arrived", "Died"] and played.player.dead
    assert (told[-1].error, told[-1].where, told[-1].given) == ("KeyError", "sglang/srt/managers/toy.py:2 work", None)
    assert len(told[-1].message) == 300
    played.scheduler.each = engine_code("raise ValueError()")
    assert kinds(played(play.Tell(events.Control("flush")))) == ["Control", "Died"], "nothing of the first is left"
    played.scheduler.each = lambda: None
    assert kinds(played(arrive("c", 1)))[-1] == "Rest" and not played.player.dead


def test_it_brings_the_forward_that_did_not_reach_its_network(played: Played) -> None:
    given = tables.given("decode", batch("DECODE", "a"), *[batch("DECODE", "a").positions] * 2, running=None)
    given.held = tables.HostCopies(positions=torch.tensor([4]))

    def each() -> None:
        played.player.network.failed = given
        engine_code("raise ValueError('x')")()

    played.scheduler.each = each
    died = played(arrive("a"))[-1]
    assert (died.given.mode, died.given.positions, died.given.rows) == ("decode", (4,), None)


def test_what_the_suites_own_code_raises_says_nothing_of_the_engine(adapter: Any, played: Played) -> None:
    played.player.network.token = None
    played.scheduler.each = lambda: played.scheduler.runner.forward(forwarded(1))
    with pytest.raises(adapter.player.OwnFault, match=r"TypeError: .* at network.py:\d+ ") as raised:
        played(arrive("a"))
    assert played.player.dead and isinstance(raised.value.__cause__, TypeError)


def test_what_the_engines_own_fake_transfer_lacks_is_not_offered(played: Played) -> None:
    played.scheduler.each = engine_code("""raise AttributeError("'FakeKVManager' object has no attribute 'x'")""")
    with pytest.raises(NoSuchArgument, match="fake transfer does not do everything"):
        played(arrive("a"))
    assert played.player.dead


def test_a_script_with_a_message_that_a_release_lacks_is_not_begun(
    adapter: Any, played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter.intake, "SAMPLING", frozenset())
    with pytest.raises(NoSuchArgument):
        played(arrive("a", beams=2))
    assert played.scheduler.turns == 0 and not played.player.dead


def test_tables_that_died_with_their_device_are_left_out(played: Played) -> None:
    class Lost:
        def wait(self) -> None:
            raise RuntimeError("CUDA error")

    given = tables.given("decode", batch("DECODE", "a"), *[batch("DECODE", "a").positions] * 2, running=None)
    given.held = Lost()  # type: ignore[assignment]
    played.scheduler.each = lambda: played.player.trace.append(given)
    with pytest.raises(RuntimeError, match="CUDA error"):
        played(arrive("a", 1))

    def dies() -> None:
        played.player.trace.append(given)
        engine_code("raise ValueError('gone')")()

    played.scheduler.each = dies
    assert kinds(played(arrive("a", 1))) == ["Arrived", "Died"]


def test_tables_are_waited_for_at_the_end(played: Played) -> None:
    waited: list[str] = []

    class Late(tables.HostCopies):
        def wait(self) -> None:
            waited.append("here")

    one = batch("DECODE", "a")
    given = tables.given("decode", one, one.positions, None, running=None)
    given.held = Late(positions=one.positions)
    played.scheduler.each = lambda: played.player.trace.append(given) if not given.settled else None
    told = played(arrive("a", 1))
    assert "Forward" in kinds(told) and waited


def test_the_innermost_line_of_an_exception_is_named(adapter: Any) -> None:
    with pytest.raises(KeyError) as raised:
        engine_code("return {}[1]")()
    assert adapter.player.place(raised.value) == "toy.py:2 work"


# ---------------------------------------------------------------- what is left


def test_sessions_are_closed_at_the_end_and_the_stubborn_forgotten(played: Played) -> None:
    sessions = played.scheduler.session_controller
    sessions.sessions.update(s0=1, sticks=2)
    assert played() == [events.Rest()]
    assert sessions.closed == ["s0", "sticks"] and sessions.sessions == {}
    assert played.scheduler.flushes == 1


def test_a_request_that_is_still_held_is_told(played: Played) -> None:
    kept: list[Any] = []
    played.scheduler.each = lambda: kept.extend(played.scheduler.running)
    assert played(arrive("a"))[-1] == events.Rest(retained=("a",))
    assert played.scheduler.got[-1][1].rid == "another", "the engine may let go with its next batch"
    assert played()[-1] == events.Rest(), "it is told once"


def test_neither_a_cycle_nor_the_last_batches_hold_a_request(played: Played) -> None:
    scheduler: Any = played.scheduler
    scheduler.batch_record_buf = [None, None]

    def each() -> None:
        for req in scheduler.running:
            req.itself = req
        scheduler.batch_record_buf[:] = [list(scheduler.running), list(scheduler.running)]

    scheduler.each = each
    assert played(arrive("a"))[-1] == events.Rest()
    assert scheduler.batch_record_buf == [None, None] and scheduler.got[-1][1].rid == "a"


def test_what_the_last_batch_holds_goes_with_the_next_of_which_nothing_is_told(played: Played) -> None:
    scheduler: Any = played.scheduler

    def each() -> None:
        for req in scheduler.running:
            req.itself = req
        if scheduler.running:
            scheduler.last = list(scheduler.running)
        if scheduler.running and scheduler.running[0].rid == "another":
            scheduler.last = None

    scheduler.each = each
    told = played(arrive("a"))
    assert told == [events.Arrived("a", (), 2), out("a"), out("a", "length"), events.Rest()]
    another = scheduler.got[-1][1]
    assert (another.rid, list(another.input_ids), another.sampling_params.max_new_tokens) == ("another", [11, 12], 2)
    assert scheduler.flushes == 2


# ---------------------------------------------------------------- what is watched


def test_retractions_and_transfers_are_told_and_go_on(played: Played) -> None:
    def each() -> None:
        req = played.scheduler.running[0] if played.scheduler.running else None
        if req is not None and not req.retracted:
            assert req.reset_for_retract(by=2) == "reset" and req.retracted == 2
            assert module().ScheduleBatch([req, module().Req("b", 1)]).process_prebuilt(more=4) == 5

    played.scheduler.each = each
    told = played(arrive("a", 1))
    assert told[1:4] == [events.Retracted("a"), events.Transfer("a", (5, 6)), events.Transfer("b", (5, 6))]


def test_a_message_to_clients_may_tell_of_several(played: Played) -> None:
    ends = SimpleNamespace(rids=["x", "y"], output_ids=[[7], [7]], finished_reasons=[None, {"type": "stop"}])

    def each() -> None:
        if played.scheduler.turns == 1:
            module(True).SenderWrapper().send_output(ends)

    played.scheduler.each = each
    assert played(arrive("a", 1))[1:3] == [out("x"), out("y", "stop")]


def test_a_release_without_transfers_is_watched_too(adapter: Any, scheduler: Scheduler) -> None:
    class Plain:
        pass

    vars(module())["ScheduleBatch"] = Plain
    assert kinds(Played(adapter, scheduler)(arrive("a", 1))) == ["Arrived", "Output", "Rest"]
    assert not hasattr(Plain, "process_prebuilt")

"""What of an engine's classes a recorder watches, each call by its event; that results and exceptions pass; and that
only the last scheduler of a process is recorded. The classes have SGLang's names, and nothing in them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from ropecheck.adapters import events  # noqa: E402 - the others import torch
from ropecheck.adapters.sglang.recorder import watch  # noqa: E402
from tests.recorder.support import Kept, batch, runner  # noqa: E402

CALLS = (
    "handle_generate_request abort_request open_session close_session pause_generation continue_generation flush_cache"
)


class Engine:
    """An engine whose methods note that they were called, and answer with their name."""

    def __init__(self) -> None:
        calls: list[str] = []

        def method(name: str) -> Any:
            def called(self: Any, *args: Any, **kwargs: Any) -> str:
                calls.append(name)
                return name

            return called

        def built(self: Any, mrope: bool | None = True) -> None:
            shown = {} if mrope is None else {"model_is_mrope": mrope}
            self.model_config = SimpleNamespace(hf_config=SimpleNamespace(model_type="qwen2_5_vl"), **shown)
            self.running_batch = None
            self.is_fully_idle = lambda: True
            self.loops = lambda: None

        def loop(self: Any) -> Any:
            calls.append("loop")
            return self.loops()

        self.calls = calls
        methods = {name: method(name) for name in (*CALLS.split(), "process_batch_result", "on_idle", "run_batch")}
        self.Scheduler: Any = type("Scheduler", (), {**methods, "__init__": built, "run_event_loop": loop})
        self.Req: Any = type("Req", (), {"rid": "a", "reset_for_retract": method("retract")})
        self.SenderWrapper: Any = type("SenderWrapper", (), {"send_output": method("send")})
        self.ModelRunner: Any = type("ModelRunner", (), {"forward": self._forward, "is_draft_worker": False})
        self.SessionController: Any = type("SessionController", (), {"_close": method("close")})
        self.sinks: list[Kept] = []
        self.headers: list[events.TraceHeader] = []

    @staticmethod
    def _forward(self: Any, given: Any) -> Any:
        self.model.forward(None, given.positions, given)
        return SimpleNamespace(can_run_graph=False)

    def open(self, header: events.TraceHeader) -> Kept:
        self.headers.append(header)
        self.sinks.append(Kept())
        return self.sinks[-1]

    def runner(self) -> Any:
        made = self.ModelRunner()
        made.model = runner().model
        return made


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """Watched, with a controller of sessions."""
    yield watched(monkeypatch)
    watch._active.clear()


def watched(monkeypatch: pytest.MonkeyPatch, controller: bool = True) -> Engine:
    made = Engine()
    for place, cls in (
        ("sglang.srt.managers.schedule_batch", made.Req),
        ("sglang.srt.managers.scheduler_components.output_sender", made.SenderWrapper),
        ("sglang.srt.model_executor.model_runner", made.ModelRunner),
    ):
        module = ModuleType(place)
        setattr(module, cls.__name__, cls)
        monkeypatch.setitem(sys.modules, place, module)
    monkeypatch.setattr(watch, "version", lambda name: f"{name} 9")
    module_ = SimpleNamespace(Scheduler=made.Scheduler)
    if controller:
        module_.SessionController = made.SessionController
    watch.install(module_, made.open)
    return made


def message(**fields: Any) -> Any:
    return SimpleNamespace(**fields)


ARRIVES = message(
    rid="a", input_ids=[1, 2], mm_inputs=None, session_params=None, sampling_params=message(max_new_tokens=3)
)
SENT = message(rids=["a"], output_ids=[[5]], finished_reasons=[None])


@pytest.mark.parametrize(
    ("call", "given", "told"),
    [
        ("handle_generate_request", ARRIVES, events.Arrived("a", (events.PromptRun("text", 2),), 3)),
        ("abort_request", message(rid="a", abort_all=False), events.Aborted("a")),
        ("abort_request", message(rid="a", abort_all=True), events.Aborted("")),
        ("open_session", message(session_id="s", streaming=True), events.Opened("s", True)),
        ("open_session", message(session_id="s"), events.Opened("s", False)),
        ("pause_generation", message(mode="retract"), events.Control("pause retract")),
        ("continue_generation", message(), events.Control("continue")),
        ("flush_cache", message(), events.Control("flush")),
    ],
)
def test_what_a_client_asks_is_told_before_it_is_done(engine: Engine, call: str, given: Any, told: Any) -> None:
    scheduler = engine.Scheduler()
    order: list[str] = engine.calls
    put = engine.sinks[0].put

    def telling(entry: Any) -> object:
        order.append("told")
        return put(entry)

    engine.sinks[0].put = telling  # type: ignore[method-assign]
    assert getattr(scheduler, call)(given) == call
    assert engine.sinks[0].entries == [told] and order == ["told", call]
    assert getattr(scheduler, call)(recv_req=given) == call
    assert engine.sinks[0].entries == [told, told]


def test_a_close_is_heard_where_timeouts_close_as_well(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """And in a release without a controller, where the scheduler does it."""
    scheduler = engine.Scheduler()
    assert engine.SessionController()._close("s") == "close"
    scheduler.close_session(message(session_id="s"))
    assert engine.sinks[0].entries == [events.Closed("s")]
    older = watched(monkeypatch, controller=False)
    older.Scheduler().close_session(message(session_id="t"))
    assert older.sinks[0].entries == [events.Closed("t")]


def test_what_goes_out_and_what_is_taken_back(engine: Engine) -> None:
    engine.Scheduler()
    assert engine.SenderWrapper().send_output(SENT, None) == "send"
    assert engine.Req().reset_for_retract() == "retract"
    assert engine.sinks[0].entries == [events.Output("a", (5,)), events.Retracted("a")]


def test_rest_comes_after_the_engine_has_gone_idle(engine: Engine) -> None:
    scheduler = engine.Scheduler()
    scheduler.flush_cache()
    before = len(engine.calls)
    assert scheduler.on_idle() == "on_idle"
    assert engine.calls[before:] == ["on_idle"] and engine.sinks[0].entries[-1] == events.Rest()


def test_a_forward_is_recorded_in_its_batch(engine: Engine) -> None:
    scheduler, run = engine.Scheduler(), engine.runner()

    def runs(forward: bool, token: int) -> Any:
        """A batch: with a forward, or without one."""
        result = message(next_token_ids=[token])

        def inner(self: Any, more: int) -> Any:
            if forward:
                run.forward(batch("DECODE", "a"))
            return result

        assert watch._run_batch(inner, scheduler, more=1) is result
        return result

    run.forward(batch("DECODE", "a"))  # outside of any batch
    for result in (runs(False, 6), runs(True, 7)):
        assert watch._processed(lambda self, batch, result: "done", scheduler, None, result) == "done"
    assert [one.answers for one in engine.sinks[0].forwards] == [(), ((7,),)]


def test_a_batch_of_nobodys_is_no_forward(engine: Engine) -> None:
    engine.Scheduler()
    run = engine.runner()
    run.forward(batch("DECODE"))
    assert engine.sinks[0].entries == []
    run.forward(batch("DECODE", "a"))
    assert len(engine.sinks[0].forwards) == 1
    engine.sinks[0].passes = lambda batch: True  # type: ignore[method-assign]
    assert run.forward(batch("DECODE", "a")).can_run_graph is False
    assert len(engine.sinks[0].forwards) == 1


def test_before_a_scheduler_is_built_everything_passes(engine: Engine) -> None:
    engine.runner().forward(batch("DECODE", "a"))
    engine.SenderWrapper().send_output(SENT)
    assert watch._run_batch(lambda self: 5, None) == 5 and watch._processed(lambda *_: 6, None, None, None) == 6
    assert engine.sinks == [] and engine.calls == ["send"]


def test_a_replayed_graph_is_read_after_its_forward(engine: Engine) -> None:
    engine.Scheduler()
    run = engine.runner()
    buffers = message(positions=torch.tensor([0, 0]), mrope_positions=torch.zeros((3, 2), dtype=torch.int64))
    run.graph_runner = message(buffers=buffers)

    def replay(*_: Any) -> None:
        buffers.positions += 9

    run.model = message(forward=replay)
    inner = watch._forward(
        lambda self, given: (replay(), message(can_run_graph=True))[1],  # type: ignore[func-returns-value]
        run,
        batch("DECODE", "a"),
    )
    assert inner.can_run_graph and [one.positions for one in engine.sinks[0].forwards] == [(9,)]


def test_who_looks_gets_no_answers(engine: Engine) -> None:
    scheduler, run = engine.Scheduler(), engine.runner()
    sink = engine.sinks[0]
    sink.looks = True
    watch._run_batch(lambda self: run.forward(batch("DECODE", "a")), scheduler)
    assert watch._processed(lambda self, batch, result: result, scheduler, None, 5) == 5
    assert len(sink.looked) == 1 and sink.entries == [] and sink.said == [] and watch._active[0]._open == []


def test_a_forward_that_raises_has_ended(engine: Engine) -> None:
    engine.Scheduler()
    run = engine.runner()
    run.model.forward = lambda *_: 1 / 0
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            run.forward(batch("DECODE", "a"))
    assert len(engine.sinks[0].forwards) == 2


def test_the_last_scheduler_of_a_process_is_recorded_and_one_of_another_model_none(engine: Engine) -> None:
    first, last = engine.Scheduler(), engine.Scheduler(mrope=None)
    engine.Scheduler(mrope=False)
    first.flush_cache()
    last.flush_cache()
    assert [len(sink.entries) for sink in engine.sinks] == [0, 2]
    assert engine.headers[0] == events.TraceHeader(events.VERSION, "qwen2_5_vl", "sglang", "sglang 9")


def test_a_model_that_the_specification_does_not_know_keeps_its_own_name() -> None:
    config = message(hf_config=message(model_type="my_model"))
    assert watch.header(config).family == "my_model"
    assert watch.header(message(hf_config=message())).family == ""


def two(engine: Engine) -> list[Kept]:
    """Sinks of two recorders of one process."""
    engine.Scheduler()
    sinks = [engine.sinks[0], Kept()]
    watch._active.append(watch.Recorder(watch._active[0].scheduler, sinks[1]))
    return sinks


def test_every_recorder_hears_that_the_loop_has_ended(engine: Engine) -> None:
    sinks = two(engine)
    scheduler = watch._active[0].scheduler
    scheduler.loops = lambda: "served"
    assert scheduler.run_event_loop() == "served"
    assert [sink.said for sink in sinks] == [["close"], ["close"]] and [sink.entries for sink in sinks] == [[], []]
    scheduler.loops = lambda: 1 / 0
    with pytest.raises(ZeroDivisionError):
        scheduler.run_event_loop()
    assert [[type(entry) for entry in sink.entries] for sink in sinks] == [[events.Died]] * 2
    assert [sink.said for sink in sinks] == [["close"] * 2] * 2


def test_a_recorder_that_fails_ends_all_recording_and_not_the_engine(engine: Engine) -> None:
    sinks = two(engine)
    scheduler = watch._active[0].scheduler
    assert scheduler.pause_generation(message()) == "pause_generation"
    assert [len(sink.said) for sink in sinks] == [1, 1] and "mode" in sinks[0].said[0]
    assert scheduler.flush_cache(message()) == "flush_cache"
    assert [sink.entries for sink in sinks] == [[], []]


def test_a_kernel_that_failed_is_nobodys_fault_here(engine: Engine) -> None:
    """Its error comes out of whichever call is next: the recorder's own, or any of the engine's."""

    def fails(*_: Any) -> None:
        raise RuntimeError("CUDA error: device-side assert triggered")

    scheduler = engine.Scheduler()
    engine.sinks[0].put = fails  # type: ignore[assignment, method-assign]
    assert scheduler.flush_cache() == "flush_cache"
    assert engine.sinks[0].said == ["close"] and not watch._active
    scheduler = engine.Scheduler()
    scheduler.loops = fails
    with pytest.raises(RuntimeError, match="device-side"):
        scheduler.run_event_loop()
    assert (engine.sinks[1].entries, engine.sinks[1].said) == ([], ["close"])


def test_who_asks_the_engine_to_stop_is_heard(engine: Engine) -> None:
    scheduler = engine.Scheduler()

    def stop(entry: Any) -> None:
        raise watch.Stop("wrong")

    engine.sinks[0].put = stop  # type: ignore[method-assign]
    with pytest.raises(watch.Stop):
        scheduler.flush_cache()
    with pytest.raises(KeyboardInterrupt), watch.GUARDED:
        raise KeyboardInterrupt
    assert engine.sinks[0].said == []

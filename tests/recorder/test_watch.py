"""The recorder around an engine of forty lines that has SGLang's names: what it notes, when it stops the engine, and
that its own faults do not."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
import pytest

from ropecheck import record
from ropecheck.adapters import events
from ropecheck.adapters.sglang.recorder import hook
from ropecheck.conformance.trace.folder import summary

torch = pytest.importorskip("torch")

from ropecheck.adapters.sglang.recorder import watch  # noqa: E402 - it imports torch


class Mode:
    """A forward mode of the engine's."""

    def __init__(self, name: str) -> None:
        self.name = name

    def is_extend(self) -> bool:
        return self.name in ("EXTEND", "MIXED")

    def is_target_verify(self) -> bool:
        return False


class Engine:
    """A scheduler that answers one request at a time. `skew` is added to its decode columns: a fault."""

    def __init__(self, skew: int = 0) -> None:
        class ModelRunner:
            is_draft_worker = False

            def __init__(self) -> None:
                self.model = SimpleNamespace(forward=lambda ids, positions, batch: None)

            def forward(self, forward_batch: Any) -> Any:
                self.model.forward(None, forward_batch.positions, forward_batch)
                return SimpleNamespace(can_run_graph=False)

        class Req:
            rid = "a"

            def reset_for_retract(self) -> None:
                pass

        class SenderWrapper:
            sent: list[Any] = []  # noqa: RUF012 - one engine has one

            def send_output(self, output: Any, recv_obj: Any = None) -> None:
                self.sent.append(output)

        class SessionController:
            def close(self, message: Any) -> None:
                self._close(message.session_id)

            def maybe_reap(self) -> None:
                self._close("old")

            def _close(self, session_id: str) -> None:
                pass

        class Scheduler:
            def __init__(self, mrope: bool = True) -> None:
                self.model_config = SimpleNamespace(
                    model_is_mrope=mrope, hf_config=SimpleNamespace(model_type="qwen2_vl")
                )
                self.runner = ModelRunner()
                self.running_batch = None

            def is_fully_idle(self) -> bool:
                return True

            def handle_generate_request(self, recv_req: Any) -> None:
                self.length = len(recv_req.input_ids)
                self.rid = recv_req.rid

            def run_batch(self, batch: Any) -> Any:
                self.runner.forward(batch)
                return SimpleNamespace(next_token_ids=torch.tensor([50]), accept_lens=None, copy_done=None)

            def process_batch_result(self, batch: Any, result: Any) -> None:
                ended = {"type": "length"} if len(SenderWrapper.sent) == 3 else None
                told = SimpleNamespace(rids=[self.rid], output_ids=[[50]], finished_reasons=[ended])
                SenderWrapper().send_output(told)

            def on_idle(self) -> None:
                pass

            def run_event_loop(self) -> None:
                self.step(self.prefill())
                for at in range(self.length, self.length + 3):
                    self.step(self.decode(at))
                self.on_idle()

            def step(self, batch: Any) -> None:
                self.process_batch_result(batch, self.run_batch(batch))

            def prefill(self) -> Any:
                return self.batch("EXTEND", range(self.length), [self.length])

            def decode(self, at: int) -> Any:
                return self.batch("DECODE", [at + skew], None, at + 1)

            def batch(self, mode: str, index: Any, windows: Any, length: int = 0) -> Any:
                positions = torch.tensor(list(index))
                return SimpleNamespace(
                    forward_mode=Mode(mode),
                    rids=[self.rid],
                    positions=positions,
                    mrope_positions=positions.expand(3, -1),
                    extend_seq_lens_cpu=windows,
                    extend_prefix_lens_cpu=[0] if windows else None,
                    seq_lens_cpu=torch.tensor([length or self.length]),
                )

        self.Scheduler, self.Req, self.SenderWrapper, self.ModelRunner = Scheduler, Req, SenderWrapper, ModelRunner
        self.SessionController = SessionController


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Makes an engine that is recorded into tmp_path."""

    def made(mode: str = "log", skew: int = 0) -> Any:
        fake = Engine(skew)
        monkeypatch.setenv(record.FOLDER, str(tmp_path))
        monkeypatch.setenv(record.MODE, mode)
        for name, cls in (
            ("sglang.srt.managers.schedule_batch", fake.Req),
            ("sglang.srt.managers.scheduler_components.output_sender", fake.SenderWrapper),
            ("sglang.srt.model_executor.model_runner", fake.ModelRunner),
        ):
            found = ModuleType(name)
            setattr(found, cls.__name__, cls)
            monkeypatch.setitem(sys.modules, name, found)
        monkeypatch.setattr(watch, "version", lambda _: "0")
        module = SimpleNamespace(Scheduler=fake.Scheduler, SessionController=fake.SessionController)
        record._imported(module)  # type: ignore[arg-type]
        return fake

    yield made
    watch._active.clear()


def request(tokens: int = 3) -> Any:
    params = SimpleNamespace(max_new_tokens=9)
    return SimpleNamespace(
        rid="a", input_ids=list(range(tokens)), mm_inputs=None, sampling_params=params, session_params=None
    )


def told(folder: Path) -> list[events.Event]:
    decode = msgspec.json.Decoder(events.Event).decode
    return [decode(line) for path in sorted(folder.glob("*.ndjson")) for line in path.read_bytes().splitlines()]


def test_what_an_engine_does_is_written_in_order_and_is_right(engine: Callable[..., Any], tmp_path: Path) -> None:
    scheduler = engine().Scheduler()
    scheduler.handle_generate_request(request())
    scheduler.run_event_loop()
    kinds = [type(event).__name__ for event in told(tmp_path)]
    assert kinds == ["TraceHeader", "Arrived", *["Forward", "Output"] * 4, "Rest"]
    forwards = [event for event in told(tmp_path) if isinstance(event, events.Forward)]
    assert [forward.mode for forward in forwards] == ["extend", "decode", "decode", "decode"]
    assert all(forward.answers == ((50,),) for forward in forwards)
    assert summary(tmp_path).exit_code == 0, summary(tmp_path).lines


@pytest.mark.parametrize("rows", [True, False])
def test_a_draft_is_recorded_if_its_model_reads_three_rows(
    engine: Callable[..., Any], tmp_path: Path, rows: bool
) -> None:
    fake = engine()
    fake.ModelRunner.is_draft_worker, fake.ModelRunner.model_is_mrope = True, rows
    scheduler = fake.Scheduler()
    scheduler.handle_generate_request(request())
    scheduler.run_event_loop()
    assert any(isinstance(event, events.Forward) and event.draft for event in told(tmp_path)) is rows


def test_raise_stops_before_the_client_gets_the_token(engine: Callable[..., Any], tmp_path: Path) -> None:
    fake = engine("raise", skew=1)
    scheduler = fake.Scheduler()
    scheduler.handle_generate_request(request())
    with pytest.raises(watch.Stop, match=r"table\.\w+.*request a.*[\s\S]*recorded in"):
        scheduler.run_event_loop()
    assert len(fake.SenderWrapper.sent) == 1, "the prefill was right; the first decode was not"
    assert any(isinstance(event, events.Died) for event in told(tmp_path))


def test_log_lets_a_wrong_table_pass_and_says_so_later(engine: Callable[..., Any], tmp_path: Path) -> None:
    fake = engine("log", skew=1)
    scheduler = fake.Scheduler()
    scheduler.handle_generate_request(request())
    scheduler.run_event_loop()
    assert len(fake.SenderWrapper.sent) == 4
    assert summary(tmp_path).exit_code == 1


def test_a_fault_of_the_recorder_ends_the_recording_alone(engine: Callable[..., Any], tmp_path: Path) -> None:
    fake = engine()
    scheduler = fake.Scheduler()
    scheduler.handle_generate_request(SimpleNamespace(rid="a", input_ids=[1, 2, 3]))  # fields are missing
    scheduler.run_event_loop()
    assert len(fake.SenderWrapper.sent) == 4
    assert "AttributeError" in "".join(path.read_text() for path in tmp_path.glob("*.error.txt"))
    assert summary(tmp_path).exit_code == 3


def test_a_session_is_closed_by_a_client_or_by_its_timeout(engine: Callable[..., Any], tmp_path: Path) -> None:
    fake = engine()
    scheduler, sessions = fake.Scheduler(), fake.SessionController()
    sessions.close(SimpleNamespace(session_id="s"))
    sessions.maybe_reap()
    scheduler.handle_generate_request(request())
    scheduler.run_event_loop()
    assert told(tmp_path)[1:3] == [events.Closed("s"), events.Closed("old")]


@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize("skew", [0, 1])
def test_a_monitor_looks_and_writes_a_count(engine: Callable[..., Any], tmp_path: Path, skew: int, every: int) -> None:
    """The engine's own index is believed, so the fault is one between the rows and it."""
    fake = engine("monitor")
    scheduler = fake.Scheduler()
    inner = scheduler.batch

    def batch(mode: str, *args: Any) -> Any:
        made = inner(mode, *args)
        made.mrope_positions = made.mrope_positions + (skew if mode == "DECODE" else 0)
        return made

    scheduler.batch = batch
    watch._active[0].sink._every = every  # type: ignore[attr-defined]
    scheduler.handle_generate_request(request())
    scheduler.run_event_loop()
    found = json.loads(next(tmp_path.glob("monitor-*.json")).read_text())
    assert found == {"wrong": bool(skew), "looked_at": {"extend": 1, "decode": 3 // every}, "forwards": 4}
    assert told(tmp_path) == []


def test_an_exception_of_the_loop_is_the_last_event(engine: Callable[..., Any], tmp_path: Path) -> None:
    scheduler = engine().Scheduler()
    scheduler.handle_generate_request(request())
    scheduler.decode = lambda at: 1 / 0
    with pytest.raises(ZeroDivisionError):
        scheduler.run_event_loop()
    last = told(tmp_path)[-1]
    assert isinstance(last, events.Died) and last.error == "ZeroDivisionError"


def test_other_models_are_not_recorded(engine: Callable[..., Any], tmp_path: Path) -> None:
    fake = engine()
    fake.Scheduler(mrope=False)
    assert told(tmp_path) == []


def test_nothing_is_watched_before_the_import(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[str] = []
    (tmp_path / "late_module.py").write_text("loaded = True\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    hook.install(lambda module: seen.append(module.__name__), trigger="late_module")
    assert seen == []
    __import__("late_module")
    assert seen == ["late_module"] and sys.modules["late_module"].loaded


def test_the_start_of_python_runs_what_it_hides(tmp_path: Path) -> None:
    import os
    import subprocess

    (tmp_path / "sitecustomize.py").write_text("print('theirs')\n")
    env = record.environment(tmp_path / "out", path=str(tmp_path))
    hides = importlib.util.find_spec("ropecheck.adapters.sglang.recorder.site.sitecustomize")
    assert (
        hides is not None and hides.origin and env["PYTHONPATH"].split(os.pathsep)[0] == str(Path(hides.origin).parent)
    )
    code = "import sys; print(any(name.startswith('ropecheck') for name in sys.modules))"
    for folder, ours in ((env[record.FOLDER], "True"), ("", "False")):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | env | {record.FOLDER: folder},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.split() == ["theirs", ours]


def test_by_release_a_runner_or_its_models_configuration_knows_of_three_rows() -> None:
    """A Llama draft of 0.5.23 reads one row; only its configuration says so."""
    one_row = SimpleNamespace(model_is_mrope=False)
    assert not watch.three_rows(SimpleNamespace(model_config=one_row))
    assert watch.three_rows(SimpleNamespace(model_is_mrope=True, model_config=one_row))
    assert watch.three_rows(SimpleNamespace())

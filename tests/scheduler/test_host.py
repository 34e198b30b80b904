"""The processes that play scripts, with players of a few lines in an engine's place: what is said of one that answers,
is of no further use, crashes, hangs or cannot start; which are forked, and which are a Python of their own."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
import pytest

from ropecheck.adapters import events, forking, play, protocol
from ropecheck.adapters.sglang import absent_packages, boot, mends, trace
from ropecheck.adapters.sglang.scheduler import build, entered, faults, host, hosts

PLAYER = "ropecheck.adapters.sglang.scheduler.player"


class OwnFault(Exception):
    """The player's, which is not imported here: it imports the engine."""


class Player:
    """Answers with its process, and how often it has played; a script's header says what else it does."""

    def __init__(self) -> None:
        self.dead = False
        self.played = 0

    def play(self, script: play.Play) -> bytes:
        self.played += 1
        match script.header.engine:
            case "dies":
                self.dead = True
            case "crashes":
                os.kill(os.getpid(), signal.SIGKILL)
            case "leaves":
                os._exit(7)
            case "hangs":
                while True:
                    pass
            case "ours":
                self.dead = True
                raise OwnFault("our own")
            case "lacks":
                raise build.NoSuchArgument("no such message")
            case "lacks and dies":
                self.dead = True
                raise build.NoSuchArgument("no such transfer")
        timer = bool(signal.getitimer(signal.ITIMER_PROF)[0])
        return f"{os.getpid()} {os.getppid()} {self.played} {timer}".encode()


def script(does: str = "", server: str = "one", trace: bool = False) -> play.Play:
    return play.Play(events.TraceHeader(2, "qwen2_vl", engine=does), play.ServerConfig(server), (), trace=trace)


def encoded(*given: Any, **more: Any) -> bytes:
    return msgspec.msgpack.encode(script(*given, **more))


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the place of all that needs an engine."""
    module = ModuleType(PLAYER)
    vars(module).update(OwnFault=OwnFault, Player=lambda scheduler: scheduler)
    monkeypatch.setitem(sys.modules, PLAYER, module)
    monkeypatch.setattr(build, "load", lambda device="cpu": None)
    monkeypatch.setattr(entered, "found", lambda: (("sglang.srt.x", "one"), ("sglang.srt.x", "two")))
    monkeypatch.setattr(entered, "watch", lambda: None)
    monkeypatch.setattr(entered, "fresh", lambda: ("x:one",))
    monkeypatch.setattr(faults, "install", lambda: None)
    monkeypatch.setattr(mends, "install", lambda: ())
    monkeypatch.setattr(build, "build", lambda server, device: Player())
    kept = ("collect", "freeze", "enable")  # a process of tests is large
    monkeypatch.setattr(host, "gc", SimpleNamespace(**{name: lambda: None for name in kept}))


@pytest.fixture
def asked(little: None) -> Iterator[host.Hosts]:
    made = host.Hosts()
    yield made
    made.close()


# ---------------------------------------------------------------- frames


def test_a_frame_arrives_whole_however_it_is_cut() -> None:
    ours, theirs = socket.socketpair()
    body = bytes(range(256)) * 9000
    sending = threading.Thread(target=host.send_body, args=(ours, body))
    sending.start()
    assert host.receive(theirs) == body
    sending.join()
    host.send(ours, host.Told(problem="x"))
    told = host.receive(theirs)
    assert told is not None and msgspec.msgpack.decode(told, type=host.Told) == host.Told(problem="x")
    host.send_body(ours, b"")
    assert host.receive(theirs) == b""
    ours.sendall(struct.pack("<I", 3) + b"ab")
    ours.close()
    assert host.receive(theirs) is None, "the other end went in the middle of a frame"
    theirs.close()
    assert host.receive(theirs) is None, "ours is gone"


def test_no_more_is_read_than_belongs_to_a_frame() -> None:
    ours, theirs = socket.socketpair()
    for body in (b"one", b"two"):
        host.send_body(ours, body)
    assert [host.receive(theirs), host.receive(theirs)] == [b"one", b"two"]
    ours.close()
    theirs.close()
    left = [b"abcde"]

    def recv(count: int) -> bytes:
        """Two bytes at most."""
        body = left.pop()
        left.append(body[min(count, 2) :])
        return body[: min(count, 2)]

    slow: Any = SimpleNamespace(recv=recv)
    assert (host._exactly(slow, 3), host._exactly(slow, 2)) == (b"abc", b"de")


# ---------------------------------------------------------------- forks


def test_a_configuration_is_built_once_and_its_player_plays_one_script_after_another(asked: host.Hosts) -> None:
    first, again = asked.play(encoded()), asked.play(encoded())
    other = asked.play(encoded(server="two"))
    assert first.functions == {"x:one": True, "x:two": False}
    assert again.functions == {"x:one": True}, "what has been told is not told again"
    (pid, parent, _, timer), (same, _, count, _), (another, elsewhere, _, _) = (
        one.trace.split() for one in (first, again, other)
    )
    assert (pid, count, timer) == (same, b"2", b"True")
    assert another != pid and elsewhere != parent
    assert not (first.dead or first.problem or first.ran)


def test_a_player_that_is_of_no_further_use_is_forked_anew(asked: host.Hosts) -> None:
    pid, parent, *_ = asked.play(encoded()).trace.split()
    assert asked.play(encoded("dies")).dead
    new, same, count, _ = asked.play(encoded()).trace.split()
    assert new != pid and same == parent and count == b"1"


def test_a_crash_is_an_event_and_the_next_script_is_played(asked: host.Hosts) -> None:
    told = asked.play(encoded("crashes"))
    assert told.dead and not told.problem
    header, died = (msgspec.json.decode(line, type=events.Event) for line in events.lines(told.trace))
    assert header == script("crashes").header and isinstance(died, events.Died)
    assert (died.error, died.message) == ("Crash (SIGKILL)", "the script's process used too much CPU, or crashed")
    assert asked.play(encoded()).trace


def test_a_process_that_leaves_is_the_suites_own_problem(asked: host.Hosts) -> None:
    told = asked.play(encoded("leaves"))
    assert (told.problem, told.stage, told.dead) == ("the scheduler's process ended (status 7)", "adapter", True)


def test_too_much_processor_time_ends_a_script(little: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(host.CPU_SECONDS, "cpu", 0.05)
    with contextlib.closing(host.Hosts()) as made:
        assert b'"error":"Hang"' in made.play(encoded("hangs")).trace


def test_the_processor_time_between_scripts_does_not_count(little: None) -> None:
    ours, theirs = socket.socketpair()
    host.send_body(ours, encoded())
    ours.shutdown(socket.SHUT_WR)
    host._plays([theirs.detach()], Player(), {})
    assert signal.getitimer(signal.ITIMER_PROF)[0] == 0.0
    assert host.receive(ours)


@pytest.mark.parametrize(
    ("does", "told"),
    [
        ("ours", host.Told(problem="our own", stage="adapter", dead=True)),
        ("lacks", host.Told(problem="no such message", stage="not offered", dead=False)),
        ("lacks and dies", host.Told(problem="no such transfer", stage="not offered", dead=True)),
    ],
)
def test_why_there_is_no_trace(asked: host.Hosts, does: str, told: host.Told) -> None:
    pid = asked.play(encoded()).trace.split()[0]
    assert asked.play(encoded(does)) == told
    assert (asked.play(encoded()).trace.split()[0] != pid) is told.dead


def test_which_functions_ran_is_told_to_who_asks(little: None, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextlib.contextmanager
    def functions() -> Iterator[list[str]]:
        yield ["sglang/a.py:1 f"]

    monkeypatch.setattr(trace, "functions", functions)
    with contextlib.closing(host.Hosts()) as made:
        assert made.play(encoded()).ran == ()
        assert made.play(encoded(), traced=True).ran == ("sglang/a.py:1 f",)


def test_a_configuration_that_cannot_be_built_says_why_each_time(little: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def built(server: play.ServerConfig, device: str) -> Any:
        raise build.NoSuchArgument("no such draft") if server.name == "lacking" else ValueError("y" * 500)

    monkeypatch.setattr(build, "build", built)
    with contextlib.closing(host.Hosts()) as made:
        for _ in range(2):
            told = made.play(encoded(server="lacking"))
            assert (told.problem, told.stage, told.dead) == ("no such draft", "not offered", True)
            told = made.play(encoded(server="wrong"))
            assert told.problem.startswith("the scheduler does not start: ValueError: yyy")
            assert (told.stage, told.dead, len(told.problem)) == ("adapter", True, 400)


def test_a_release_that_cannot_be_imported_offers_none(little: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def load() -> None:
        raise ImportError("no scheduler")

    monkeypatch.setattr(build, "load", load)
    with contextlib.closing(host.Hosts()) as made:
        for _ in range(2):
            told = made.play(encoded())
            assert told.problem == "this release has no scheduler that can be started so: no scheduler"
            assert (told.stage, told.dead) == ("not offered", True)


def test_what_is_imported_is_imported_at_the_first_script_and_once(
    little: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    monkeypatch.setattr(build, "load", lambda: os.write(writing, b"i"))
    noted = {name: lambda name=name: os.write(writing, name[:1].encode()) for name in ("collect", "freeze", "enable")}
    monkeypatch.setattr(host, "gc", SimpleNamespace(**noted))
    monkeypatch.setattr(forking, "alone", lambda life, keep: _keeping(life, {*keep, writing}))
    with contextlib.closing(host.Hosts()) as made:
        with pytest.raises(BlockingIOError):
            os.read(reading, 9)
        for server, done in (("one", b"icfe" + b"cf"), ("two", b"cf")):
            assert made.play(encoded(server=server)).trace
            assert os.read(reading, 9) == done, "what was built is walked no more"
    os.close(reading)
    os.close(writing)


ALONE = forking.alone


def _keeping(life: Callable[[], None], keep: set[int]) -> Any:
    return ALONE(life, keep)


def test_when_the_process_that_forks_is_gone_it_is_said(asked: host.Hosts) -> None:
    (descriptor,) = asked.descriptors
    assert descriptor == asked._server.fileno()  # type: ignore[union-attr]
    asked._server.shutdown(socket.SHUT_RDWR)  # type: ignore[union-attr]
    asked._wait()
    told = asked.play(encoded())
    assert (told.problem, told.stage, told.dead) == (
        "the process that starts schedulers is gone",
        "adapter",
        True,
    )
    asked._wait = lambda: None


def test_all_end_when_nobody_is_left_to_ask(little: None) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    made = host.Hosts()
    first = made._wait.args[0]  # type: ignore[attr-defined]
    pids = [int(made.play(encoded(server=name)).trace.split()[0]) for name in ("one", "two")]
    made.close()
    until = time.monotonic() + 10
    while any(map(_lives, pids)) and time.monotonic() < until:
        time.sleep(0.01)
    assert not any(map(_lives, pids))
    assert not Path(f"/proc/{first}").exists() and len(list(Path("/proc/self/fd").iterdir())) == before


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_a_forked_player_whose_server_is_gone_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = forking.pair()
    player = host._Player(ours, b"note")
    for descriptor in socket.recv_fds(theirs, 100, 8)[1]:
        os.close(descriptor)
    told = player.play(encoded())
    assert (told.problem, told.stage, told.dead) == ("the scheduler's process ended", "adapter", True)
    player.close()
    ours.close()
    theirs.close()


@pytest.mark.parametrize("code", [None, 0, 5])
def test_an_end_that_no_signal_made_is_no_finding(code: int | None) -> None:
    told = host.ended(code, encoded())
    assert (told.trace, told.stage, told.dead) == (b"", "adapter", True)
    assert told.problem == f"the scheduler's process ended (status {code})"


def test_a_signal_is() -> None:
    assert b'"Hang"' in host.ended(-signal.SIGPROF, encoded()).trace
    assert b'"Crash (SIGHUP)"' in host.ended(-signal.SIGHUP, encoded()).trace


# ---------------------------------------------------------------- Pythons of their own


class Thread:
    """In the place of a Python that serves at the end of a socket: a thread that does."""

    code: int | None = None

    def __init__(self, pipe: socket.socket, device: str = "") -> None:
        self.device = device
        self.waits: list[float | None] = []
        self.killed = False
        self._end = os.dup(pipe.fileno())
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        with socket.socket(fileno=self._end) as pipe:
            note = host.receive(pipe)
            while (body := host.receive(pipe)) is not None:
                does = msgspec.msgpack.decode(body, type=play.Play).header.engine
                if does == "crashes":
                    self.code = -signal.SIGSEGV
                    return
                host.send(pipe, host.Told(trace=note or b"", dead=does == "dies"))

    def wait(self, timeout: float | None = None) -> int | None:
        self.waits.append(timeout)
        self._thread.join()
        if timeout is not None and self.code is None:
            raise subprocess.TimeoutExpired("it", timeout)
        return self.code

    def poll(self) -> int | None:
        return self.code

    def kill(self) -> None:
        self.killed = True


@pytest.fixture
def pythons(monkeypatch: pytest.MonkeyPatch) -> list[Thread]:
    made: list[Thread] = []

    def started(pipe: socket.socket, *more: str) -> Thread:
        made.append(Thread(pipe, *more))
        return made[-1]

    monkeypatch.setattr(host, "started", started)
    return made


def test_a_device_whose_context_outlives_no_fork_has_a_python_for_each_configuration(pythons: list[Thread]) -> None:
    alone = host.Hosts(alone="cuda")
    assert pythons == [] and alone.descriptors == ()
    for _ in range(2):
        note = alone.play(encoded()).trace
        assert msgspec.msgpack.decode(note, type=play.ServerConfig) == play.ServerConfig("one")
    assert [one.device for one in pythons] == ["cuda"]
    for name in ("two", "three"):
        alone.play(encoded(server=name))
    assert [one.killed for one in pythons] == [True, False, False], "so many are kept: scripts come in their order"
    assert alone.play(encoded("dies", server="three")).dead
    alone.play(encoded(server="three"))
    assert [one.killed for one in pythons] == [True, False, True, False]
    alone.close()
    assert all(one.killed and one.waits == [None] for one in pythons)


def test_how_a_python_ended_is_waited_for_a_while(pythons: list[Thread]) -> None:
    alone = host.Hosts(alone="cuda")
    assert b"SIGSEGV" in alone.play(encoded("crashes")).trace
    assert pythons[0].waits == [host.LAST_NEWS, None]
    alone.close()


def test_one_that_says_nothing_more_is_no_finding(pythons: list[Thread], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Thread, "_serve", lambda self: os.close(self._end))
    alone = host.Hosts(alone="cuda")
    assert alone.play(encoded()).stage == "adapter"
    alone.close()


def test_who_is_not_as_good_as_new_starts_the_first_process_afresh(pythons: list[Thread]) -> None:
    made = host.Hosts(afresh=True)
    assert [one.device for one in pythons] == [""] and len(made.descriptors) == 1
    made.close()
    assert pythons[0].waits == [None]


def test_how_a_python_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[Any] = []
    monkeypatch.setattr(host, "subprocess", SimpleNamespace(Popen=lambda command, **how: called.append((command, how))))
    ours, theirs = socket.socketpair()
    host.started(theirs, "cuda")
    number = theirs.fileno()
    assert called == [([sys.executable, "-m", host.__name__, str(number), "cuda"], {"pass_fds": (number,)})]
    ours.close()
    theirs.close()


def by_itself(*frames: bytes) -> list[host.Told]:
    """What a Python of its own says to a configuration and scripts."""
    ours, theirs = socket.socketpair()
    for one in frames:
        host.send_body(ours, one)
    ours.shutdown(socket.SHUT_WR)
    pipe = theirs.detach()
    host._by_itself(pipe, "cuda")
    with contextlib.suppress(OSError):
        os.close(pipe)
    told = []
    while (body := host.receive(ours)) is not None:
        told.append(msgspec.msgpack.decode(body, type=host.Told))
    ours.close()
    return told


NOTE = msgspec.msgpack.encode(play.ServerConfig("one", environment={"ROPECHECK_ONE": "1"}))


def test_the_life_of_a_python_of_its_own(little: None, monkeypatch: pytest.MonkeyPatch) -> None:
    devices: list[str] = []
    monkeypatch.setattr(build, "load", devices.append)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    kept: list[str] = []
    monkeypatch.setattr(
        host, "gc", SimpleNamespace(collect=lambda: kept.append("collect"), freeze=lambda: kept.append("freeze"))
    )
    for name, module in (("faults", faults), ("mends", mends)):
        monkeypatch.setattr(module, "install", lambda name=name: kept.append(f"{name} {os.environ['ROPECHECK_ONE']}"))
    monkeypatch.setattr(entered, "watch", lambda: kept.append("watch"))
    told = by_itself(NOTE, encoded(), encoded("dies"), encoded())
    assert [one.dead for one in told] == [False, True], "after that it is of no use"
    assert devices == ["cuda"] and os.environ["ROPECHECK_ONE"] == "1"
    assert kept == ["faults 1", "mends 1", "watch", "collect", "freeze"], (
        "what was built stays, and what was left over is not kept with it"
    )
    assert by_itself() == [] and devices == ["cuda"], "nobody asked"

    def built(server: play.ServerConfig, device: str) -> Any:
        raise build.NoSuchArgument(f"not on {device}")

    monkeypatch.setattr(build, "build", built)
    assert by_itself(NOTE, encoded()) == [host.Told(problem="not on cuda", stage="not offered", dead=True)]
    assert by_itself(NOTE) == []

    def load(device: str) -> None:
        raise ImportError(device)

    monkeypatch.setattr(build, "load", load)
    (refused,) = by_itself(NOTE, encoded())
    assert (refused.problem.rsplit(": ", 1)[1], refused.stage, refused.dead) == ("cuda", "not offered", True)


@pytest.mark.parametrize("device", ["", "cuda"])
def test_a_python_is_prepared_before_it_imports_anything(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    happened: list[Any] = []
    ours, theirs = socket.socketpair()
    monkeypatch.setattr(boot, "prepare_environment", lambda device: happened.append(device))
    monkeypatch.setattr(boot, "silence", lambda: happened.append("silent"))
    monkeypatch.setattr(absent_packages, "install", lambda: happened.append("stand-ins"))
    monkeypatch.setattr(host, "_imports", lambda pipe: happened.append(("forks", pipe.fileno())))
    monkeypatch.setattr(host, "_by_itself", lambda pipe, device: happened.append(("alone", pipe, device)))
    monkeypatch.setattr(os, "_exit", happened.append)
    number = theirs.detach()
    monkeypatch.setattr(sys, "argv", ["host", str(number), *filter(None, [device])])
    host.main()
    served = ("alone", number, "cuda") if device else ("forks", number)
    assert happened == [device or "cpu", "silent", "stand-ins", served, 0]
    ours.close()
    with contextlib.suppress(OSError):
        os.close(number)


# ---------------------------------------------------------------- the worker's side


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Hosts that were made, by their device."""
    found: list[Any] = []

    def make(alone: str) -> Any:
        told: dict[bytes, host.Told] = {
            b"fine": host.Told(b"trace", functions={"f": True}, ran=("r",)),
            b"lacks": host.Told(problem="no such", stage="not offered"),
            b"broken": host.Told(problem="our own", stage="adapter"),
        }
        one = SimpleNamespace(
            alone=alone,
            descriptors=(4, 5),
            play=lambda body, traced: (found.append(traced), told[body])[1],  # type: ignore[func-returns-value]
        )
        found.append(one)
        return one

    monkeypatch.setattr(hosts, "Hosts", make)
    monkeypatch.setattr(hosts, "_HOSTS", [])
    return found


def test_a_worker_forks_once_and_on_a_device_nothing(made: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    assert hosts.descriptors() == ()
    hosts.fork("cpu")
    hosts.fork("cpu")
    assert [one.alone for one in made] == [""] and hosts.descriptors() == (4, 5)
    hosts._HOSTS.clear()
    hosts.fork("cuda")
    assert [one.alone for one in made] == ["", "cuda"]
    hosts._HOSTS.clear()
    monkeypatch.delattr(os, "fork")
    hosts.fork("cpu")
    assert len(made) == 2


def test_what_a_worker_answers_to_a_script(made: list[Any]) -> None:
    assert hosts.play(protocol.PlayStep(b"fine")) == protocol.NotOfferedAnswer("no process for schedulers was forked")
    hosts.fork("cpu")
    assert hosts.play(protocol.PlayStep(b"fine"), True) == protocol.Played(b"trace", {"f": True}, ("r",))
    assert hosts.play(protocol.PlayStep(b"lacks")) == protocol.NotOfferedAnswer("no such")
    assert hosts.play(protocol.PlayStep(b"broken")) == protocol.Raised("adapter", "SchedulerProcess", "our own", "")
    assert made[1:] == [True, False, False]

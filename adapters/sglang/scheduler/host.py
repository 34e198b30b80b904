"""Processes for schedulers, forked (`forking`): one that has imported what schedulers need, from it one per
configuration that has built the scheduler, and from that the players, one per worker.

The first is forked before the worker's process publishes a configuration of its own; who is not sure that its process
is as good as new (Triton decides at its import whether it is interpreted) starts it afresh:
`python -m ropecheck.adapters.sglang.scheduler.host FD`. A player that dies, hangs or is no longer clean is replaced
with the next script, which costs no start. On a GPU, whose context outlives no fork, every player is a Python of its
own (`host FD cuda`), and each start costs the imports.

| spec field | adapter field | engine field |
| --- | --- | --- |
| server configuration | play.ServerConfig | one process that has published it |

Faked: nothing here.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from ropecheck.adapters import events, forking, play
from ropecheck.adapters.sglang import absent_packages, boot, trace
from ropecheck.adapters.sglang.scheduler import build, entered, faults

CPU_SECONDS = {"cpu": 45.0, "cuda": 150.0}
"""Of one script, in its own process: more means that the loop goes round for ever. A busy machine does not count; on a
GPU kernels are compiled within it."""
MOST_ALONE = 2
"""Configurations whose players of their own are kept: scripts come in their order."""
LAST_NEWS = 10.0
"""Seconds to wait to hear how a process ended whose pipe has closed."""


class Told(msgspec.Struct, frozen=True):
    """What a host says of a script. problem: why there is no trace."""

    trace: bytes = b""
    problem: str = ""
    stage: str = "engine"
    functions: dict[str, bool] = {}
    """Functions of the engine that handle positions -> whether they were entered; what has not been told before."""
    ran: tuple[str, ...] = ()
    """Engine functions that were called, where the script is traced."""
    dead: bool = False
    """The process that played it is of no further use."""


def send(pipe: socket.socket, value: Any) -> None:
    """One length-prefixed frame. Raises OSError when nobody reads."""
    send_body(pipe, msgspec.msgpack.encode(value))


def send_body(pipe: socket.socket, body: bytes) -> None:
    """As `send`, of what is encoded already."""
    pipe.sendall(struct.pack("<I", len(body)) + body)


def receive(pipe: socket.socket) -> bytes | None:
    """The next frame's body. None: the other end is gone."""
    length = _exactly(pipe, 4)
    return None if length is None else _exactly(pipe, struct.unpack("<I", length)[0])


def _exactly(pipe: socket.socket, count: int) -> bytes | None:
    got = bytearray()
    while len(got) < count:
        try:
            part = pipe.recv(min(count - len(got), 1 << 20))
        except OSError:
            return None
        if not part:
            return None
        got += part
    return bytes(got)


class Hosts:
    """A worker's end: ask it to play a script. Forks of the process that made it have players of their own."""

    def __init__(self, afresh: bool = False, alone: str = "") -> None:
        """Fork the process that imports for all, before a configuration is published; afresh: start a new Python for it
        instead. alone: start nothing; every player will be a Python of its own, on this device."""
        self._wait: Callable[[], Any]
        self._server: socket.socket | None = None
        self._alone = alone
        if alone:
            self._wait = lambda: None
        elif afresh:
            self._server, theirs = forking.pair()
            with theirs:
                self._wait = started(theirs).wait
        else:
            pid, self._server = forking.start(_imports)
            self._wait = partial(os.waitpid, pid, 0)
        self._players: dict[bytes, _Player | _Alone] = {}

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What a fork must keep to be able to ask."""
        return () if self._server is None else (self._server.fileno(),)

    def play(self, body: bytes, traced: bool = False) -> Told:
        """body: an encoded play.Play. traced: tell which functions are called."""
        script = msgspec.msgpack.decode(body, type=play.Play)
        if traced:
            body = msgspec.msgpack.encode(msgspec.structs.replace(script, trace=True))
        server = msgspec.msgpack.encode(script.server)
        player = self._players.get(server)
        try:
            if player is None:
                player = self._players[server] = self._new(server)
            told = player.play(body)
        except OSError:
            return Told(problem="the process that starts schedulers is gone", stage="adapter", dead=True)
        if told.dead:
            self._players.pop(server).close()
        return told

    def _new(self, server: bytes) -> _Player | _Alone:
        if self._server is not None:
            return _Player(self._server, server)
        while len(self._players) >= MOST_ALONE:
            self._players.pop(next(iter(self._players))).close()
        return _Alone(self._alone, server)

    def close(self) -> None:
        """End them all: they stop when nobody is left to ask them."""
        for player in self._players.values():
            player.close()
        if self._server is not None:
            self._server.close()
        with contextlib.suppress(OSError):
            self._wait()


def _answer(pipe: socket.socket, body: bytes) -> Told | None:
    """What the process at the other end says of a script; None when it is gone."""
    with contextlib.suppress(OSError):
        send_body(pipe, body)
    answer = receive(pipe)
    return None if answer is None else msgspec.msgpack.decode(answer, type=Told)


class _Player:
    """The asker's end of one process that plays scripts."""

    def __init__(self, server: socket.socket, note: bytes) -> None:
        self._pipe, theirs = socket.socketpair()
        with theirs:
            self._process = forking.Forked(server, note, (theirs.fileno(),))

    def play(self, body: bytes) -> Told:
        """Its answer, or what became of it."""
        if (answer := _answer(self._pipe, body)) is not None:
            return answer
        try:
            while self._process.code is None and self._process.hear(LAST_NEWS):
                pass
        except EOFError:
            return Told(problem="the scheduler's process ended", stage="adapter", dead=True)
        return ended(self._process.code, body)

    def close(self) -> None:
        """It ends by itself when it is asked no more."""
        self._pipe.close()
        self._process.close()


class _Alone:
    """The same for a Python of its own."""

    def __init__(self, device: str, note: bytes) -> None:
        self._pipe, theirs = socket.socketpair()
        with theirs:
            self._process = started(theirs, device)
        with contextlib.suppress(OSError):
            send_body(self._pipe, note)

    def play(self, body: bytes) -> Told:
        """Its answer, or what became of it."""
        if (answer := _answer(self._pipe, body)) is not None:
            return answer
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(LAST_NEWS)
        return ended(self._process.poll(), body)

    def close(self) -> None:
        """End it."""
        self._pipe.close()
        self._process.kill()
        self._process.wait()


def started(pipe: socket.socket, *more: str) -> subprocess.Popen[bytes]:
    """A Python that serves at that end of a socket."""
    command = [sys.executable, "-m", __name__, str(pipe.fileno()), *more]
    return subprocess.Popen(command, pass_fds=(pipe.fileno(),))


def ended(code: int | None, body: bytes) -> Told:
    """What is said of a script whose process ended so."""
    if code is None or code >= 0:
        return Told(problem=f"the scheduler's process ended (status {code})", stage="adapter", dead=True)
    name = signal.Signals(-code).name
    error = "Hang" if name == "SIGPROF" else f"Crash ({name})"
    header = msgspec.msgpack.decode(body, type=play.Play).header
    died = events.Died(error=error, message="the script's process used too much CPU, or crashed")
    return Told(trace=events.line(header) + events.line(died), dead=True)


def _imports(requests: socket.socket) -> None:
    """Import when the first request comes, then hand each on to the process of its configuration."""
    servers: dict[bytes, socket.socket] = {}
    problem = ""

    def route(note: bytes, descriptors: list[int]) -> socket.socket | None:
        nonlocal problem
        if not servers and not problem:
            try:
                build.load()
                entered.found()
            except ImportError as error:
                problem = f"this release has no scheduler that can be started so: {error}"
            gc.collect()
            gc.freeze()
            gc.enable()  # it was forked in the middle of imports
        if problem:
            return None
        if note not in servers:
            _, servers[note] = forking.start(lambda own: _configured(own, note))
        return servers[note]

    def refuses(_: bytes, pipes: list[int]) -> None:
        _refuse(pipes, problem, "not offered")

    forking.serve(requests, refuses, route)


def _refuse(pipes: list[int], problem: str, stage: str) -> None:
    with socket.socket(fileno=pipes[0]) as pipe:
        if receive(pipe) is not None:
            send(pipe, Told(problem=problem, stage=stage, dead=True))


def _configured(requests: socket.socket, note: bytes) -> None:
    """Build one configuration's scheduler; every player is a fork of it."""
    player, told_of, problem, stage = _player(note, "cpu")

    def plays(_: bytes, pipes: list[int]) -> None:
        if problem:
            _refuse(pipes, problem, stage)
        else:
            _plays(pipes, player, told_of)

    forking.serve(requests, plays)


def _player(note: bytes, device: str) -> tuple[Any, dict[str, bool], str, str]:
    """(a configuration's player, the functions that it watches, why there is none, how that counts)."""
    from ropecheck.adapters.sglang import mends
    from ropecheck.adapters.sglang.scheduler.player import Player

    server = msgspec.msgpack.decode(note, type=play.ServerConfig)
    os.environ.update(server.environment)
    player, told_of, problem, stage = None, {}, "", ""
    try:
        faults.install()
        mends.install()
        entered.watch()
        told_of = {entered.told(*one): False for one in entered.found()}
        player = Player(build.build(server, device))
    except build.NoSuchArgument as error:
        problem, stage = str(error), "not offered"
    except Exception as error:
        problem, stage = f"the scheduler does not start: {type(error).__name__}: {error}"[:400], "adapter"
    gc.collect()
    gc.freeze()
    return player, told_of, problem, stage


def _by_itself(pipe: int, device: str) -> None:
    """The life of a player that is a Python of its own: its configuration comes first, then scripts."""
    note = receive(socket.socket(fileno=os.dup(pipe)))
    if note is None:
        return
    try:
        build.load(device)
        entered.found()
    except ImportError as error:
        _refuse([pipe], f"this release has no scheduler that can be started so: {error}", "not offered")
        return
    player, told_of, problem, stage = _player(note, device)
    if problem:
        _refuse([pipe], problem, stage)
    else:
        _plays([pipe], player, told_of, device)


def _plays(pipes: list[int], player: Any, told_of: dict[str, bool], device: str = "cpu") -> None:
    """One script after another, until one leaves the player unclean."""
    from ropecheck.adapters.sglang.scheduler.player import OwnFault

    with socket.socket(fileno=pipes[0]) as pipe:
        while not player.dead and (body := receive(pipe)) is not None:
            script = msgspec.msgpack.decode(body, type=play.Play)
            signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS[device])  # it ends the process
            try:
                ran: list[str] = []
                with contextlib.ExitStack() as stack:
                    if script.trace:
                        ran = stack.enter_context(trace.functions())
                    played = player.play(script)
                seen = told_of | dict.fromkeys(entered.fresh(), True)
                told = Told(trace=played, functions=seen, ran=tuple(ran), dead=player.dead)
                told_of = {}
            except OwnFault as fault:
                told = Told(problem=str(fault), stage="adapter", dead=True)
            except build.NoSuchArgument as lacking:
                told = Told(problem=str(lacking), stage="not offered", dead=player.dead)
            signal.setitimer(signal.ITIMER_PROF, 0)
            send(pipe, told)


def main() -> None:
    """The life of a process that was started afresh. Arguments: the number of its end of the socket; the device, for a
    player that stands alone."""
    device = "".join(sys.argv[2:])
    boot.prepare_environment(device or "cpu")
    boot.silence()
    absent_packages.install()
    if device:
        _by_itself(int(sys.argv[1]), device)
    else:
        _imports(socket.socket(fileno=int(sys.argv[1])))
    os._exit(0)  # an orderly end of all that was imported takes seconds


if __name__ == "__main__":
    main()

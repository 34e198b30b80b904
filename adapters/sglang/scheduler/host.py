"""Processes for schedulers: one that has imported the engine and nothing else, and a child of it per configuration.

The worker keeps a pipe to the first, which it forked before it published a configuration of its own; who is not sure
that its process is as good as new (Triton decides at its import whether it is interpreted) starts it afresh:
`python -m ropecheck.adapters.sglang.scheduler.host FD`. A child is forked for a configuration when its first script
comes, builds the scheduler, and plays one script after another. One that dies, hangs or is no longer clean is replaced
with the next script.

| spec field | adapter field | engine field |
| --- | --- | --- |
| server configuration | play.Server | one process that has published it |

Faked: nothing here.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from ropecheck.adapters import events, play
from ropecheck.adapters.sglang import absent_packages, boot
from ropecheck.adapters.sglang.scheduler import build, entered, faults

CPU_SECONDS = 15.0
"""Of one script, in its own process: more means that the loop goes round for ever. A busy machine does not count."""


class Told(msgspec.Struct, frozen=True):
    """What a host says of a script. problem: why there is no trace."""

    trace: bytes = b""
    problem: str = ""
    stage: str = "engine"
    functions: dict[str, bool] = {}
    """Functions of the engine that handle positions -> whether they were entered; what has not been told before."""
    dead: bool = False
    """The process that played it is of no further use."""


def send(pipe: socket.socket, value: Any) -> None:
    """One length-prefixed frame. Raises OSError when nobody reads."""
    body = msgspec.msgpack.encode(value)
    pipe.sendall(struct.pack("<I", len(body)) + body)


def receive(pipe: socket.socket, seconds: float | None = None) -> bytes | None:
    """The next frame's body. None: the other end is gone, or said nothing for so long."""
    length = _exactly(pipe, 4, seconds)
    return None if length is None else _exactly(pipe, struct.unpack("<I", length)[0], seconds)


def _exactly(pipe: socket.socket, count: int, seconds: float | None) -> bytes | None:
    got = bytearray()
    while len(got) < count:
        if seconds is not None and not select.select([pipe], [], [], seconds)[0]:
            return None
        try:
            part = pipe.recv(min(count - len(got), 1 << 20))
        except OSError:
            return None
        if not part:
            return None
        got += part
    return bytes(got)


class Hosts:
    """The worker's end: ask it to play a script."""

    def __init__(self, afresh: bool = False) -> None:
        """Fork the host, before a configuration is published; afresh: start a new Python for it instead."""
        self._pipe, theirs = socket.socketpair()
        self._wait: Callable[[], Any]
        if afresh:
            command = [sys.executable, "-m", __name__, str(theirs.fileno())]
            self._wait = subprocess.Popen(command, pass_fds=(theirs.fileno(),)).wait
        else:
            pid = os.fork()
            if pid == 0:
                self._pipe.close()
                _run(_host, theirs)
            self._wait = lambda: os.waitpid(pid, 0)
        theirs.close()

    def play(self, body: bytes) -> Told:
        """body: an encoded play.Play."""
        try:
            self._pipe.sendall(struct.pack("<I", len(body)) + body)
        except OSError:
            return Told(problem="the process that starts schedulers is gone", stage="adapter")
        answer = receive(self._pipe)
        if answer is None:
            return Told(problem="the process that starts schedulers is gone", stage="adapter")
        return msgspec.msgpack.decode(answer, type=Told)

    def close(self) -> None:
        """End the host and its children: they stop when nobody is left to ask them."""
        self._pipe.close()
        with contextlib.suppress(OSError):
            self._wait()


@dataclass
class _Child:
    pid: int
    pipe: socket.socket

    def end(self) -> None:
        """Kill and bury it."""
        self.pipe.close()
        with contextlib.suppress(OSError):
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)


def _run(function: Any, pipe: socket.socket) -> NoReturn:
    """A forked process's whole life. It keeps no other pipe of its parent's."""
    code = 1
    try:
        keep = {0, 1, 2, pipe.fileno()}
        for entry in list(Path("/proc/self/fd").iterdir()):
            # Pipes and sockets are the parent's; files may be mapped libraries'.
            with contextlib.suppress(OSError):
                if int(entry.name) not in keep and str(entry.readlink()).startswith(("pipe:", "socket:")):
                    os.close(int(entry.name))
        function(pipe)
        code = 0
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(code)


def _host(pipe: socket.socket) -> None:
    """Import once, then hand each script to the child of its configuration."""
    children: dict[bytes, _Child] = {}
    problem = ""
    loaded = False
    while (body := receive(pipe)) is not None:
        if not loaded:
            loaded = True
            try:
                build.load()
                entered.found()
            except ImportError as error:
                problem = f"this release has no scheduler that can be started so: {error}"
            gc.collect()
            gc.freeze()
        if problem:
            send(pipe, Told(problem=problem, stage="not offered"))
            continue
        script = msgspec.msgpack.decode(body, type=play.Play)
        name = msgspec.msgpack.encode(script.server)
        child = children.get(name) or _fork()
        children[name] = child
        answer = _asked(child, body)
        if answer.dead:
            child.end()
            del children[name]
        send(pipe, answer)


def _fork() -> _Child:
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        ours.close()
        _run(_child, theirs)
    theirs.close()
    return _Child(pid, ours)


def _asked(child: _Child, body: bytes) -> Told:
    """The child's answer, or what became of it."""
    try:
        child.pipe.sendall(struct.pack("<I", len(body)) + body)
    except OSError:
        return Told(problem="the scheduler's process ended between two scripts", stage="adapter", dead=True)
    answer = receive(child.pipe)
    if answer is None:
        return Told(problem="the scheduler's process ended", stage="adapter", dead=True)
    told = msgspec.msgpack.decode(answer, type=Told)
    if told.trace or told.problem:
        return told
    header = msgspec.msgpack.decode(body, type=play.Play).header
    died = events.Died(error=told.stage, message=f"the script's process used {CPU_SECONDS:g} s of CPU, or crashed")
    return Told(trace=events.line(header) + events.line(died))


def _child(pipe: socket.socket) -> None:
    """Build the first script's scheduler; from then on every player is a fork of it, so that a new one after a death
    costs no start."""
    from ropecheck.adapters.sglang import mends
    from ropecheck.adapters.sglang.scheduler.player import OwnFault, Player

    body = receive(pipe)
    if body is None:
        return
    server = msgspec.msgpack.decode(body, type=play.Play).server
    os.environ.update(server.environment)
    try:
        faults.install()
        mends.install()
        told_of = dict.fromkeys(entered.watch(), False)
        player = Player(build.build(server))
    except build.NotOffered as error:
        send(pipe, Told(problem=str(error), stage="not offered", dead=True))
        return
    except Exception as error:
        problem = f"the scheduler does not start: {type(error).__name__}: {error}"
        send(pipe, Told(problem=problem[:400], stage="adapter", dead=True))
        return
    gc.collect()
    gc.freeze()
    while body is not None:
        pid = os.fork()
        if pid:
            _, status = os.waitpid(pid, 0)
            if os.WIFSIGNALED(status):  # a player stops its clock before it answers: this script has no answer
                name = signal.Signals(os.WTERMSIG(status)).name
                send(pipe, Told(stage="Hang" if name == "SIGPROF" else f"Crash ({name})"))
            body = receive(pipe)
            continue
        while body is not None:
            signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
            script = msgspec.msgpack.decode(body, type=play.Play)
            try:
                trace = player.play(script)
                told = Told(trace=trace, functions=told_of | dict.fromkeys(entered.fresh(), True))
                told_of = {}
            except OwnFault as fault:
                told, player.dead = Told(problem=str(fault), stage="adapter"), True
            signal.setitimer(signal.ITIMER_PROF, 0)
            send(pipe, told)
            if player.dead:
                break
            body = receive(pipe)
        os._exit(0)


def main() -> None:
    """The life of a host that was started afresh; its only argument is the number of its end of the pipe."""
    boot.prepare_environment("cpu")
    boot.silence()
    absent_packages.install()
    _host(socket.socket(fileno=int(sys.argv[1])))
    os._exit(0)  # an orderly end of all that was imported takes seconds


if __name__ == "__main__":
    main()

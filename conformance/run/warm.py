"""One import for many workers: a process that has imported what a target needs, and forks a worker on request."""

import os
import signal
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path

from ropecheck.adapters import forking
from ropecheck.conformance.run.lives import Fork, Spawned, how, wait_for
from ropecheck.conformance.run.printed import Printed
from ropecheck.conformance.run.reaper import reaper
from ropecheck.conformance.targets.registry import Target


class NotForked(Exception):
    """No worker came; the message says what became of the process that forks."""


def can_fork(target: Target, device: str) -> bool:
    """Whether its workers can be forked: a device's context does not outlive a fork."""
    return target.forks and device == "cpu"


class Warm:
    """Forks workers of a target, and of targets that differ from it in their checkouts alone. Close it at the end."""

    def __init__(self, target: Target, log: Path) -> None:
        """log: where what it prints goes. Nothing starts yet."""
        self._argv, self._env = command_of(target)
        self._log = log
        self._lock = threading.Lock()
        self._process: Spawned | None = None
        self._printed: Printed | None = None
        self._requests: socket.socket | None = None
        self._failed = ""

    def serves(self, target: Target) -> bool:
        """Whether it can fork workers of this target too."""
        return command_of(target) == (self._argv, self._env)

    def log_to(self, log: Path) -> None:
        """What it prints, and has printed without being asked, goes there."""
        self._log = log
        if self._printed is not None:
            self._printed.path = log

    def begin(self) -> None:
        """Let the imports begin; they go on beside whatever the caller does then. Raises OSError."""
        with self._lock:
            if self._process is None:
                self._start()

    def _start(self) -> None:
        self._requests, theirs = forking.pair()
        self._printed = Printed(self._log)
        with theirs:
            argv = [*self._argv, "--fork-fd", str(theirs.fileno())]
            env = reaper.environment(self._env)
            try:
                self._process = Spawned(argv, env, self._printed.write_end, (theirs.fileno(),))
            except OSError:
                self._printed.close()
                self._requests.close()
                raise
        self._printed.started()
        reaper.watch(self._process.pid)

    def fork(self, target: Target, version: str, own: tuple[int, int], printed: Printed, seconds: float) -> Fork:
        """A worker. version: another one than last time means that the target's code has changed since; own: its ends
        of the two pipes. Raises OSError when the command cannot be started, NotForked."""
        if self._failed:
            raise NotForked(self._failed)
        self.begin()
        assert self._requests is not None
        note = "\n".join(filter(None, (target.source, version)))
        try:
            forked = forking.Forked(self._requests, note.encode(), (*own, printed.write_end))
        except OSError:
            raise NotForked(self._gone(printed)) from None
        end = time.monotonic() + seconds
        try:
            while not forked.pid:
                forked.hear(0.2)
                printed.drain()
                with self._lock:
                    if self._printed is not None:
                        self._printed.drain()
                if time.monotonic() > end:
                    raise NotForked(f"no hello within {seconds:g} s; the worker was killed")
        except BaseException as error:
            forked.close()
            if isinstance(error, EOFError):
                raise NotForked(self._gone(printed)) from None
            raise
        return Fork(forked)

    def _gone(self, printed: Printed) -> str:
        """What became of it. The next fork starts another one, unless this one never got so far as to fork."""
        with self._lock:
            assert self._process is not None and self._printed is not None
            wait_for(self._process, 0.5)
            code = self._process.code()
            ended = "ended as it imported the engine" if code is None else how(code)
            words = printed.last_words(4) or self._printed.last_words(4)  # of a syntax error, its file too
        self._failed = f"the worker {ended}" + (f"; it printed: {words}" if words else "")
        return self._failed

    def close(self) -> None:
        """End it, and what it has forked for itself."""
        with self._lock:
            if self._process is None:
                return
            assert self._requests is not None and self._printed is not None
            self._requests.close()
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            wait_for(self._process, 10.0)
            reaper.forget(self._process.pid)
            self._process.close()
            self._printed.close()
            self._process = None


def command_of(target: Target) -> tuple[tuple[str, ...], dict[str, str]]:
    """How the process that forks is started: without the target's checkout, which each fork names."""
    env = dict(target.env)
    if target.source and "PYTHONPATH" in env:
        path = env["PYTHONPATH"].split(os.pathsep)
        env["PYTHONPATH"] = os.pathsep.join(one for one in path if one != target.source)
    return target.argv, env

"""Processes forked from one that has done its imports: who wants one sends a note and descriptors over a Unix socket.

The first descriptor of a request is where the new process's number is written, and its wait status when it is dead;
the others are the new process's own. A server forks, or hands the request on to a server that it has forked for such
notes. Nothing is answered on the socket itself, so that many may ask at once. A server ends when nobody holds the other
end of its socket; what it has forked lives on.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NoReturn

LARGEST_NOTE = 1 << 16
"""Bytes."""
MOST_DESCRIPTORS = 8

Child = Callable[[bytes, list[int]], None]
"""A forked process's life: (note, descriptors)."""
Route = Callable[[bytes, list[int]], socket.socket | None]
"""The server that a request is handed on to; None: fork here."""


class Forked:
    """A process that was asked for. `status` is readable once there is something to hear of it."""

    def __init__(self, server: socket.socket, note: bytes, descriptors: Sequence[int]) -> None:
        """Ask. The descriptors stay open here as well. Raises OSError when the server is gone."""
        self.status, theirs = os.pipe()
        self._told = b""
        try:
            socket.send_fds(server, [note or b"\0"], [theirs, *descriptors])
        except OSError:
            os.close(self.status)
            raise
        finally:
            os.close(theirs)

    @property
    def pid(self) -> int:
        """0 until it is known; `hear` learns it."""
        return int(struct.unpack_from("<i", self._told)[0]) if len(self._told) >= 4 else 0

    @property
    def code(self) -> int | None:
        """As subprocess says it: an exit status, or the negative number of the signal that ended it. None: it lives, or
        nobody is left to say."""
        if len(self._told) < 8:
            return None
        return os.waitstatus_to_exitcode(struct.unpack_from("<i", self._told, 4)[0])

    def hear(self, seconds: float) -> bool:
        """Wait so long for the next news. False: none came. Raises EOFError when none can come any more."""
        if not select.select([self.status], [], [], seconds)[0]:
            return False
        part = os.read(self.status, 8 - len(self._told)) if len(self._told) < 8 else b""
        if not part:
            raise EOFError("the process that forks is gone")
        self._told += part
        return True

    def close(self) -> None:
        """Hear nothing more of it."""
        os.close(self.status)


def pair() -> tuple[socket.socket, socket.socket]:
    """(who asks, server): a socket that keeps requests apart."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def start(life: Callable[[socket.socket], None], keep: Iterable[int] = ()) -> tuple[int, socket.socket]:
    """Fork a server: (its number, the socket to ask it). `life` serves, and returns when it is done."""
    ours, theirs = pair()
    pid = os.fork()
    if pid == 0:
        alone(lambda: life(theirs), {theirs.fileno(), *keep})
    theirs.close()
    return pid, ours


def serve(
    requests: socket.socket, child: Child, route: Route = lambda note, descriptors: None, keep: Iterable[int] = ()
) -> None:
    """Fork a process for every request that `route` does not send elsewhere, until nobody can ask any more. keep: pipes
    and sockets that every child needs beside its own."""
    kept = set(keep)
    ours: int = requests.fileno()
    alive: dict[int, int] = {}
    with _children_wake() as woken:
        while True:
            ready, _, _ = select.select([ours, woken], [], [])
            if woken in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(woken, 4096)
                _bury(alive)
            if ours not in ready:
                continue
            note, descriptors, _, _ = socket.recv_fds(requests, LARGEST_NOTE, MOST_DESCRIPTORS)
            if not note:
                return
            if (elsewhere := route(note.removeprefix(b"\0"), descriptors)) is not None:
                with contextlib.suppress(OSError):  # who asked hears that nobody is there
                    socket.send_fds(elsewhere, [note], descriptors)
                own = descriptors
            else:
                told, *own = descriptors
                pid = os.fork()
                if pid == 0:
                    os.close(told)
                    alone(partial(child, note.removeprefix(b"\0"), own), {*own, *kept})
                _tell(told, pid)
                alive[pid] = told
            for descriptor in own:
                os.close(descriptor)


def alone(life: Callable[[], None], keep: set[int]) -> NoReturn:
    """A forked process's whole life, without its parent's other pipes and sockets: whoever waits for their end must not
    wait for this process. Files stay: they may be mapped libraries'."""
    code = 1
    try:
        _plain_signals()
        for entry in list(Path("/proc/self/fd").iterdir()):
            with contextlib.suppress(OSError):
                if int(entry.name) not in {0, 1, 2} | keep and str(entry.readlink()).startswith(("pipe:", "socket:")):
                    os.close(int(entry.name))
        life()
        code = 0
    except SystemExit as leaves:
        code = leaves.code if isinstance(leaves.code, int) else int(leaves.code is not None)
        if isinstance(leaves.code, str):
            print(leaves.code, file=sys.stderr)
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def printing(output: int) -> None:
    """Let this process's standard output and error go there."""
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)


def _plain_signals() -> None:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


@contextmanager
def _children_wake() -> Iterator[int]:
    """A descriptor that is readable when a child may have died."""
    read, write = os.pipe()
    for end in (read, write):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    try:
        yield read
    finally:
        _plain_signals()
        os.close(read)
        os.close(write)


def _bury(alive: dict[int, int]) -> None:
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            if (told := alive.pop(pid, None)) is not None:
                _tell(told, status)
                os.close(told)


def _tell(descriptor: int, number: int) -> None:
    with contextlib.suppress(OSError):  # nobody wants to know
        os.write(descriptor, struct.pack("<i", number))

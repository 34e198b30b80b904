"""One worker process and the two pipes to it. Knows bytes, frames and signals; knows nothing of scenarios' results.

Nothing here blocks but `stop`: the pool's selector says when to call `read` and `flush`.
"""

import contextlib
import os
import select
import signal
import struct
import time
from pathlib import Path

import msgspec

from ropecheck.adapters import protocol
from ropecheck.conformance.run.lives import Life, Spawned, how, wait_for
from ropecheck.conformance.run.pipes import CHUNK, larger
from ropecheck.conformance.run.printed import Printed
from ropecheck.conformance.run.reaper import reaper
from ropecheck.conformance.run.warm import Warm
from ropecheck.conformance.targets.registry import Target

_encoder = msgspec.msgpack.Encoder()

CPU_CLOCK = 2
"""With a process's number above it: Linux's clock of that process's processor time (clock_getcpuclockid(3)). It is
asked once for every scenario; /proc takes forty times as long."""


class Process:
    """A started worker. `to_worker` and `from_worker` are the runner's ends of the pipes, both non-blocking.

    Raises OSError when the command cannot be started; with `warm`, which forks it, also NotForked.
    """

    def __init__(
        self,
        target: Target,
        device: str,
        log: Path,
        warm: Warm | None = None,
        version: str = "",
        seconds: float = 180.0,
    ) -> None:
        jobs_read, self.to_worker = os.pipe()
        self.from_worker, answers_write = os.pipe()
        self.printed = Printed(log)
        own = (jobs_read, answers_write)
        self._life: Life
        try:
            if warm is not None:
                self._life = warm.fork(target, version, own, self.printed, seconds)
            else:
                argv = [*target.argv, "--in-fd", str(jobs_read), "--out-fd", str(answers_write), "--device", device]
                self._life = Spawned(argv, reaper.environment(target.env), self.printed.write_end, own)
        except BaseException:
            os.close(self.to_worker)
            os.close(self.from_worker)
            self.printed.close()
            raise
        finally:
            os.close(jobs_read)
            os.close(answers_write)
        self.printed.started()
        for fd in (self.to_worker, self.from_worker):
            os.set_blocking(fd, False)
            larger(fd)
        self.pid = self._life.pid
        reaper.watch(self.pid)
        self.death = self._life.death
        self.ended = False
        """The pipe from the worker is at its end."""
        self._inbox = bytearray()
        self._outbox = bytearray()

    @property
    def cpu_seconds(self) -> float:
        """What the process has used of processors so far; 0.0 where the system does not say."""
        try:
            return time.clock_gettime(~self.pid << 3 | CPU_CLOCK)
        except OSError:
            return 0.0

    @property
    def writing(self) -> bool:
        """Bytes wait for room in the pipe."""
        return bool(self._outbox)

    def send(self, message: protocol.Request) -> None:
        """Queue one frame and write what the pipe takes."""
        body = _encoder.encode(message)
        self._outbox += struct.pack("<I", len(body))
        self._outbox += body
        self.flush()

    def flush(self) -> None:
        """Write as much of the queue as the pipe takes; a broken pipe takes everything."""
        while self._outbox:
            try:
                written = os.write(self.to_worker, self._outbox)
            except BlockingIOError:
                return
            except OSError:
                # Nobody reads any more. Answers written before may still be in the other pipe, whose end will come.
                self._outbox.clear()
                return
            del self._outbox[:written]

    def read(self, all_of_it: bool = False) -> None:
        """Take what the pipe holds, up to one chunk; `all_of_it`: to its end (the process is dead)."""
        while not self.ended:
            try:
                chunk = os.read(self.from_worker, CHUNK)
            except BlockingIOError:
                return
            except OSError:
                chunk = b""
            if not chunk:
                self.ended = True
            self._inbox += chunk
            if not all_of_it:
                return

    def frame(self) -> bytes | None:
        """The next complete frame's body, None when there is none yet.

        Raises protocol.ProtocolError when the bytes cannot be a frame.
        """
        if len(self._inbox) < 4:
            return None
        (length,) = struct.unpack_from("<I", self._inbox)
        if length > protocol.MAX_FRAME:
            raise protocol.ProtocolError(f"not a frame: {bytes(self._inbox[:24])!r}")
        if len(self._inbox) < 4 + length:
            return None
        body = bytes(self._inbox[4 : 4 + length])
        del self._inbox[: 4 + length]
        return body

    def next_frame(self, seconds: float) -> bytes | None:
        """Wait for the next frame; None when the worker ends or stays silent for so long. For one worker alone: the
        pool waits for all of its workers at once."""
        end = time.monotonic() + seconds
        waiting = [fd for fd in (self.from_worker, self.death) if fd >= 0]
        while time.monotonic() < end:
            self.flush()
            ready: list[int] = []
            talks = [] if self.printed.ended else [self.printed.read_end]
            with contextlib.suppress(InterruptedError):
                ready = select.select([*waiting, *talks], [], [], 0.2)[0]
            self.printed.drain()
            self.read(all_of_it=self.death in ready)
            if (body := self.frame()) is not None:
                return body
            if self.ended or self.death in ready:
                return None
        return None

    def how_it_ended(self, patience: float = 1.0) -> str:
        """ "killed by SIGKILL", "exited with status 1", or what else is known; waits up to `patience` seconds."""
        end = time.monotonic() + patience
        while not self._life.over():
            self.printed.drain()
            if time.monotonic() > end:
                break
            time.sleep(0.005)
        code = self._life.code()
        return "closed its pipe" if code is None else how(code)

    def last_words(self, lines: int = 3) -> str:
        """The last lines that this process printed, on one line; "" for none."""
        return self.printed.last_words(lines)

    def ask_to_end(self) -> None:
        """Ask the worker to end by itself, and close the pipe to it."""
        self.send(protocol.Shutdown())
        _close(self.to_worker)
        self.to_worker = -1

    def stop(self, grace: float = 0.0) -> None:
        """End the process and everything in its group, after up to `grace` seconds for it to end by itself."""
        end = time.monotonic() + grace
        while not self._life.over() and time.monotonic() < end:
            with contextlib.suppress(OSError):  # it may be writing a late answer into a full pipe
                os.read(self.from_worker, CHUNK)
            self.printed.drain()
            time.sleep(0.005)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        wait_for(self._life, 10.0)  # a process stuck in a driver outlives SIGKILL
        reaper.forget(self.pid)
        self.printed.close()
        self._life.close()
        for fd in (self.to_worker, self.from_worker):
            if fd >= 0:
                _close(fd)


def _close(fd: int) -> None:
    with contextlib.suppress(OSError):
        os.close(fd)

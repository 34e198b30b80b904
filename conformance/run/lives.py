"""How a worker process came to be: started by its command, or forked from one that has done its imports."""

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from typing import Protocol

from ropecheck.adapters.forking import Forked


class Life(Protocol):
    """A process that runs until `over`."""

    @property
    def pid(self) -> int: ...

    @property
    def death(self) -> int:
        """Readable once the process is dead, whoever else holds its pipes; -1 where the kernel has no such thing."""

    def code(self) -> int | None:
        """Its exit status, or the negative number of a signal; None while it lives."""

    def over(self) -> bool:
        """Whether nothing more will be heard of it."""

    def close(self) -> None:
        """Let go of it."""


class Spawned:
    """A child of this process, started by a command."""

    def __init__(self, argv: Sequence[str], env: dict[str, str], output: int, keep: tuple[int, ...]) -> None:
        """output: where it prints; keep: descriptors that it inherits. Raises OSError."""
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=env,
            pass_fds=keep,
            start_new_session=True,  # its own group: Ctrl-C reaches the runner alone, and kill reaches forks
        )
        self.death = _pidfd(self._process.pid)

    @property
    def pid(self) -> int:
        return self._process.pid

    def code(self) -> int | None:
        return self._process.poll()

    def over(self) -> bool:
        return self.code() is not None

    def close(self) -> None:
        if self.death >= 0:
            os.close(self.death)


class Fork:
    """A child of a process that forks on request; see `warm`."""

    def __init__(self, forked: Forked) -> None:
        self._forked = forked
        self._lost = False
        self.death = forked.status

    @property
    def pid(self) -> int:
        return self._forked.pid

    def code(self) -> int | None:
        try:
            while self._forked.code is None and not self._lost and self._forked.hear(0):
                pass
        except EOFError:
            self._lost = True
        return self._forked.code

    def over(self) -> bool:
        return self.code() is not None or self._lost

    def close(self) -> None:
        self._forked.close()


def wait_for(life: Life, seconds: float) -> None:
    """Until it is over, and not longer."""
    end = time.monotonic() + seconds
    while not life.over() and time.monotonic() < end:
        time.sleep(0.005)


def how(code: int) -> str:
    """ "exited with status 1", "was killed by SIGKILL"."""
    if code >= 0:
        return f"exited with status {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def _pidfd(pid: int) -> int:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return -1

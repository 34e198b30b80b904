"""The process that ends workers whose runner was killed: a runner that dies by SIGKILL cannot do it, and a worker that
hangs in its engine does not see its pipe close.

Run by path, with the standard library alone. Lines come on standard input: `+PID` for a worker's process group that
has started, `-PID` for one that has ended. When the input ends the runner is gone, and what is left is killed.
"""

import contextlib
import os
import signal
import subprocess
import sys


class Reaper:
    """The runner's side."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0

    def watch(self, group: int) -> None:
        """A worker has started."""
        self._say(f"+{group}\n")

    def forget(self, group: int) -> None:
        """It has ended, and its number may be given to another process."""
        self._say(f"-{group}\n")

    def _say(self, line: str) -> None:
        if self._process is None or self._owner != os.getpid():  # a fork has its own workers
            self._owner = os.getpid()
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", __file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            )
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # without it only the net below a killed runner is missing
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()


reaper = Reaper()


def main() -> None:
    groups: set[int] = set()
    for line in sys.stdin.buffer:
        group = int(line[1:])
        if line.startswith(b"+"):
            groups.add(group)
        else:
            groups.discard(group)
    for group in groups:
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()

"""The process that ends workers whose runner was killed: a runner that dies by SIGKILL cannot do it, and a worker that
hangs in its engine does not see its pipe close.

Run by path, with the standard library alone. Lines come on standard input: `+PID` for a worker's process group that
has started, `-PID` for one that has ended. When the input ends the runner is gone: what is left is killed, and the
folder of their temporary files goes, however many an engine has left there.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping


class Reaper:
    """The runner's side."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._scratch = ""
        self._lock = threading.Lock()

    def environment(self, env: Mapping[str, str]) -> dict[str, str]:
        """Of a worker: this process's with `env`, and temporary files in `scratch`."""
        return {**os.environ, "TMPDIR": self.scratch, **env}

    @property
    def scratch(self) -> str:
        """A folder for temporary files that lives as long as the runner. Short, since engines put sockets there."""
        self._begin()
        return self._scratch

    def watch(self, group: int) -> None:
        """A worker has started."""
        self._say(f"+{group}\n")

    def forget(self, group: int) -> None:
        """It has ended, and its number may be given to another process."""
        self._say(f"-{group}\n")

    def _begin(self) -> None:
        if self._owner == os.getpid():
            return
        with self._lock:
            if self._owner == os.getpid():
                return
            self._scratch = tempfile.mkdtemp(prefix="ropecheck-")
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", __file__, self._scratch],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            )
            self._owner = os.getpid()  # a fork has its own workers

    def _say(self, line: str) -> None:
        self._begin()
        assert self._process is not None and self._process.stdin is not None
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
    shutil.rmtree(sys.argv[1], ignore_errors=True)


if __name__ == "__main__":
    main()

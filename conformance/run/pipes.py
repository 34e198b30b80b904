"""Pipes to and from workers."""

import contextlib
from fcntl import fcntl

CHUNK = 1 << 20
"""Bytes of one read."""

_F_SETPIPE_SZ = 1031
_PIPE_BYTES = 1 << 20


def larger(fd: int) -> None:
    """Let the pipe hold more, which only saves system calls."""
    with contextlib.suppress(OSError):
        fcntl(fd, _F_SETPIPE_SZ, _PIPE_BYTES)

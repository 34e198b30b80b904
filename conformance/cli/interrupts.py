"""Ctrl-C while a library that takes it for itself is at work."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

NUMBERS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def at_once() -> Iterator[None]:
    """Within it, Ctrl-C and SIGTERM end the process at once, with one line and exit code 130.

    For work that writes no files. z3 puts a handler of its own in place during its calls, and an exception from
    Python's handler is lost where it meets a __del__; so the signals are kept from both, and a thread waits for them.
    A signal that is ignored, as in a background job of a shell, stays ignored.
    """
    heeded = {number for number in NUMBERS if signal.getsignal(number) is not signal.SIG_IGN}
    if not heeded or not hasattr(signal, "pthread_sigmask"):
        yield
        return
    over, lock = False, threading.Lock()

    def wait() -> None:
        signal.sigwait(heeded)
        with lock:
            if over:
                return
            with suppress(OSError):
                os.write(2, b"ropecheck: interrupted\n")
            os._exit(130)

    before = signal.pthread_sigmask(signal.SIG_BLOCK, heeded)  # a new thread has the mask of the one that starts it
    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    try:
        yield
    finally:
        with lock:
            over = True
            assert thread.ident is not None
            signal.pthread_kill(thread.ident, next(iter(heeded)))  # for the waiting thread alone
        thread.join()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

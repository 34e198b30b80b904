"""Ctrl-C while a library runs in whose callbacks an exception would be lost."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

NUMBERS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def at_once() -> Iterator[None]:
    """Within it, Ctrl-C and SIGTERM end the process at once, with one line and exit code 130.

    For work that writes no files. A KeyboardInterrupt is lost where it meets a __del__, and waits for the end of a call
    into z3; so nothing is raised, and a thread ends the process. A signal that is ignored, as in a background job of a
    shell, stays ignored.
    """
    heeded = [number for number in NUMBERS if signal.getsignal(number) is not signal.SIG_IGN]
    reading, writing = os.pipe()
    os.set_blocking(writing, False)

    def wait() -> None:
        while number := os.read(reading, 1):  # nothing: the other end was closed
            if number[0] in heeded:
                with suppress(OSError):
                    os.write(2, b"ropecheck: interrupted\n")
                os._exit(130)
        os.close(reading)

    threading.Thread(target=wait, daemon=True).start()
    woken = signal.set_wakeup_fd(writing)  # written to as the signal arrives, whatever Python is doing
    before = {number: signal.signal(number, lambda *_: None) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(woken)
        os.close(writing)

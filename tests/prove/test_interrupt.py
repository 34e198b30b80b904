"""Ctrl-C and SIGTERM end `ropecheck prove` at once, whatever z3 is doing."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ropecheck.conformance.cli import app as cli

ROOT = Path(__file__).parents[2]
START = """
import signal, sys
signal.signal(signal.SIGINT, signal.{0})  # not what it is where the tests run in the background
sys.argv = ["ropecheck", "prove", "table.width", "padding.live_columns", "laws.batch_order", "table.index"]
from ropecheck.conformance.cli import main
main()
"""


def begun(handler: str) -> subprocess.Popen[bytes]:
    """A `prove` that has shown its first result, which is there at once; the others take seconds each."""
    process = subprocess.Popen(
        [sys.executable, "-c", START.format(handler)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith(b"proved")
    return process


@pytest.mark.parametrize(
    ("after", "number"),
    [
        (0, signal.SIGINT),
        (0.4, signal.SIGTERM),
        (1.1, signal.SIGINT),
        (2.3, signal.SIGTERM),
    ],
)
def test_one_line_and_exit_130(after: float, number: signal.Signals) -> None:
    process = begun("default_int_handler")
    time.sleep(after)
    process.send_signal(number)
    _, error = process.communicate()
    assert (process.returncode, error) == (130, b"ropecheck: interrupted\n")


def test_an_ignored_signal_stays_ignored() -> None:
    process = begun("SIG_IGN")
    process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1)
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 130
    process.communicate()


def test_the_handlers_are_put_back() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    assert cli.execute(["prove", "table.width"]) == 0
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    woken = signal.set_wakeup_fd(-1)
    assert woken == -1

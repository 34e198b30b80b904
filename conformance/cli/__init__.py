"""The command line: one module per group of verbs."""

import signal
import sys
from types import FrameType


def main() -> None:
    """Entry point of the `ropecheck` script."""
    signal.signal(signal.SIGTERM, _terminated)
    try:
        if sys.argv[1:2] in (["check"], ["run"]):
            from ropecheck.conformance.cli import early

            early.begin(sys.argv[1:])
        from ropecheck.conformance.cli.app import execute  # seconds of imports, in which Ctrl-C must not be a traceback
    except KeyboardInterrupt:
        print("ropecheck: interrupted", file=sys.stderr)
        sys.exit(130)
    sys.exit(execute(sys.argv[1:]))


def _terminated(number: int, frame: FrameType | None) -> None:
    """A CI server's SIGTERM ends a run as Ctrl-C does: workers are stopped and the report is written."""
    raise KeyboardInterrupt

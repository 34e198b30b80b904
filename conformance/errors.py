"""What ends a run early: bad input, and a target that cannot be kept running."""

from __future__ import annotations


class UsageError(Exception):
    """Bad input or configuration; the message is one line that names the file and field. Exit code 2."""


class GaveUp(Exception):
    """No worker can be kept running; the message is one line. Exit code 3."""

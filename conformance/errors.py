"""What ends a run early: bad input, and a target that cannot be kept running."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def meant(name: str, known: Iterable[str]) -> str:
    """ " (did you mean X?)" for the closest known name; "" when none is close."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {close[0]}?)" if close else ""


class UsageError(Exception):
    """Bad input or configuration; the message is one line that names the file and field. Exit code 2."""


class GaveUp(Exception):
    """No worker can be kept running; the message is one line. Exit code 3."""

"""IDLE: a data-parallel rank without requests runs along with the others."""

from __future__ import annotations

from ropecheck.spec.modes.declaration import NOBODY, Tokens, mode, span


@mode(
    "idle",
    reads=NOBODY,
    buffers=("dp",),
    source="public interface: an idle rank computes nothing, and padding may widen it",
)
def idle() -> Tokens:
    """An idle batch has no rows; both tables are there all the same, of width 0, so that padding has rows to widen.

    >>> list(idle.tokens())
    []
    """
    return span(0, 0)

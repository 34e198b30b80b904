"""SPLIT_PREFILL: a prefill whose layers run in several goes; its windows are those of extend."""

from __future__ import annotations

from ropecheck.spec.modes.declaration import PREFILLING, ExtendLen, PrefixLen, Tokens, mode, span


@mode("split_prefill", reads=PREFILLING, source="definition: cutting a prefill by layers cuts no tokens")
def split_prefill(prefix_len: PrefixLen, extend_len: ExtendLen) -> Tokens:
    """A split prefill reads what an extend of the same windows reads.

    >>> list(split_prefill.tokens(prefix_len=4, extend_len=3))
    [4, 5, 6]
    """
    return span(prefix_len, extend_len)

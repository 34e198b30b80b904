"""Context of block drafts (DFLASH, DSPARK): the target's features become the draft's cache entries, token by token.

after a prefill of tokens 3 .. 6:                  3 4 5 6
after a verify at seq_len 9, drafted tokens 4:     9 10 11 12, of which the accepted ones stay
"""

from __future__ import annotations

from ropecheck.spec.modes.declaration import PREFILLING, ExtendLen, PrefixLen, Tokens, mode, span


@mode(
    "draft_context",
    reads=PREFILLING,
    draft=True,
    three_rows=False,
    served=True,
    source="definition: a draft that reads the target's features of a token keys them by that token's own index",
)
def draft_context(prefix_len: PrefixLen, extend_len: ExtendLen) -> Tokens:
    """A block draft keeps the features of the tokens that the target's forward before it has read.

    >>> list(draft_context.tokens(prefix_len=3, extend_len=4))
    [3, 4, 5, 6]
    """
    return span(prefix_len, extend_len)

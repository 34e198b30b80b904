"""EXTEND: a whole prompt, one chunk of a chunked prefill, or the rest after a prefix-cache hit.

A window passes the end of the prompt table only in a session (the history holds replies and text turns) or after a
retraction (the outputs so far are prefilled again).
"""

from __future__ import annotations

from ropecheck.spec.modes.declaration import PREFILLING, ExtendLen, PrefixLen, Tokens, mode, span

BUGS = {
    "table.width": ("sglang #34152", "sglang #20916", "LlamaFactory #10782"),
    "table.index": ("sglang #5349",),
    "table.inside_table": ("sglang #5349", "sglang #1780", "mistral.rs #2301", "vllm #53456"),
    "table.past_table": ("sglang #39144", "sglang #39145", "mlx-node #33"),
    "table.text_only": ("vllm #18456",),
}


@mode(
    "extend",
    reads=PREFILLING,
    buffers=("graph", "dp"),
    copies=(1, 1),
    host_copies=2,
    source="definition: a prefill computes the tokens that the cache does not hold",
    bugs=BUGS,
)
def extend(prefix_len: PrefixLen, extend_len: ExtendLen) -> Tokens:
    """An extend reads extend_len tokens of each request, in order, from its prefix_len on.

    >>> list(extend.tokens(prefix_len=0, extend_len=5))     # a whole prompt of 5
    [0, 1, 2, 3, 4]
    >>> list(extend.tokens(prefix_len=4, extend_len=3))     # a chunk, or what a prefix hit of 4 leaves
    [4, 5, 6]
    """
    return span(prefix_len, extend_len)

"""DRAFT_EXTEND_V2: after a verify the draft model reads the target's tokens, a fixed number per request.

seq_len 9, num_draft_tokens 3:   9 10 11, whatever was accepted
"""

from __future__ import annotations

from typing import Annotated

from ropecheck.spec.modes.declaration import RUNNING, CommittedLen, Tokens, Whole, mode, span
from ropecheck.spec.rules import SPECULATIVE


@mode(
    "draft_extend_v2",
    reads=RUNNING,
    prepared=True,
    draft=True,
    behind_verify=True,
    buffers=("graph", "multi_layer"),
    copies=(0, 1),
    host_copies=2,
    source=SPECULATIVE,
    bugs={
        "table.width": ("sglang #28464", "sglang #34152", "sglang #20916", "sglang #19730"),
        "table.index": ("sglang #19505",),
        "table.past_table": ("sglang #28464", "sglang #34152"),
        "table.text_only": ("sglang #19730",),
    },
)
def draft_extend_v2(seq_len: CommittedLen, num_draft_tokens: Annotated[int, Whole(1, 8)]) -> Tokens:
    """A draft extend reads num_draft_tokens tokens per request, from seq_len on, whatever was accepted.

    seq_len counts committed tokens before the verify's tokens are. The window lies past the prompt table, where a slice
    of that table is empty or short.

    >>> list(draft_extend_v2.tokens(seq_len=9, num_draft_tokens=3))
    [9, 10, 11]
    """
    return span(seq_len, num_draft_tokens)

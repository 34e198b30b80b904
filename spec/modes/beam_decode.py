"""DECODE with beam search: the rows of the requests, then the member rows of their beam groups.

requests of seq_len 9 and 5, the first with 2 more beams:   8 4 | 8 8
"""

from __future__ import annotations

from typing import Annotated

from ropecheck.spec.modes.declaration import RUNNING, SeqLen, Tokens, Whole, composite, mode, repeated
from ropecheck.spec.modes.decode import decode

BEAMS = "definition: the beams of a request are as long as each other, and all of its prompt"


@mode("beam_members", reads=RUNNING, follows=True, source=BEAMS)
def beam_members(seq_len: SeqLen, members: Annotated[int, Whole(1, 3, each=True)]) -> Tokens:
    """A beam group's member rows each read the token that their leader reads, at its index and with its delta.

    >>> list(beam_members.tokens(seq_len=9, members=2))
    [8, 8]
    """
    return repeated(seq_len - 1, members)


BEAM_DECODE = composite(
    "beam_decode",
    decode,
    beam_members,
    source=BEAMS,
    doc="A decode with beams reads the newest token of each request, then that of each leader once per member row.",
)

"""MIXED: prefill windows, then requests that decode, in one extend-shaped forward.

rows         carry                   read
windows      prefix_len, extend_len  as in extend
decodes      seq_len                 as in decode: an extend of one token after seq_len - 1
"""

from __future__ import annotations

from ropecheck.spec.modes.declaration import composite
from ropecheck.spec.modes.decode import decode
from ropecheck.spec.modes.extend import extend

MIXED = composite(
    "mixed",
    extend,
    decode,
    source="definition: a scheduler's batch reads for each request what the request needs",
    doc="A mixed batch reads prefill windows, then the newest token of each decoding request.",
    bugs={"table.width": ("sglang #28464",), "table.past_table": ("mistral.rs #2301",)},
)

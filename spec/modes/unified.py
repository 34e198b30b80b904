"""One batch of everything: prefill chunks, decodes and verifies side by side, as engines with one queue run them."""

from __future__ import annotations

from ropecheck.spec.modes.declaration import composite
from ropecheck.spec.modes.decode import decode
from ropecheck.spec.modes.extend import extend
from ropecheck.spec.modes.ragged_verify import ragged_verify

UNIFIED = composite(
    "unified",
    extend,
    decode,
    ragged_verify,
    source="definition: a scheduler's batch reads for each request what the request needs",
    doc="A unified batch reads prefill windows, then the newest tokens of decoding requests, then drafted nodes.",
)

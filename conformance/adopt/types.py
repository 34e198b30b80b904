"""What an in-process adapter is given and may answer; import these names from `ropecheck.conformance.adopt`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ropecheck.adapters.batch import Batch


class NotOffered(Exception):
    """The engine lacks what is asked for. An adapter raises it, or returns it; str(error) is the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldRequest:
    """One request of a batch, as an engine holds it."""

    table: tuple[tuple[int, ...], ...] | None
    """[axes][tabulated]: the columns up to the end of the last turn that brought media; None for a request of text
    alone. Later tokens are text, at index + delta."""
    delta: int
    """max(table) + 1 - width; 0 without media."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One forward that an adapter is asked for."""

    batch: Batch
    """Its rows: parts, each with requests and the fields that its mode names (`ropecheck explain MODE`)."""
    requests: tuple[HeldRequest, ...] = ()
    """Per row of the batch."""
    step: int = 0
    """Which forward of the mode's loop this is, from 0."""
    padded_tokens: int = 0
    """Above 0: give the tables in a buffer of so many columns. A buffer other than "tier" is asked only of adapters
    with `offers_padding = True`."""
    buffer: str = ""
    """With padded_tokens: "graph" (a buffer that keeps what the batch before left), "dp" (another rank's size), "tier"
    (the packed batch itself is padded), .."""

    @property
    def mode(self) -> str:
        """The forward mode."""
        return self.batch.mode


class Adapter(Protocol):
    """What an engine must bring. An attribute `offers_padding = True` asks for padded batches as well."""

    def forward(self, asked: Asked) -> object:
        """The batch's tables (positions, rows): T ints, and one list of T ints per axis; rows may be None where the
        mode has none (dllm_extend). Lists, numpy arrays and torch tensors do. Raises or returns NotOffered."""

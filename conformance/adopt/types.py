"""What an in-process adapter is given and may answer; import these names from `ropecheck.conformance.adopt`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class NotOffered(Exception):
    """The engine lacks what is asked for. An adapter raises it, or returns it; str(error) is the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request of a batch, as an engine holds it."""

    table: tuple[tuple[int, ...], ...] | None
    """[axes][tabulated]: the columns up to the end of the last turn that brought media; None for a request of text
    alone. Later tokens are text, at index + delta."""
    delta: int
    """max(table) + 1 - width; 0 without media."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One forward. Per-request fields follow the order of `requests`; lengths count tokens."""

    mode: str
    requests: tuple[Request, ...] = ()
    seq_lens: tuple[int, ...] = ()
    """With the new token in decode, prefix + extend in the extend modes, committed tokens only in speculation."""
    prefix_lens: tuple[int, ...] = ()
    extend_lens: tuple[int, ...] = ()
    """extend, split_prefill, mixed: request i reads prefix_lens[i] .. prefix_lens[i] + extend_lens[i] - 1."""
    decoding: int = 0
    """mixed: this many trailing requests decode."""
    topk: int = 1
    step: int = 0
    """draft_decode: which forward of the draft loop this is, from 0."""
    num_draft_tokens: int = 0
    """draft_extend_v2: columns per request."""
    parents: tuple[tuple[int, ...], ...] = ()
    """target_verify: per request, the parent of each node after the root (node 0). ragged_verify: the same, each
    request with a number of nodes of its own, packed."""
    ragged_tokens: int = 0
    """ragged_verify: packed width after padding to a graph tier; 0: none."""
    block_offsets: tuple[int, ...] = ()
    block_size: int = 0
    """dllm_extend."""
    padded_tokens: int = 0
    """Above 0: give the tables in a buffer of so many columns; asked only of adapters with `offers_padding = True`."""
    buffer: str = ""
    """With padded_tokens: "graph" (a buffer that keeps what the batch before left) or "dp" (another rank's size)."""


class Adapter(Protocol):
    """What an engine must bring. An attribute `offers_padding = True` asks for padded batches as well."""

    def forward(self, batch: Batch) -> object:
        """The batch's tables (positions, rows): T ints, and one list of T ints per axis; rows may be None in
        dllm_extend. Lists, numpy arrays and torch tensors will do. Raises or returns NotOffered."""

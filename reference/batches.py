"""One forward, as an engine would see its batch, with the tables that it must produce."""

from __future__ import annotations

from dataclasses import dataclass

from ropecheck.reference.tables import Tables
from ropecheck.reference.timeline import Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What the engine's scheduler or draft worker would hand over. Lengths count tokens; order follows `reqs`."""

    mode: str
    reqs: tuple[int, ...] = ()
    seq_lens: tuple[int, ...] = ()
    """As the mode counts: with the new token in decode and extend, committed tokens only in speculation."""
    prefix_lens: tuple[int, ...] = ()
    extend_lens: tuple[int, ...] = ()
    decoding: int = 0
    positions: tuple[int, ...] = ()
    """The 1-D indices of a speculative forward, where the caller brings them."""
    topk: int = 1
    num_steps: int = 0
    num_draft_tokens: int = 0
    parents: tuple[tuple[int, ...], ...] = ()
    verify_lens: tuple[int, ...] = ()
    ragged_tokens: int = 0
    block_offsets: tuple[int, ...] = ()
    block_size: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Expected:
    """Tables by label: "" the forward, "step 1".. later draft forwards, "padded" a wider buffer."""

    batch: Batch
    tables: dict[str, Tables]
    lines: tuple[Timeline, ...]
    """Each request's columns, in batch order."""
    parent_lines: tuple[Timeline | None, ...]
    """The columns of the session turn that each request continues, if any: what a stale table would show."""
    situations: frozenset[str]
    """What this forward is an example of: "text only", "past the table", "unequal deltas", .."""
    buffer: str = ""
    """Which buffer the "padded" table stands in: "graph", "dp", "frozen_kv", "multi_layer"."""

    @property
    def mode(self) -> str:
        """The mode whose rules govern it; a ragged verify has rules of its own."""
        return "ragged_verify" if self.batch.verify_lens else self.batch.mode

    def mode_of(self, label: str) -> str:
        """Where a wrong table of this label is to be reported: a graph runner that is not the mode's usual one goes
        by its own name, so that its failures are not taken for the other's."""
        return self.buffer if label == "padded" and self.buffer not in ("", "graph", "dp") else self.mode

"""What one forward of a network is given.

| spec field | adapter field | engine field |
| --- | --- | --- |
| both tables | events.Forward.positions, .rows | the model's `positions`, `ForwardBatch.mrope_positions` |
| row order | events.Forward.reqs | `ForwardBatch.rids` |
| engine's counts | events.Forward.seq_lens, .prefix_lens | `ForwardBatch.seq_lens_cpu`, `.extend_prefix_lens_cpu` |
| beams | events.Forward.reqs | `ScheduleBatch.beam_tail` |
| drafted trees | events.Forward.parents | the verify input's `retrieve_next_token`, `.retrieve_next_sibling` |

Nothing is faked here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ropecheck.adapters import events

MODES = {
    "EXTEND": "extend",
    "DECODE": "decode",
    "MIXED": "mixed",
    "IDLE": "idle",
    "TARGET_VERIFY": "target_verify",
    "DRAFT_EXTEND_V2": "draft_extend_v2",
    "DRAFT_EXTEND": "draft_extend",
    "SPLIT_PREFILL": "split_prefill",
    "DLLM_EXTEND": "dllm_extend",
    "PREBUILT": "prebuilt",
}
"""The engine's names of forward modes and the trace's."""

DRAFTS = {
    ("draft_decode", "FROZEN_KV_MTP_DRAFT"): "frozen_kv_draft",
    ("target_verify", "DFLASH_VERIFY"): "draft_block",
}
"""Forwards of drafts that are modes of their own: (mode, kind of the engine's input) -> the trace's mode."""


class HostCopies:
    """Values of tensors as they are now, on their way to the host: nobody waits, later writes do not matter."""

    def __init__(self, **tensors: Any) -> None:
        self._copies: dict[str, Any] = {}
        self._done: Any = None
        for name, tensor in tensors.items():
            if tensor is None:
                continue
            if tensor.device.type == "cpu":
                self._copies[name] = tensor.detach().clone()
                continue
            copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            copy.copy_(tensor.detach(), non_blocking=True)
            self._copies[name] = copy
            if self._done is None:
                self._done = torch.cuda.Event()
        if self._done is not None:
            self._done.record()

    def ready(self) -> bool:
        """Whether the copies are there."""
        return self._done is None or bool(self._done.query())

    def wait(self) -> None:
        """Wait for them."""
        if self._done is not None:
            self._done.synchronize()

    def values(self, name: str) -> Any:
        """A tensor's values as (nested) lists; None for none."""
        copy = self._copies.get(name)
        return None if copy is None else copy.tolist()


@dataclass(slots=True)
class Given:
    """One forward as it was given; an entry of a stream until its answers are known."""

    mode: str
    reqs: tuple[str, ...]
    tokens: tuple[int, ...]
    prefix_lens: tuple[int, ...]
    seq_lens: tuple[int, ...]
    draft: bool
    step: int
    dtypes: tuple[str, str]
    held: HostCopies
    nodes: int = 0
    """Of a drafted tree; 0: none was drafted."""
    answers: tuple[tuple[int, ...], ...] = ()
    settled: bool = False
    """The answers are known, or there will be none."""

    def ready(self) -> bool:
        """Whether the event is complete."""
        return self.settled and self.held.ready()

    def wait(self) -> bool:
        """Wait for the tables; False: the answers are missing."""
        if self.settled:
            self.held.wait()
        return self.settled

    def event(self) -> events.Forward:
        """The trace's event."""
        positions, rows = self.held.values("positions"), self.held.values("rows")
        return events.Forward(
            mode=self.mode,
            reqs=self.reqs,
            tokens=self.tokens,
            positions=None if positions is None else tuple(positions),
            rows=None if rows is None else tuple(map(tuple, rows)),
            answers=self.answers,
            draft=self.draft,
            step=self.step,
            parents=self.parents(),
            seq_lens=self.lengths(),
            prefix_lens=self.prefix_lens,
            dtypes=self.dtypes,
        )

    def lengths(self) -> tuple[int, ...]:
        """The engine's own count of each request's tokens."""
        return self.seq_lens or tuple(self.held.values("seq_lens") or ())

    def parents(self) -> tuple[tuple[int, ...], ...]:
        """Of each request's drafted tree."""
        after, beside = self.held.values("next"), self.held.values("sibling")
        if after is None or beside is None:
            return ()
        trees = Trees(self.nodes, after, beside)
        return tuple(trees.parents(row) for row in range(len(self.reqs)))


def given(
    mode: str, batch: Any, positions: Any, rows: Any, *, running: Any, draft: bool = False, step: int = 0
) -> Given:
    """Read a forward. mode: the trace's name of what the scheduler made. positions, rows: what the network is given;
    copied now. batch: the engine's ForwardBatch. running: the scheduler's running batch, which knows of beams."""
    reqs = tuple(batch.rids)
    tail = getattr(running, "beam_tail", None)
    if tail is not None and mode == "decode" and not draft:
        mode = "beam_decode"
        reqs += tuple(reqs[entry.leader_idx] for entry in tail.entries for _ in range(entry.start, entry.end))
    windows = batch.extend_seq_lens_cpu if batch.forward_mode.is_extend() else None
    tokens = tuple(int(n) for n in windows) if windows else (1,) * len(reqs)
    prefix = tuple(int(n) for n in batch.extend_prefix_lens_cpu) if windows else ()
    tensors = {"positions": positions, "rows": rows}
    lengths: tuple[int, ...] = ()
    if batch.seq_lens_cpu is not None:
        lengths = tuple(batch.seq_lens_cpu.tolist())
    else:
        tensors["seq_lens"] = batch.seq_lens
    nodes = 0
    if draft:
        if mode not in ("extend", "mixed"):
            tokens, prefix = (len(positions) // max(1, len(reqs)),) * len(reqs), ()
        kind = getattr(getattr(getattr(batch, "spec_info", None), "spec_input_type", None), "name", "")
        mode = "draft_decode" if mode == "decode" else mode
        mode = DRAFTS.get((mode, kind), mode)
    elif mode == "target_verify":
        info = batch.spec_info
        nodes = int(info.draft_token_num)
        tokens = (nodes,) * len(reqs)
        if (layout := getattr(info, "ragged_verify_layout", None)) is not None:
            mode, tokens = "ragged_verify", tuple(layout.verify_lens_cpu or layout.verify_lens.tolist())
        if getattr(info, "retrieve_next_token", None) is not None:
            tensors |= {
                "next": info.retrieve_next_token.reshape(len(reqs), nodes),
                "sibling": info.retrieve_next_sibling.reshape(len(reqs), nodes),
            }
    return Given(
        mode=mode,
        reqs=reqs,
        tokens=tokens,
        prefix_lens=prefix,
        seq_lens=lengths,
        draft=draft,
        step=step,
        dtypes=(dtype(positions), dtype(rows)),
        held=HostCopies(**tensors),
        nodes=nodes,
        settled=draft,
    )


class Trees:
    """The drafted trees of a verify batch, as the engine's verify input links them."""

    def __init__(self, nodes: int, after: list[list[int]], beside: list[list[int]]) -> None:
        """after: each node's first child, beside: its next sibling; -1 for none. Lists by request."""
        self.nodes = nodes
        self._next, self._sibling = after, beside

    def children(self, row: int, node: int) -> list[int]:
        """A node's children, in the order in which a verify tries them."""
        found = []
        child = self._next[row][node]
        while child >= 0:
            found.append(child)
            child = self._sibling[row][child]
        return found

    def parents(self, row: int) -> tuple[int, ...]:
        """For each node after the root, its parent; -1 for a filler."""
        parents = [-1] * self.nodes
        for node in range(self.nodes):
            for child in self.children(row, node):
                parents[child] = node
        return tuple(parents[1:])


def dtype(tensor: Any) -> str:
    """A tensor's dtype, "int64"; "" for none."""
    return "" if tensor is None else str(tensor.dtype).removeprefix("torch.")

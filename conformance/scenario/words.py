"""Words to write forwards with: one function per kind of batch that scenarios written by hand are made of."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ropecheck.adapters.batch import Batch, BatchPart
from ropecheck.conformance.scenario.operations import Build
from ropecheck.spec.modes import mode_of

Window = tuple[int, int, int]
"""(req, tokens: 0 for all that is left, prefix hit)."""


def window(req: int, tokens: int = 0, hit: int = 0) -> Window:
    """What one request prefills in one forward."""
    return req, tokens, hit


def part(mode: str, reqs: Iterable[int], batch_mode: str = "", **fields: Any) -> BatchPart:
    """Rows of one mode; fields that hold the least that they can are left out."""
    return BatchPart(reqs=tuple(reqs), fields=fields, mode="" if mode == batch_mode else mode)


def forward(mode: str, reqs: Iterable[int] = (), *, how: dict[str, Any] | None = None, **fields: Any) -> Build:
    """A batch of rows of one mode. how: fields of `Build` that say how the engine builds it."""
    return Build(Batch(mode, (part(mode, reqs, mode, **fields),)), **(how or {}))


def windows_part(mode: str, windows: Iterable[Window], batch_mode: str) -> BatchPart:
    """Rows of a prefilling mode."""
    windows = tuple(windows)
    fields: dict[str, Any] = {}
    if any(tokens for _, tokens, _ in windows):
        fields["extend_len"] = tuple(tokens for _, tokens, _ in windows)
    if any(hit for _, _, hit in windows):
        fields["prefix_len"] = tuple(hit for _, _, hit in windows)
    return part(mode, (req for req, _, _ in windows), batch_mode, **fields)


def extend(windows: Iterable[Window], mode: str = "extend", **how: Any) -> Build:
    """A prefill of these windows."""
    return Build(Batch(mode, (windows_part(mode, windows, mode),)), **how)


def decode(reqs: Iterable[int], **how: Any) -> Build:
    """One token of each request."""
    return forward("decode", reqs, how=how)


def mixed(windows: Iterable[Window], decodes: Iterable[int]) -> Build:
    """Prefill windows, then requests that decode."""
    prefilling, decoding = (row_mode.name for row_mode in mode_of("mixed").parts)
    return Build(Batch("mixed", (windows_part(prefilling, windows, "mixed"), part(decoding, decodes, "mixed"))))


def draft(reqs: Iterable[int], num_steps: int, topk: int = 1, **how: Any) -> Build:
    """The draft model's decode loop."""
    return forward("draft_decode", reqs, num_steps=num_steps, topk=topk, how=how)


def verify(reqs: Iterable[int], parents: Iterable[tuple[int, ...]], topk: int = 1, **how: Any) -> Build:
    """Trees of one size per request."""
    trees = tuple(parents)
    nodes = len(trees[0]) + 1 if trees else 1
    return forward("target_verify", reqs, parents=trees, num_draft_tokens=nodes, topk=topk, how=how)


def ragged_verify(reqs: Iterable[int], parents: Iterable[tuple[int, ...]], tier: int = 0, **how: Any) -> Build:
    """Trees of any size per request, packed; tier: packed width after padding."""
    how |= {"buffer": "tier", "buffer_tokens": tier} if tier else {}
    return forward("ragged_verify", reqs, parents=tuple(parents), how=how)


def draft_extend(reqs: Iterable[int], num_draft_tokens: int, **how: Any) -> Build:
    """The draft model reads the target's tokens after a verify."""
    return forward("draft_extend_v2", reqs, num_draft_tokens=num_draft_tokens, how=how)


def idle(buffer_rows: int = 0) -> Build:
    """A forward without requests; buffer_rows: padded to another data-parallel rank's size."""
    return Build(Batch("idle"), buffer="dp" if buffer_rows else "", buffer_rows=buffer_rows)


def block(reqs: Iterable[int], offsets: Iterable[int], block_size: int) -> Build:
    """A diffusion model's denoise pass."""
    return forward("dllm_extend", reqs, block_offset=tuple(offsets), block_size=block_size)

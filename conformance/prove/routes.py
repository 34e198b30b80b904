"""Requests of any size, and the routes to a token's column: what the statements of laws.py and sessions.py compose."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import ModuleType

from ropecheck.spec.modes.cells import Cell, Place

from ropecheck.conformance.prove.statement import Size, World
from ropecheck.spec.history import prompt_table, text
from ropecheck.spec.modes import (
    decode,
    draft_decode,
    draft_extend_v2,
    extend,
    mixed,
    ragged_verify,
    split_prefill,
    target_verify,
)
from ropecheck.spec.modes.extend import Window

Cells = tuple[Cell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request of any size."""

    name: str
    place: Place
    tokens: Size
    """Tokens of its history so far."""


def request(w: World, name: str = "prompt", kinds: Sequence[str] = ("media", "text")) -> Request:
    """A prompt with media anywhere in it and text after it, or text alone."""
    if w.choose(f"{name} kind", kinds) == "media":
        run, tabulated = w.media(name)
        later = w.size(f"{name}: later text")
        columns = prompt_table(w.family, (run, text(later)))
        return Request(
            name=name, place=Place(columns=columns, tabulated=tabulated, has_media=True), tokens=tabulated + later
        )
    tokens = w.size(f"{name} tokens", 1)
    columns = prompt_table(w.family, (text(tokens),))
    return Request(name=name, place=Place(columns=columns, tabulated=tokens, has_media=False), tokens=tokens)


def window(w: World, one: Request, name: str = "") -> Window:
    """Any window of the request's history."""
    prefix, count = w.size(f"{name}prefix_len"), w.size(f"{name}extend_len", 1)
    w.assume(prefix + count <= one.tokens)
    return Window(place=one.place, prefix_len=prefix, extend_len=count)


def committed(w: World, one: Request, name: str = "") -> Size:
    """Any count of committed tokens that covers the prompt: speculation starts after it."""
    seq_len = w.size(f"{name}seq_len", 1)
    w.assume(seq_len >= one.place.tabulated)
    return seq_len


def decodes(w: World, place: Place, first: Size, count: Size) -> Cells:
    """`count` decodes, the first of which feeds token `first`."""
    cells: Cells = ()
    for step in w.every(count):
        cells = (*cells, *decode.forward([place], [first + step + 1]))
    return cells


def verify(w: World, place: Place, seq_len: Size, nodes: Size) -> Cells:
    """A verify of a chain."""
    return target_verify.forward([place], [seq_len], [w.chain(nodes)])


def of(row: int, cells: Iterable[Cell]) -> Cells:
    """The cells of one row of a batch."""
    return tuple(cell for cell in cells if cell.request == row)


Batch = Callable[[World, Sequence[Request]], Cells]
"""A forward of some requests, each with sizes of its own."""


def _windows(forward: Callable[[Sequence[Window]], Cells]) -> Batch:
    return lambda w, batch: forward([window(w, one, f"{one.name}: ") for one in batch])


def _lengths(w: World, batch: Sequence[Request]) -> tuple[list[Place], list[Size]]:
    return [one.place for one in batch], [committed(w, one, f"{one.name}: ") for one in batch]


def _decode(w: World, batch: Sequence[Request]) -> Cells:
    places, seq_lens = _lengths(w, batch)
    return decode.forward(places, [seq_len + 1 for seq_len in seq_lens])


def _target_verify(w: World, batch: Sequence[Request]) -> Cells:
    chain = w.chain(w.size("num_draft_tokens", 1))
    return target_verify.forward(*_lengths(w, batch), [chain for _ in batch])


def _ragged_verify(w: World, batch: Sequence[Request]) -> Cells:
    return ragged_verify.forward(*_lengths(w, batch), [w.chain(w.size(f"{one.name}: nodes", 1)) for one in batch])


def _draft_decode(w: World, batch: Sequence[Request]) -> Cells:
    return draft_decode.forward(*_lengths(w, batch), w.size("topk", 1), w.size("step"))


def _draft_extend_v2(w: World, batch: Sequence[Request]) -> Cells:
    return draft_extend_v2.forward(*_lengths(w, batch), w.size("num_draft_tokens", 1))


def _mixed_decodes(w: World, batch: Sequence[Request]) -> Cells:
    places, seq_lens = _lengths(w, batch)
    return mixed.forward([], places, [seq_len + 1 for seq_len in seq_lens])


BATCHES: dict[str, tuple[Batch, ModuleType]] = {
    "extend": (_windows(lambda windows: extend.forward(windows)), extend),
    "split_prefill": (_windows(lambda windows: split_prefill.forward(windows)), split_prefill),
    "mixed, windows": (_windows(lambda windows: mixed.forward(windows, [], [])), mixed),
    "mixed, decodes": (_mixed_decodes, mixed),
    "decode": (_decode, decode),
    "draft_decode": (_draft_decode, draft_decode),
    "target_verify": (_target_verify, target_verify),
    "ragged_verify": (_ragged_verify, ragged_verify),
    "draft_extend_v2": (_draft_extend_v2, draft_extend_v2),
}
"""Every mode that builds the three-row table: its batch, and the module whose `forward` that is."""

"""The one structure of a forward's batch: in scenarios, over the pipe, in vectors, and for in-process adapters.

A batch has a mode and parts; each part has rows of one mode (most batches have one part), each row is a request.
`fields` hold what the mode's declaration names (spec/modes/): a number for all rows of the part, or one value per row.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

Value = int | tuple[int | tuple[int, ...], ...]
"""A number, a number per row, or a tree's parents per row."""


class BatchPart(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Rows of one mode. mode: "" where it is the batch's own."""

    reqs: tuple[int, ...] = ()
    fields: dict[str, Value] = {}
    mode: str = ""

    def take(self, rows: Iterable[int]) -> BatchPart:
        """These of its rows, in this order."""
        order = tuple(rows)
        fields = {
            name: tuple(value[row] for row in order) if isinstance(value, tuple) else value
            for name, value in self.fields.items()
        }
        return BatchPart(reqs=tuple(self.reqs[row] for row in order), fields=fields, mode=self.mode)

    def each(self, name: str) -> tuple[Any, ...]:
        """The field's value for every row. Raises KeyError for a field that the batch does not carry."""
        value = self.fields[name]
        return value if isinstance(value, tuple) else (value,) * len(self.reqs)


class Batch(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One forward's rows. In a scenario only chosen fields stand in it; over the pipe all of them."""

    mode: str
    parts: tuple[BatchPart, ...] = (BatchPart(),)

    @property
    def reqs(self) -> tuple[int, ...]:
        """Every row's request, in batch order."""
        return tuple(req for part in self.parts for req in part.reqs)

    def number(self, name: str, default: int = 0) -> int:
        """A field that is one number for the whole batch."""
        for part in self.parts:
            value = part.fields.get(name)
            if isinstance(value, int):
                return value
        return default

    def each(self, name: str) -> tuple[Any, ...]:
        """A field's value for every row, over all parts; () where no part carries it."""
        return tuple(value for part in self.parts if name in part.fields for value in part.each(name))

    def part(self, mode: str) -> BatchPart:
        """The rows of that mode; an empty part where there are none."""
        for part in self.parts:
            if (part.mode or self.mode) == mode:
                return part
        return BatchPart(mode=mode)

    @property
    def seq_lens(self) -> tuple[int, ...]:
        """Per row the length that an engine's batch carries: seq_len as the row's mode counts it; at a window's end its
        prefix and what is computed now."""
        return tuple(n for part in self.parts for n in _lengths(part))

    @property
    def windows(self) -> tuple[tuple[int, int], ...]:
        """Per row (prefix_len, extend_len) as an extend-shaped batch carries them: a decoding row is an extend of one
        token behind all others of its request."""
        out: list[tuple[int, int]] = []
        for part in self.parts:
            if "extend_len" in part.fields:
                out += zip(part.each("prefix_len"), part.each("extend_len"), strict=True)
            elif "block_size" in part.fields:
                out += zip(part.each("block_offset"), part.each("block_size"), strict=True)
            else:
                out += [(seq_len - 1, 1) for seq_len in part.each("seq_len")]
        return tuple(out)


def _lengths(part: BatchPart) -> tuple[int, ...]:
    if "seq_len" in part.fields:
        return part.each("seq_len")
    if "extend_len" in part.fields:
        return tuple(map(sum, zip(part.each("prefix_len"), part.each("extend_len"), strict=True)))
    if "block_offset" in part.fields:
        return tuple(map(sum, zip(part.each("block_offset"), part.each("block_size"), strict=True)))
    return (0,) * len(part.reqs)

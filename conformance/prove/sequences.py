"""Sequences of unknown length, in blocks. Iterating one yields one arbitrary element per block, which stands for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

import z3

from ropecheck.conformance.prove import loops
from ropecheck.conformance.prove.explorer import Unanswered
from ropecheck.conformance.prove.numbers import Number, explorer, term_of
from ropecheck.conformance.prove.path import Term


class Block:
    """`length` elements, each by its index; or, where the path depends on which element it is, one of them."""

    def __init__(self, length: Any, at: Callable[[Any], Any] | None, one: Any = None) -> None:
        self.length = length
        self._at = at
        self._one = one

    def at(self, index: Any) -> Any:
        if self._at is None:
            raise Unanswered("another element of a loop whose path depends on the element")
        return self._at(index)

    def part(self, first: Any, length: Any) -> Block:
        """`length` elements from `first` on."""
        return Block(length, lambda i: self.at(i + first))

    def numbered(self, first: Any) -> Block:
        """(number, element), the numbers from `first` on."""
        return Block(self.length, lambda i: (i + first, self.at(i)))

    def arbitrary(self) -> tuple[Any, Term]:
        """An arbitrary element, and its index; None for an index that is not arbitrary."""
        if self._at is None:
            return self._one, None
        if isinstance(self.length, int) and self.length == 1:
            return self._at(0), None
        index = explorer().arbitrary(term_of(self.length))
        element = self._at(Number(index))
        explorer().path.origins[id(element)] = (element, self, index)
        return element, index


class Seq:
    """Blocks, one after the other."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        self.blocks = list(blocks)

    def length(self) -> Any:
        total: Any = 0
        for block in self.blocks:
            if block.length is None:
                raise Unanswered("the length of a part of a loop")
            total = total + block.length
        return total

    def __bool__(self) -> bool:
        return bool(self.length() > 0)

    def __iter__(self) -> Iterator[Any]:
        return self._elements(loops.check_caller())

    def _elements(self, loop: FrameType | None) -> Iterator[Any]:
        for block in list(self.blocks):
            if block.length is None or block.length > 0:
                element, index = block.arbitrary()
                lists = _lists(loop)
                yield element
                for values, before in lists:
                    _filled(values[before:], block.length, index)

    def __contains__(self, value: object) -> bool:
        raise Unanswered("a search through a sequence of unknown length")

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self._slice(index)
        if index < 0:
            index = self.length() + index
        for block in self.blocks:
            if block.length is None:
                block.at(index)
            if index < block.length:
                return block.at(index)
            index = index - block.length
        raise IndexError(f"index {index} is past the end")

    def _slice(self, part: slice) -> Seq:
        if part.step is not None or (part.start is not None and part.start < 0):
            raise Unanswered("a slice with a step or from the end")
        skip: Any = 0 if part.start is None else part.start
        left: Any = None if part.stop is None else part.stop - skip
        out = []
        for block in self.blocks:
            if skip >= block.length:
                skip = skip - block.length
                continue
            length = block.length - skip
            if left is not None and left < length:
                length = left
            if length > 0:
                out.append(block.part(skip, length))
            left = None if left is None else left - length
            skip = 0
        return Seq(out)

    def append(self, value: Any) -> None:
        self.blocks.append(Block(1, lambda i: value))

    def extend(self, values: Any) -> None:
        self.blocks += blocks_of(values)

    def __add__(self, other: Any) -> Seq:
        return Seq([*self.blocks, *blocks_of(other)])

    def __radd__(self, other: Any) -> Seq:
        return Seq([*blocks_of(other), *self.blocks])


def _lists(loop: FrameType | None) -> list[tuple[list[Any], int]]:
    """The lists that a loop may fill, and how long they are."""
    values = loop.f_locals.values() if loop is not None else ()
    return [(value, len(value)) for value in values if type(value) is list]


def _filled(added: list[Any], count: Any, index: Term) -> None:
    """What one round added stands for what all rounds add: a block, where it is one element and of no inner loop."""
    origins = explorer().path.origins
    if index is None and isinstance(count, int):
        return  # there is only one round
    for value in added:
        inner = id(value) in origins and (index is None or not index.eq(origins[id(value)][2]))
        whole = len(added) == 1 and index is not None and not inner
        origins[id(value)] = (value, _rounds(value, index, count) if whole else Block(None, None, value), index)


def _rounds(value: Any, index: Term, count: Any) -> Block:
    return Block(count, lambda i: replaced(value, index, term_of(i)))


def up_to(count: Any, first: Any = 0) -> Seq:
    """The numbers first .. first + count - 1."""
    return Seq([Block(count, lambda i: i + first)])


def repeated(values: Sequence[Any], count: Number) -> Any:
    """(value,) * count."""
    if len(values) != 1:
        raise Unanswered("a repetition of several elements")
    return Seq([Block(count if count > 0 else 0, lambda i: values[0])])


def blocks_of(values: Any) -> list[Block]:
    """A sequence of either kind as blocks. An arbitrary element among plain ones stands for its block."""
    if isinstance(values, Seq):
        return list(values.blocks)
    return [_block(value) for value in values]


def gathered(values: Any = ()) -> Any:
    """tuple(values): plain where nothing in it stands for a block."""
    if isinstance(values, Seq):
        return Seq(values.blocks)
    plain = list(values)
    if all(id(value) not in explorer().path.origins and not _arbitrary_in(value) for value in plain):
        return tuple(plain)
    return Seq(blocks_of(plain))


def _block(value: Any) -> Block:
    found = explorer().path.origins.get(id(value))
    indices = _arbitrary_in(value)
    own = [index for index, _ in indices] + ([found[2]] if found and found[2] is not None else [])
    dependent = any(index.get_id() in explorer().path.split for index in own)
    if found and not dependent:
        block: Block = found[1]
        return block
    if not own:
        return Block(1, lambda i: value)
    if dependent or len(indices) > 1:
        return Block(None, None, value)
    ((index, count),) = indices
    return _rounds(value, index, Number(count))


def _arbitrary_in(value: Any) -> list[tuple[Term, Term]]:
    found: dict[int, tuple[Term, Term]] = {}
    for number in numbers_in(value):
        for index, count in explorer().arbitrary_in(number.term):
            found[index.get_id()] = (index, count)
    return list(found.values())


def numbers_in(value: Any) -> Iterator[Number]:
    """Every Number in a value made of tuples and dataclasses."""
    if isinstance(value, Number):
        yield value
    elif isinstance(value, tuple):
        for part in value:
            yield from numbers_in(part)
    elif dataclasses.is_dataclass(value):
        for part in dataclasses.fields(value):
            yield from numbers_in(getattr(value, part.name))


def replaced(value: Any, index: Term, other: Term) -> Any:
    """The value with another index in it."""
    if isinstance(value, Number):
        return Number(z3.substitute(value.term, (index, other)))
    if isinstance(value, tuple):
        return tuple(replaced(part, index, other) for part in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = {part.name: replaced(getattr(value, part.name), index, other) for part in dataclasses.fields(value)}
        return dataclasses.replace(value, **parts)
    return value

"""Sequences of any length.

A sequence is a few blocks; a block is so many elements, given by their number. A loop over a block gets one element
that stands for all of them (its number is a constant whose name begins with EACH); `collected` takes it as the block
that it stands for. Where nobody does, or what happens depends on which element it is, nothing is proved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import z3

from ropecheck.conformance.prove.errors import Unanswered
from ropecheck.conformance.prove.explorer import EACH, Int, Truth, now, term_of


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ElementBlock:
    """`count` elements; element i is at(i), i a z3 term."""

    count: Any
    at: Callable[[Any], Any]


@dataclass(frozen=True, slots=True, eq=False)
class EachElement:
    """An element that stands for all of `count`."""

    term: Any
    count: Any


class Element(tuple[Any, ...]):
    """A table's column that stands for all columns of a block."""

    each: EachElement


class Seq:
    """Blocks, one after the other."""

    def __init__(self, *blocks: ElementBlock) -> None:
        self.blocks = blocks

    __hash__ = object.__hash__

    def __str__(self) -> str:
        return "[" + ", ".join(f"{block.at(z3.Int('i'))} for i < {block.count}" for block in self.blocks) + "]"

    def length(self) -> Any:
        """How many elements."""
        return sum((Int(term_of(block.count)) for block in self.blocks), Int(z3.IntVal(0)))

    def __bool__(self) -> bool:
        return bool(self.length() > 0)

    def at(self, index: Any) -> Any:
        """Element `index`, a z3 term that is inside."""
        found: Any = None
        start = self.length()
        for block in reversed(self.blocks):
            start = start - block.count
            here = block.at(z3.simplify(index - term_of(start)))
            found = here if found is None else chosen(index < term_of(start + block.count), here, found)
        return found

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return self._slice(key)
        index = key if isinstance(key, Int) else Int(z3.IntVal(key))
        if index < 0:
            index = index + self.length()
        if not 0 <= index < self.length():
            raise IndexError(f"{key} of {self.length()}")
        return self.at(index.term)

    def _slice(self, key: slice) -> Seq:
        start, stop = 0 if key.start is None else key.start, self.length() if key.stop is None else key.stop
        if key.step is not None or start < 0 or stop < 0:
            raise Unanswered(f"a slice from {start} to {stop} by {key.step}")
        out, before = [], Int(z3.IntVal(0))
        for block in self.blocks:
            first = largest(largest(start - before, 0), 0)
            end = smallest(stop - before, block.count)
            out.append(ElementBlock(count=largest(end - first, 0), at=_moved(block, first)))
            before = before + block.count
        return Seq(*out)

    def __add__(self, other: Any) -> Any:
        if isinstance(other, Seq | tuple | list):
            return Seq(*self.blocks, *sequence(other).blocks)
        return NotImplemented

    def __radd__(self, other: Any) -> Any:
        return Seq(*sequence(other).blocks, *self.blocks) if isinstance(other, tuple | list) else NotImplemented

    def __iter__(self) -> Iterator[Any]:
        for block in self.blocks:
            if isinstance(block.count, int):
                yield from (block.at(z3.IntVal(i)) for i in range(block.count))
            else:
                each = EachElement(now().fresh(EACH), block.count)
                value = block.at(each.term)
                if isinstance(value, tuple):
                    value = Element(value)
                    value.each = each
                now().owed.append(each)
                yield value

    def __eq__(self, other: object) -> Any:
        return Truth(same(self, other)) if isinstance(other, Seq | tuple | list) else NotImplemented

    def __ne__(self, other: object) -> Any:
        return Truth(z3.Not(same(self, other))) if isinstance(other, Seq | tuple | list) else NotImplemented

    def row(self, axis: int) -> Seq:
        """One row of a table."""
        return Seq(*(ElementBlock(count=block.count, at=_axis(block, axis)) for block in self.blocks))


def _moved(block: ElementBlock, by: Any) -> Callable[[Any], Any]:
    return lambda i: block.at(z3.simplify(i + term_of(by)))


def _axis(block: ElementBlock, axis: int) -> Callable[[Any], Any]:
    return lambda i: block.at(i)[axis]


class Parents:
    """Parents of a drafted tree's nodes 1 .. : a chain, where node k's is k - 1, or any tree, known by a number."""

    def __init__(self, nodes: Any, tree: Any) -> None:
        self.nodes = nodes
        self.tree = Int(z3.IntVal(-1)) if tree is None else tree
        self.chain = tree is None

    def length(self) -> Any:
        """How many."""
        return self.nodes

    def of(self, node: Any) -> Any:
        """The parent of a node."""
        if self.chain:
            return node - 1
        parent = z3.Function("parent", z3.IntSort(), z3.IntSort(), z3.IntSort())(term_of(self.tree), term_of(node))
        now().fact(z3.Implies(term_of(node) >= 1, z3.And(parent >= 0, parent < term_of(node))))
        return Int(parent)


def chosen(condition: Any, left: Any, right: Any) -> Any:
    """`left` where the condition holds, else `right`; columns entry by entry."""
    if isinstance(left, tuple):
        return tuple(chosen(condition, one, other) for one, other in zip(left, right, strict=True))
    return Int(z3.If(condition, term_of(left), term_of(right)))


def largest(left: Any, right: Any) -> Any:
    """The larger number."""
    return Int(z3.If(term_of(left) >= term_of(right), term_of(left), term_of(right)))


def smallest(left: Any, right: Any) -> Any:
    """The smaller number."""
    return Int(z3.If(term_of(left) <= term_of(right), term_of(left), term_of(right)))


def same(left: Any, right: Any) -> Any:
    """The formula that two values are equal."""
    if isinstance(left, Seq) or isinstance(right, Seq):
        one, other = sequence(left), sequence(right)
        count, i = term_of(one.length()), z3.Int("i")
        equal = count == term_of(other.length())
        if not one.blocks or not other.blocks:
            return equal
        inside = z3.And(i >= 0, i < count)
        return z3.And(equal, z3.ForAll([i], z3.Implies(inside, same(one.at(i), other.at(i)))))
    if isinstance(left, tuple | list) and isinstance(right, tuple | list):
        if len(left) != len(right):
            return z3.BoolVal(False)
        return z3.And(*(same(one, other) for one, other in zip(left, right, strict=True)))
    if isinstance(left, Parents) and isinstance(right, Parents):
        return z3.And(term_of(left.nodes) == term_of(right.nodes), term_of(left.tree) == term_of(right.tree))
    if isinstance(left, Int | int) and isinstance(right, Int | int):
        return term_of(left) == term_of(right)
    return z3.BoolVal(left == right)


def collected(items: Iterable[Any]) -> list[tuple[Any, EachElement | None]]:
    """The items, each with the element that it stands for; these are no longer owed."""
    owed, out = now().owed, []
    before = len(owed)
    for item in items:
        opened = owed[before:]
        if isinstance(item, Element) and item.each in owed and not opened:
            opened = [item.each]
        if len(opened) > 1:
            raise Unanswered("loops over sizes inside each other")
        each = opened[0] if opened else None
        if each is not None:
            owed.remove(each)
        if _kept(item, each):
            raise Unanswered(f"an element that stands for all is kept for one: {item}")
        out.append((item, each))
    if len(owed) > before:
        raise Unanswered("a loop over a size that leaves elements out")
    return out


def _kept(item: Any, each: EachElement | None) -> bool:
    """Whether an item speaks of an element that somebody else has collected."""
    if isinstance(item, tuple):
        return any(_kept(part, each) for part in item)
    if not isinstance(item, Int):
        return False
    alive = [(one.term, z3.IntVal(0)) for one in (*now().owed, *([each] if each else []))]
    return now().depends(z3.substitute(item.term, *alive) if alive else item.term)


def element(item: Any, each: EachElement, index: Any) -> Any:
    if isinstance(item, tuple):
        return tuple(element(part, each, index) for part in item)
    return Int(z3.substitute(item.term, (each.term, index))) if isinstance(item, Int) else item


def block_of(item: Any, each: EachElement | None) -> ElementBlock:
    if each is None:
        return ElementBlock(count=1, at=lambda i: item)
    return ElementBlock(count=each.count, at=lambda i: element(item, each, i))


def sequence(values: Iterable[Any]) -> Seq:
    """The sequence of some values."""
    return values if isinstance(values, Seq) else Seq(*(block_of(*one) for one in collected(values)))

"""The world of all sizes at once."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any

import z3

from ropecheck.conformance.prove.explorer import Explorer, Int, Truth, term_of
from ropecheck.conformance.prove.sequences import ElementBlock, Parents, Seq, same, sequence
from ropecheck.conformance.prove.stand_ins import len_
from ropecheck.conformance.prove.statement import Broken, ReadPart, Route, World
from ropecheck.spec.history import Column, History, Run

ANY = z3.IntSort()


class Terms(World):
    """A World of numbers that stand for all. See statement.World for what each method means."""

    def __init__(self, explorer: Explorer, axes: int) -> None:
        super().__init__(axes)
        self.explorer = explorer

    def size(self, name: str, least: int | None = 0) -> Int:
        term = z3.Int(name)
        if name not in self.explorer.sizes:
            self.explorer.sizes[name] = term
            if least is not None:
                self.explorer.fact(term >= least)
        return Int(term)

    @property
    def names(self) -> Container[str]:
        return self.explorer.sizes

    def choose(self, name: str, options: Sequence[Any]) -> Any:
        if name not in self.explorer.choices:
            self.explorer.pick(name, len(options))
        return options[self.explorer.choices[name]]

    def assume(self, condition: Any) -> None:
        self.explorer.assume(condition)

    def same(self, what: str, left: Any, right: Any) -> None:
        reason = self.explorer.proves(same(left, right))
        if reason:
            raise Broken(f"{what} ({reason})", left, right)

    def equal(self, left: Any, right: Any) -> Any:
        return Truth(same(left, right))

    def columns(self, media: str, count: Any, start: Any) -> Seq:
        moves = self.moving[media]
        rows = [z3.Function(f"{media} row {axis}", *(ANY,) * (2 if moves else 3)) for axis in range(self.axes)]
        at, i = term_of(start), z3.Int("i")

        def entry(row: Any, index: Any) -> Any:
            return row(index) if moves else row(at, index)

        for row in rows:
            self.explorer.fact(z3.ForAll([i], entry(row, i) >= 0))
        if moves:
            return Seq(ElementBlock(count=count, at=lambda index: tuple(Int(entry(row, index) + at) for row in rows)))
        return Seq(ElementBlock(count=count, at=lambda index: tuple(Int(entry(row, index)) for row in rows)))

    def ids(self, name: str, count: Any) -> Seq:
        token = z3.Function(name, ANY, ANY)
        return Seq(ElementBlock(count=count, at=lambda i: Int(token(i))))

    def tree(self, name: str, drafted: Any, chain: bool = False) -> Parents:
        return Parents(drafted, None if chain else self.size(name))

    def parent(self, parents: Any, node: Any) -> Any:
        return parents.of(node)

    def each(self, name: str, rows: Any, least: int, tree: bool) -> Each:
        value, nodes = z3.Function(name, ANY, ANY), z3.Function("drafted nodes", ANY, ANY)

        def at(row: Any) -> Any:
            found = value(term_of(row))
            self.explorer.fact(found >= least)
            if not tree:
                return Int(found)
            self.explorer.fact(nodes(found) >= 0)
            return Parents(Int(nodes(found)), Int(found))

        return Each(at, rows)

    def count(self, values: Any) -> Any:
        return len_(values)

    def at(self, values: Any, index: Any) -> Any:
        return sequence(values).at(term_of(index))

    def read(self, history: History) -> Runs:
        return Runs(history)

    def rows(self, table: Any) -> tuple[Seq, ...]:
        return tuple(sequence(table).row(axis) for axis in range(self.axes))

    def reading(self, route: Route) -> TermReading:
        return TermReading(route)


class Each:
    """A value per row."""

    def __init__(self, at: Callable[[Any], Any], rows: Any) -> None:
        self.at = at
        self.count = rows

    def __getitem__(self, row: Any) -> Any:
        if not 0 <= row < self.count:
            raise IndexError(f"row {row} of {self.count}")
        return self.at(row)


class TermReading:
    """All that a route reads, whose tokens rise one by one: a token that is read as the k-th has the k-th index."""

    def __init__(self, route: Route) -> None:
        self.route = route

    def _reads(self, part: ReadPart, index: Any) -> bool:
        k = index - part.token(0)
        return bool(k >= 0) and bool(k < part.count) and bool(part.token(k) == index)

    def __contains__(self, index: Any) -> bool:
        return any(self._reads(part, index) for part in self.route)

    def __getitem__(self, index: Any) -> Column:
        for part in self.route:
            if self._reads(part, index):
                return part.place.column(index)
        raise KeyError(index)


class Runs:
    """A history that can be read run after run, and in no other way: a run with any columns stands for many."""

    def __init__(self, history: History) -> None:
        self.history = history

    def __iter__(self) -> Iterator[Run]:
        return iter(self.history)

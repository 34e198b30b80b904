"""The world of all sizes at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import z3
from ropecheck.spec.modes.cells import Cell

from ropecheck.conformance.prove import loops, rows
from ropecheck.conformance.prove.builtins import in_the_specification
from ropecheck.conformance.prove.explorer import Explorer, Unanswered
from ropecheck.conformance.prove.numbers import Number, Truth, enter, leave, term_of
from ropecheck.conformance.prove.path import Placed, Term, contents, simplify
from ropecheck.conformance.prove.sequences import Block, Seq, blocks_of, up_to
from ropecheck.conformance.prove.statement import Broken, Difference
from ropecheck.spec.history import Family, Run
from ropecheck.spec.modes import target_verify


class AnyFamily:
    """A family of `axes` rows whose media runs have any columns."""

    name = "any family"

    def __init__(self, explorer: Explorer, axes: int) -> None:
        self.explorer = explorer
        self.axes = axes
        self.moving: dict[str, bool] = {}

    def token_count(self, run: Run) -> Any:
        return Number(self.explorer.path.sizes[f"{run.kind} tokens"])

    def media_columns(self, run: Run, start: Any) -> Any:
        at, moves = term_of(start), self.moving[run.kind]
        places = (z3.IntSort(),) * (1 if moves else 2)
        rows = [z3.Function(f"{run.kind} row {axis}", *places, z3.IntSort()) for axis in range(self.axes)]

        def column(index: Term) -> tuple[Term, ...]:
            return tuple(row(index) + at if moves else row(at, index) for row in rows)

        count = self.token_count(run)
        self.explorer.path.placed.append(Placed(run.kind, at, count.term, column))
        return Seq([Block(count, lambda i: tuple(Number(part) for part in column(term_of(i))))])


class Anywhere:
    """A World of numbers that stand for all. See statement.World for what each method means."""

    def __init__(self, explorer: Explorer, axes: int, ended: Callable[[Exception | None], None]) -> None:
        self.explorer = explorer
        self.ended = ended
        self._family = AnyFamily(explorer, axes)
        self.asked: set[Any] = set()
        self.answered: set[Any] = set()
        """Questions that some path came to, and those that a path went through: the same, or a proof is empty."""
        self._questions = 0

    @property
    def family(self) -> Family:
        return self._family

    def begin(self) -> None:
        """A new path."""
        self._questions = 0

    def size(self, name: str, least: int = 0) -> Number:
        term = z3.Int(name)
        if name not in self.explorer.path.sizes:
            self.explorer.path.sizes[name] = term
            self.explorer.fact(term >= least)
        return Number(term)

    def choose(self, name: str, options: Sequence[Any]) -> Any:
        taken = self.explorer.path.choices[name] = self.explorer.pick(len(options))
        return options[taken]

    def among(self, name: str, options: Sequence[Any], statement: Callable[[Any], None]) -> None:
        for taken, option in enumerate(options):

            def one(taken: int = taken, option: Any = option) -> None:
                self.explorer.path.choices[name] = taken
                statement(option)

            self.explorer.paths(one, self.ended)

    def assume(self, condition: Any) -> None:
        self.explorer.assume(condition.term if isinstance(condition, Truth) else z3.BoolVal(bool(condition)))

    def media(self, name: str, moves: bool = False) -> tuple[Run, Number]:
        self._family.moving[name] = moves
        return Run(kind=name), self.size(f"{name} tokens", 1)

    def every(self, count: Any) -> Iterable[Any]:
        return up_to(count if count > 0 else 0)

    def at(self, values: Any, index: Any) -> Any:
        return Seq(blocks_of(values))[index]

    def count(self, values: Any) -> Any:
        return Seq(blocks_of(values)).length()

    def pairs(self, make: Callable[[Any], Any], one: Any, other: Any) -> Iterable[tuple[Any, Any]]:
        return zip(*self._both(lambda: make(one), lambda: make(other)), strict=True)

    def alike(self, law: Callable[..., bool], left: Callable[[], Any], right: Callable[[], Any]) -> None:
        for cell, other in zip(*self._both(left, right), strict=True):
            self._show(partial(self._law, law, cell, other))
            self._show(partial(self._law, law, other, cell))

    def _law(self, law: Callable[..., bool], cell: Cell, other: Cell | list[Cell]) -> bool:
        """The law between one token and the other route: its cell at the same arbitrary elements, or all that it reads
        where their loops are not the same."""
        if isinstance(other, Cell):
            mine, theirs = (self.explorer.arbitrary_in(term_of(one.index)) for one in (cell, other))
            return law({cell.index: cell.column}, One(other) if mine == theirs else Reading(self.explorer, [other]))
        return law({cell.index: cell.column}, Reading(self.explorer, other))

    def _both(self, left: Callable[[], Any], right: Callable[[], Any]) -> tuple[list[Any], list[Any]]:
        """The elements of two sequences, each arbitrary one beside that of the same place."""
        since = len(self.explorer.path.generics)
        first = list(left())
        with self.explorer.same_elements(since):
            second = list(right())
        self.same("elements", len(first), len(second))
        return first, second

    def chain(self, nodes: Any) -> Any:
        return up_to(nodes - 1 if nodes > 1 else 0)

    def depth_in_chain(self, node: Any) -> Any:
        after = loops.step_of(target_verify.depths)(out=up_to(node), node=node, parent=node - 1)
        return after["out"][node]

    def depth_in_tree(self, node: Any, parent: Any) -> Any:
        depth = z3.Function("depth", z3.IntSort(), z3.IntSort())
        before = Seq([Block(node, lambda i: Number(depth(term_of(i))))])
        after = loops.step_of(target_verify.depths)(out=before, node=node, parent=parent)
        return after["out"][node], before[parent]

    def no_carry(self, *functions: Callable[..., Any]) -> None:
        for function in functions:
            loops.check_all(function)

    def rows_apart(self, *functions: Callable[..., Any]) -> None:
        for function in functions:
            rows.check(function)

    def iterated(self, parameter: str, *functions: Callable[..., Any]) -> None:
        for function in functions:
            rows.check_iterated(function, parameter)

    def agree(self, law: Callable[..., bool], left: Iterable[Cell], right: Iterable[Cell]) -> None:
        mine, others = list(left), list(right)
        for cell in mine:
            self._show(partial(self._law, law, cell, others))

    def holds(self, law: Callable[..., bool], cells: Iterable[Cell]) -> None:
        for cell in cells:
            self._show(partial(law, {cell.index: cell.column}))

    def same(self, what: str, left: Any, right: Any) -> None:
        self._show(lambda: left == right)

    def _show(self, true: Callable[[], Any]) -> None:
        """Asks on all paths from here, and forgets them: what a question supposes of an arbitrary element must not
        narrow the next one."""
        question = (*self.explorer.path.choices.items(), self._questions)
        self._questions += 1
        self.asked.add(question)

        def ask() -> None:
            if not true():
                raise Broken(Difference(what="a path", left="", right=""))
            self.answered.add(question)

        self.explorer.paths(ask, self.ended)


class One:
    """Token index -> column, of one cell."""

    def __init__(self, cell: Cell) -> None:
        self.cell = cell

    def __contains__(self, index: Any) -> bool:
        return bool(index == self.cell.index)

    def __getitem__(self, index: Any) -> Any:
        return self.cell.column


class Reading:
    """Token index -> column, as forwards read them: a mapping whose cells stand for all of their loops."""

    def __init__(self, explorer: Explorer, cells: Sequence[Cell]) -> None:
        self.explorer = explorer
        self.cells = cells
        self._found: Any = None

    def __contains__(self, index: Any) -> bool:
        """Forks: each cell that may be the token's, and no cell at all."""
        wanted = term_of(index)
        taken = self.explorer.pick(len(self.cells) + 1)
        if taken == len(self.cells):
            for cell in self.cells:
                self.explorer.assume(z3.Not(self._reads(cell, wanted)))
            return False
        self.explorer.assume(self._reads(self.cells[taken], wanted))
        self.explorer.assume(term_of(self.cells[taken].index) == wanted)
        self._found = self.cells[taken].column
        return True

    def __getitem__(self, index: Any) -> Any:
        return self._found

    def _reads(self, cell: Cell, wanted: Term) -> Term:
        """Whether one of the cells that `cell` stands for has the wanted index."""
        mine = term_of(cell.index)
        inside = self.explorer.arbitrary_in(mine)
        if not inside:
            return mine == wanted
        bounds = []
        names = [index for index, _ in inside]
        for index, count in inside:
            other = z3.Int(self.explorer.name("other"))
            mine = z3.substitute(mine, (index, other))
            bounds += [other >= 0, other < count]
            names[names.index(index)] = other
        if len(names) == 1:  # index = first + k, nearly always: no quantifier is needed
            first = simplify(mine - names[0])
            if names[0].get_id() not in contents(first).open:
                return z3.substitute(z3.And(*bounds), (names[0], simplify(wanted - first)))
        return z3.Exists(names, z3.And(mine == wanted, *bounds))


@contextmanager
def running(explorer: Explorer) -> Iterator[None]:
    """While a statement runs in the world of all sizes: what the specification's modules see, and who owns its forks.

    The depths of a chain are carried from node to node. They are proved by induction (laws.depths_of_a_chain), and
    used as proved: node k of a chain has depth k.
    """
    original = target_verify.depths

    def depths(parents: Any) -> Any:
        if not isinstance(parents, Seq):
            return original(parents)
        place = z3.Int("node")
        if [term_of(block.at(Number(place))).eq(place) for block in parents.blocks] != [True]:
            raise Unanswered("the depths of a tree of any size that is no chain")
        return up_to(parents.length() + 1)

    depths.__wrapped__ = original  # type: ignore[attr-defined]
    target_verify.depths = depths
    enter(explorer)
    try:
        with in_the_specification():
            yield
    finally:
        leave()
        target_verify.depths = original

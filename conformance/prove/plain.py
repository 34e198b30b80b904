"""The world of plain numbers: the same statements at one size, with the specification as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ropecheck.spec.modes.cells import Cell

from ropecheck.conformance.prove.statement import Broken, Difference
from ropecheck.spec.history import Column, Family, Run
from ropecheck.spec.modes import target_verify

Columns = tuple[Column, ...]
Tables = Mapping[str, Mapping[int, Columns]]
"""Media run -> start -> its columns there."""


class NotHere(Exception):
    """The values do not meet an assumption of the statement, or leave something open."""


class PlainFamily:
    """A family whose media runs have given columns."""

    name = "any family"

    def __init__(self, axes: int, tables: Tables) -> None:
        self.axes = axes
        self.tables = tables

    def token_count(self, run: Run) -> int:
        return len(next(iter(self.tables[run.kind].values())))

    def media_columns(self, run: Run, start: int) -> Columns:
        found = self.tables[run.kind].get(start)
        if found is None:
            raise NotHere(f"{run.kind} at {start}")
        return found


class Plain:
    """A World of one value per size."""

    def __init__(self, sizes: Mapping[str, int], choices: Mapping[str, int], axes: int, tables: Tables) -> None:
        self.sizes = sizes
        self.choices = choices
        self.axes = axes
        self.tables = tables
        self.used: dict[str, Any] = {}
        """What the statement asked for, by name."""

    @property
    def family(self) -> Family:
        return PlainFamily(self.axes, self.tables)

    def size(self, name: str, least: int = 0) -> int:
        value = self.sizes.get(name, least)
        if value < least:
            raise NotHere(f"{name} is at least {least}")
        self.used[name] = value
        return value

    def choose(self, name: str, options: Sequence[Any]) -> Any:
        chosen = options[self.choices.get(name, 0)]
        self.used[name] = getattr(chosen, "__name__", str(chosen)).strip("_")
        return chosen

    def among(self, name: str, options: Sequence[Any], statement: Callable[[Any], None]) -> None:
        statement(self.choose(name, options))

    def assume(self, condition: Any) -> None:
        if not condition:
            raise NotHere("an assumption")

    def media(self, name: str, moves: bool = False) -> tuple[Run, int]:
        if name not in self.tables:
            raise NotHere(f"{name} has no columns")
        columns = next(iter(self.tables[name].values()))
        self.used[name] = f"{len(columns)} tokens, " + "; ".join(
            f"from {start}: {' '.join(str(column) for column in table)}" for start, table in self.tables[name].items()
        )
        return Run(kind=name), len(columns)

    def every(self, count: int) -> Iterable[int]:
        return range(count)

    def at(self, values: Sequence[Any], index: int) -> Any:
        if index >= len(values):
            raise Broken(Difference(what=f"element {index}", left="missing", right=f"{len(values)} elements"))
        return values[index]

    def count(self, values: Sequence[Any]) -> int:
        return len(values)

    def pairs(self, make: Callable[[int], Sequence[Any]], one: int, other: int) -> Iterable[tuple[Any, Any]]:
        return zip(make(one), make(other), strict=True)

    def chain(self, nodes: int) -> Sequence[int]:
        return tuple(range(nodes - 1))

    def depth_in_chain(self, node: int) -> int:
        return target_verify.depths(self.chain(node + 1))[node]

    def depth_in_tree(self, node: int, parent: int) -> tuple[int, int]:
        found = target_verify.depths((*self.chain(node), parent))
        return found[node], found[parent]

    def no_carry(self, *functions: Callable[..., Any]) -> None:
        """Only a question of all sizes."""

    rows_apart = no_carry

    def iterated(self, parameter: str, *functions: Callable[..., Any]) -> None:
        """Only a question of all sizes."""

    def agree(self, law: Callable[..., bool], left: Iterable[Cell], right: Iterable[Cell]) -> None:
        others = list(right)
        for cell in left:
            meeting = [[other] for other in others if other.index == cell.index] or [others]
            for found in meeting:
                if not law({cell.index: cell.column}, {other.index: other.column for other in found}):
                    other = found[0] if found and found[0].index == cell.index else None
                    raise Broken(
                        Difference(
                            what=f"token {cell.index}",
                            left=f"{cell.column} by {_rules(cell)}",
                            right=f"{other.column} by {_rules(other)}" if other else _not_read(others),
                            rules=_ids(cell, *([other] if other else others)),
                        )
                    )

    def alike(
        self, law: Callable[..., bool], left: Callable[[], Iterable[Cell]], right: Callable[[], Iterable[Cell]]
    ) -> None:
        here, there = tuple(left()), tuple(right())
        self.agree(law, here, there)
        self.agree(law, there, here)

    def holds(self, law: Callable[..., bool], cells: Iterable[Cell]) -> None:
        for cell in cells:
            if not law({cell.index: cell.column}):
                raise Broken(
                    Difference(
                        what=f"token {cell.index}",
                        left=f"{cell.column} by {_rules(cell)}",
                        right=f"the index on every row ({law.__name__})",
                        rules=_ids(cell),
                    )
                )

    def same(self, what: str, left: Any, right: Any) -> None:
        if left != right:
            raise Broken(Difference(what=what, left=str(left), right=str(right)))


def _not_read(cells: Sequence[Cell]) -> str:
    """What the other route reads instead."""
    return f"not read; the other route reads tokens {', '.join(str(cell.index) for cell in cells) or 'none'}"


def _rules(cell: Cell) -> str:
    return ", ".join(_ids(cell))


def _ids(*cells: Cell) -> tuple[str, ...]:
    return tuple(dict.fromkeys(rule for cell in cells for rule in (cell.index_rule, cell.column_rule)))

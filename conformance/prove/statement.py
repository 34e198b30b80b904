"""What a proof is stated in: a world that gives sizes and tables, and takes what must be equal.

A statement is a function of a World. The world may give one plain number for each size, or numbers that stand for all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ropecheck.spec.modes.cells import Cell

from ropecheck.spec.history import Family, Run

Size = Any
"""An int, or a number that stands for many."""


class World(Protocol):
    """Where a statement gets its values."""

    @property
    def family(self) -> Family:
        """The family of every media run of the statement."""

    def size(self, name: str, least: int = 0) -> Size:
        """Any integer that is at least `least`."""

    def choose(self, name: str, options: Sequence[Any]) -> Any:
        """Each of the options."""

    def among(self, name: str, options: Sequence[Any], statement: Callable[[Any], None]) -> None:
        """The rest of the statement, for each of the options."""

    def assume(self, condition: Any) -> None:
        """Goes on only where it holds."""

    def media(self, name: str, moves: bool = False) -> tuple[Run, Size]:
        """A media run with at least one token and any columns without negative positions, and its token count.

        moves: its columns move with the position that it starts at; otherwise they may depend on it in any way. A run
        stands as well for a whole history: what a table is continued from is only its columns (sessions.any_history).
        """

    def every(self, count: Size) -> Iterable[Size]:
        """Every index below `count`."""

    def at(self, values: Sequence[Any], index: Size) -> Any:
        """Element `index` of a sequence; Broken where there is none."""

    def count(self, values: Sequence[Any]) -> Size:
        """How many elements a sequence has."""

    def pairs(self, make: Callable[[Size], Sequence[Any]], one: Size, other: Size) -> Iterable[tuple[Any, Any]]:
        """The elements of make(one) beside those of make(other), which are as many."""

    def chain(self, nodes: Size) -> Sequence[int]:
        """The parents of a drafted chain: node k's is k - 1."""

    def depth_in_chain(self, node: Size) -> Size:
        """The depth that target_verify.depths gives to a chain's node, when every earlier one has its number."""

    def depth_in_tree(self, node: Size, parent: Size) -> tuple[Size, Size]:
        """(depth of the node, depth of its parent) that target_verify.depths gives, in a tree of any shape."""

    def no_carry(self, *functions: Callable[..., Any]) -> None:
        """The functions' loops carry nothing from one request to the next."""

    def rows_apart(self, *functions: Callable[..., Any]) -> None:
        """Each row of the functions' answers is made from that row of their parameters alone."""

    def iterated(self, parameter: str, *functions: Callable[..., Any]) -> None:
        """The functions use the parameter for nothing but one loop over all of its elements."""

    def agree(self, law: Callable[..., bool], left: Iterable[Cell], right: Iterable[Cell]) -> None:
        """The law holds between the readings, for each token of the left one, which the right one must read too."""

    def alike(
        self, law: Callable[..., bool], left: Callable[[], Iterable[Cell]], right: Callable[[], Iterable[Cell]]
    ) -> None:
        """The law holds between two readings that take the same tokens in the same loops, both ways."""

    def holds(self, law: Callable[..., bool], cells: Iterable[Cell]) -> None:
        """The law holds of each token of one reading."""

    def same(self, what: str, left: Any, right: Any) -> None:
        """The two are equal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Theorem:
    """A rule of the specification that is proved: all its statements hold for all sizes."""

    rule: str
    statements: tuple[Callable[[World], None], ...]
    limits: str = ""
    """What the statements hold for only, where that is less than the rule speaks of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Where two routes part."""

    what: str
    left: str
    right: str
    rules: tuple[str, ...] = ()


class Broken(Exception):
    """A statement does not hold here."""

    def __init__(self, difference: Difference) -> None:
        super().__init__(difference.what)
        self.difference = difference

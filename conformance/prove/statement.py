"""What a proof is stated in: a world that gives sizes and tables, and takes what must hold.

A statement is a function of a World. The world may give one plain number for each size (plain.py), or numbers that
stand for all (terms.py).
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import Any

from ropecheck.conformance.prove.errors import NotHere, Unanswered
from ropecheck.spec.history import History, Run, delta_of, prompt_table, text
from ropecheck.spec.modes.declaration import Field, Mode, Tokens, Tree, Whole
from ropecheck.spec.rules import Violation, all_rules
from ropecheck.spec.views import Place, Readings

ONE = 1
Size = Any
"""An int, or a number that stands for many."""

LEAST = {"extend_len": 1, "seq_len": 1}
"""Of a field that a request's state says, where it is not 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Theorem:
    """A rule of the specification that is proved: all its statements hold for all sizes."""

    rule: str
    statements: "tuple[Callable[[World], None], ...]"
    limits: str = ""
    """What the statements hold for only, where that is less than the rule speaks of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parting:
    """Where two routes part, or what a rule found."""

    what: str
    left: str
    right: str


class Broken(Exception):
    """A statement does not hold here."""

    def __init__(self, what: str, left: Any, right: Any) -> None:
        super().__init__(what)
        self.difference = Parting(what=what, left=str(left), right=str(right))


class AnyFamily:
    """A family of so many rows whose media runs have any columns: Run(kind=its name)."""

    name = "any family"

    def __init__(self, world: "World", axes: int) -> None:
        self.world = world
        self.axes = axes

    def token_count(self, run: Run) -> Size:
        return self.world.size(f"{run.kind} tokens", 1)

    def media_columns(self, run: Run, start: Size) -> Any:
        return self.world.columns(run.kind, self.token_count(run), start)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPart:
    """Tokens of one request that a route reads: `count` of them, token(k) the index of the k-th."""

    count: Size
    token: Callable[[Size], Size]
    place: Place


Route = tuple[ReadPart, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SymbolicRequest:
    """A request of any size. tokens: those of its history so far."""

    place: Place
    tokens: Size


def parameters(mode: Mode) -> list[Field]:
    """The fields that a mode's function asks for."""
    wanted = inspect.signature(mode.tokens).parameters
    return [known for known in mode.fields if known.name in wanted]


class World(ABC):
    """Where a statement gets its values. What stands here is so of plain numbers; of terms formulas say it."""

    def __init__(self, axes: int) -> None:
        self.family: Any = AnyFamily(self, axes)
        self.axes = axes
        self.moving: dict[str, bool] = {}

    @abstractmethod
    def size(self, name: str, least: int | None = 0) -> Size:
        """Any integer that is at least `least`."""

    def observed(self, name: str, right: Size) -> Size:
        """Any integer that an engine may answer where `right` is right. A search among plain numbers tries that one."""
        return self.size(name, None)

    @property
    @abstractmethod
    def names(self) -> Container[str]:
        """The sizes that were asked for."""

    @abstractmethod
    def choose(self, name: str, options: Sequence[Any]) -> Any:
        """Each of the options."""

    def assume(self, condition: Any) -> None:
        """Goes on only where it holds."""
        if not condition:
            raise NotHere

    def same(self, what: str, left: Any, right: Any) -> None:
        """The two are equal, or Broken."""
        if not self.equal(left, right):
            raise Broken(what, left, right)

    def equal(self, left: Any, right: Any) -> Any:
        """Whether the two are equal."""
        return bool(left == right)

    @abstractmethod
    def columns(self, media: str, count: Size, start: Size) -> Any:
        """The columns of a media run that starts at `start`: anything that is not negative."""

    @abstractmethod
    def ids(self, name: str, count: Size) -> Any:
        """A sequence of `count` tokens of any kind."""

    @abstractmethod
    def tree(self, name: str, drafted: Size, chain: bool = False) -> Any:
        """Parents of so many drafted nodes."""

    def parent(self, parents: Any, node: Size) -> Size:
        """The parent of a node."""
        return parents[node - 1]

    @abstractmethod
    def each(self, name: str, rows: Size, least: int, tree: bool) -> Any:
        """A value of its own per row of a batch; it is an index of trees where `tree` says so."""

    def count(self, values: Any) -> Size:
        """How many elements a sequence has."""
        return len(values)

    def at(self, values: Any, index: Size) -> Any:
        """An element of a sequence that has it."""
        return values[index]

    def read(self, history: History) -> Any:
        """A history as it is given to the specification."""
        return history

    def rows(self, table: Any) -> tuple[Any, ...]:
        """A table, row by row."""
        return tuple(zip(*table, strict=True)) or ((),) * self.axes

    def reading(self, route: Route) -> Any:
        """Token index -> column, of all that a route reads."""
        indices = ((part, index) for part in route for index in map(part.token, range(max(part.count, 0))))
        return {index: part.place.column(index) for part, index in indices}

    def below(self, name: str, count: Size) -> Size:
        """Any index below `count`; a name stands for one such index."""
        if name in self.names:
            raise Unanswered(f"{name} is asked for twice")
        index = self.size(name)
        self.assume(index < count)
        return index

    def media(self, name: str, moves: bool = False) -> tuple[Run, Size]:
        """A media run with at least one token, and its token count.

        moves: its columns move with the position that it starts at; otherwise they may depend on it in any way. A run
        stands as well for a whole history: what a table is continued from is only its columns (sessions.any_history).
        """
        self.moving[name] = moves
        return Run(kind=name), self.size(f"{name} tokens", 1)

    def table(self, history: History) -> Any:
        """A history's table, by the specification's own rule."""
        return prompt_table(self.family, self.read(history))

    def place(self, history: History, tabulated: Size, has_media: bool) -> Place:
        """A request with that history."""
        table = self.table(history)
        return Place(rows=self.rows(table), tabulated=tabulated, delta=delta_of(table), has_media=has_media)

    def request(self, name: str = "prompt", kinds: Sequence[str] = ("media", "text")) -> SymbolicRequest:
        """A prompt with media anywhere in it and text after it, or text alone."""
        if self.choose(f"{name} kind", kinds) == "media":
            run, tabulated = self.media(name)
            later = self.size(f"{name}: later text")
            return SymbolicRequest(place=self.place((run, text(later)), tabulated, True), tokens=tabulated + later)
        tokens = self.size(f"{name} tokens", 1)
        return SymbolicRequest(place=self.place((text(tokens),), tokens, False), tokens=tokens)

    def part(self, tokens: Tokens, place: Place) -> ReadPart:
        """What a mode says that a row reads, of a request."""
        first, step, offsets = tokens.first, tokens.step, tokens.offsets
        if offsets is None:
            return ReadPart(count=tokens.count, token=lambda k: first + k * step, place=place)
        return ReadPart(count=self.count(offsets), token=lambda k: first + self.at(offsets, k), place=place)

    def fields(self, mode: Mode, prefix: str = "") -> dict[str, Any]:
        """Any values of what one row of the mode carries, by the parameters of its function."""
        found: dict[str, Any] = {}
        for known in parameters(mode):
            low = known.domain.low if isinstance(known.domain, Whole) else LEAST.get(known.kind, 0)
            if isinstance(known.domain, Tree):
                found[known.name] = self.tree(f"{prefix}{known.name}", self.size(f"{prefix}drafted nodes"))
            else:
                found[known.name] = self.size(f"{prefix}{known.name}", low)
        return found

    def batch(self, mode: Mode, name: str, rows: Size) -> dict[str, Any]:
        """Any values of what `rows` rows of the mode carry."""
        found: dict[str, Any] = {}
        for known in parameters(mode):
            low = known.domain.low if isinstance(known.domain, Whole) else LEAST.get(known.kind, 0)
            if known.kind != "step":
                tree = isinstance(known.domain, Tree)
                found[known.name] = (
                    self.each(f"{name}{known.name}", rows, low, tree) if known.each else self.size(known.name, low)
                )
        return found

    def agree(self, law: str, left: Route, right: Route) -> None:
        """The law holds between the readings, for each token of the left one, which the right one must read too."""
        part = left[self.choose("forward", range(len(left)))] if len(left) > 1 else left[0]
        index = part.token(0 if part.count is ONE else self.below("token", part.count))
        self.accepts(law, Readings(law=law, left={index: part.place.column(index)}, right=self.reading(right)))

    def alike(self, law: str, left: ReadPart, right: ReadPart) -> None:
        """The law holds between two routes token by token: both take the same ones in the same order."""
        self.same("tokens", left.count, right.count)
        k = self.below("token", left.count)
        one, other = (self.single(part.token(k), part.place) for part in (left, right))
        self.agree(law, (one,), (other,))
        self.agree(law, (other,), (one,))

    def single(self, index: Size, place: Place) -> ReadPart:
        """A route that reads one token."""
        return ReadPart(count=ONE, token=lambda _: index, place=place)

    def accepts(self, rule: str, view: Any) -> None:
        """The rule speaks of the view, and finds nothing."""
        found = self._asked(rule, view)
        if found is not None:
            at = "" if found.at is None else f" {found.at}"
            raise Broken(f"{found.axis}{at}, says {rule},", found.observed, found.expected)
        self.same(rule, True, True)

    def decides(self, rule: str, view: Any, right: Any) -> None:
        """The rule speaks of the view, and finds nothing exactly where it is right."""
        self.same(f"whether {rule} accepts it", self._asked(rule, view) is None, bool(right))

    def _asked(self, rule: str, view: Any) -> Violation | None:
        stated = all_rules()[rule]
        if stated.when is not None and not stated.when(view):
            raise Broken(f"whether {rule} judges this", False, True)
        return stated.check(view)

"""The world of plain numbers: the same statements at one size, with the specification as it is."""

from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any

from ropecheck.conformance.prove.errors import NotHere
from ropecheck.conformance.prove.statement import Broken, Parting, World
from ropecheck.spec.history import Column

ATTEMPTS = 240
"""Sets of plain numbers that are tried where z3 has no proof."""

LARGEST = 64
"""Sum of the sizes of z3 that are tried: beyond it nothing is small, and much is slow."""

Values = dict[str, int]


class PlainWorld(World):
    """A World of one value per size: a given one, else one from `draw`."""

    def __init__(
        self, values: Values, choices: Mapping[str, int], axes: int, draw: Callable[[], int], right: bool = False
    ) -> None:
        """right: what an engine may answer is what is right."""
        super().__init__(axes)
        self.right = right
        self.values = values
        self.choices = choices
        self.draw = draw
        self.used: dict[str, Any] = {}
        """What the statement asked for, to be shown."""
        self.sizes: Values = {}
        self.entries: Values = {}
        """Entries of tables, tokens and the like."""

    @property
    def names(self) -> Container[str]:
        return self.sizes

    def size(self, name: str, least: int | None = 0) -> int:
        found = self._entry(name, least)
        self.used[name] = found
        if least is not None:
            self.sizes[name] = self.entries.pop(name)
        return found

    def observed(self, name: str, right: int) -> int:
        if not self.right:
            return int(super().observed(name, right))
        self.used[name] = right
        return right

    def _value(self, name: str, least: int | None) -> int:
        if name not in self.values:
            drawn = self.draw()
            self.values[name] = (drawn if drawn % 2 == 0 else -drawn) if least is None else least + drawn
        if least is not None and self.values[name] < least:
            raise NotHere
        return self.values[name]

    def _entry(self, name: str, least: int | None = 0) -> int:
        self.entries[name] = self._value(name, least)
        return self.entries[name]

    def choose(self, name: str, options: Sequence[Any]) -> Any:
        taken = options[self.choices.get(name, 0)]
        self.used[name] = getattr(taken, "name", None) or getattr(taken, "__name__", str(taken)).strip("_")
        return taken

    def columns(self, media: str, count: int, start: int) -> tuple[Column, ...]:
        moves = self.moving[media]
        name, move = (media, start) if moves else (f"{media} at {start}", 0)
        found = tuple(
            tuple(self._entry(f"{name}: {index}, {axis}") + move for axis in range(self.axes)) for index in range(count)
        )
        self.used[f"{media} from {start} on"] = found
        return found

    def ids(self, name: str, count: int) -> tuple[int, ...]:
        self.used[name] = tuple(self._entry(f"{name} {index}") for index in range(count))
        return self.used[name]  # type: ignore[no-any-return]

    def tree(self, name: str, drafted: int, chain: bool = False) -> tuple[int, ...]:
        if chain:
            return tuple(range(drafted))
        self.used[name] = tuple(self._entry(f"{name} {node}") % (node + 1) for node in range(drafted))
        return self.used[name]  # type: ignore[no-any-return]

    def each(self, name: str, rows: int, least: int, tree: bool) -> tuple[Any, ...]:
        if tree:
            return tuple(self.tree(f"{name} {row}", self._entry(f"{name} {row} nodes")) for row in range(rows))
        self.used[name] = tuple(self._entry(f"{name} {row}", least) for row in range(rows))
        return self.used[name]  # type: ignore[no-any-return]


def difference(statement: Callable[[World], None], world: PlainWorld) -> Parting | None:
    """Where the statement breaks on plain numbers, if it does."""
    try:
        statement(world)
    except Broken as error:
        return error.difference
    except NotHere:
        return None
    except Exception as error:
        return Parting(what="the answer", left=f"raises {type(error).__name__}: {error}", right="a table")
    return None


def search(
    statement: Callable[[World], None], axes: int, choices: Mapping[str, int], sizes: Values
) -> tuple[PlainWorld, Parting] | None:
    """Plain numbers that break the statement, each as small as it can be alone; those of z3 are tried first."""
    small = sum(map(abs, sizes.values())) <= LARGEST
    for attempt in range(ATTEMPTS):
        values = dict(sizes) if attempt < 40 and small else {}
        world = PlainWorld(values, choices, axes, partial(Random(attempt).randint, 0, attempt % 9), attempt % 2 == 1)
        found = difference(statement, world)
        if found is not None:
            return _shrunk(statement, world, found)
    return None


def _shrunk(statement: Callable[[World], None], world: PlainWorld, found: Parting) -> tuple[PlainWorld, Parting]:
    for name, value in [*sorted(world.sizes.items(), key=lambda one: -one[1]), *world.entries.items()]:
        for smaller in range(max(value - 40, 0), value):
            values = {**world.sizes, **world.entries, name: smaller}
            less = PlainWorld(values, world.choices, world.axes, lambda: 0, world.right)
            if (broken := difference(statement, less)) is not None:
                return _shrunk(statement, less, broken)
    return world, found

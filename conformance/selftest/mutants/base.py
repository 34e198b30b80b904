"""What a planted fault is."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ropecheck.adapters import protocol
from ropecheck.conformance.reference_engine import ReferenceEngine
from ropecheck.reference.tables import BatchTables
from ropecheck.reference.timeline import IntArray, Timeline

Twist = Callable[[protocol.BuildForward, Sequence[Timeline], list[BatchTables]], list[BatchTables]]
"""(forward, the requests' columns, right tables) -> wrong tables."""
Change = Callable[[protocol.BuildForward, Sequence[Timeline], BatchTables], BatchTables]
"""The same for one table."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault. like: the public bug (row of the project's bug list, or thread) or "slip" that it is modelled on."""

    name: str
    like: str
    says: str
    make: Callable[[], ReferenceEngine]
    mode: str = ""
    """The one forward mode that it touches; "": several, or none."""


def twisted(name: str, like: str, says: str, modes: str | Sequence[str], twist: Twist) -> Mutant:
    """A fault in the tables of some modes."""
    wanted = (modes,) if isinstance(modes, str) else tuple(modes)

    class Twisted(ReferenceEngine):
        def tables(self, step: protocol.BuildForward, lines: Sequence[Timeline]) -> list[BatchTables]:
            right = super().tables(step, lines)
            return twist(step, lines, right) if step.mode in wanted else right

    return Mutant(name, like, says, Twisted, wanted[0] if len(wanted) == 1 else "")


def planted(found: list[Mutant], name: str, like: str, says: str, *modes: str) -> Callable[[Change], Change]:
    """Plant what the decorated function does to each table of a forward of these modes, alike."""

    def plant(change: Change) -> Change:
        found.append(twisted(name, like, says, modes, each(change)))
        return change

    return plant


def altered(
    found: list[Mutant], name: str, like: str, says: str, method: str
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Plant what the decorated function does instead of a method of the engine. It is given the engine, the engine's
    right method, and what the method is called with."""

    def plant(wrong: Callable[..., Any]) -> Callable[..., Any]:
        right = getattr(ReferenceEngine, method)

        def instead(engine: ReferenceEngine, *given: Any, **named: Any) -> Any:
            return wrong(engine, partial(right, engine), *given, **named)

        found.append(Mutant(name, like, says, type("Altered", (ReferenceEngine,), {method: instead})))
        return wrong

    return plant


def each(change: Change) -> Twist:
    """A twist of every table of a forward alike."""
    return lambda step, lines, found: [change(step, lines, tables) for tables in found]


def with_rows(tables: BatchTables, rows: IntArray) -> BatchTables:
    """The same tables with another three-row table."""
    return replace(tables, rows=rows)


def with_both(tables: BatchTables, positions: IntArray, rows: IntArray | None) -> BatchTables:
    """Both tables replaced."""
    return replace(tables, positions=positions, rows=rows)


def rows_of(tables: BatchTables) -> IntArray:
    """The three-row table, int64 [axes, T], to be written to."""
    assert tables.rows is not None
    return np.array(tables.rows)


def owners(tables: BatchTables) -> IntArray:
    """Per column, the batch row that it belongs to (-1: padding). int64 [T]."""
    out = np.full(tables.positions.size, -1, dtype=np.int64)
    for span in tables.spans:
        out[span.start : span.stop] = span.row
    return out


def deltas(tables: BatchTables, lines: Sequence[Timeline]) -> IntArray:
    """Per column, the delta of its request (0 for text-only requests and padding). int64 [T]."""
    return np.array(
        [0 if row < 0 or not lines[row].has_media else lines[row].delta for row in owners(tables)], dtype=np.int64
    )

"""Proves a theorem, or shows small values against it, confirmed on plain numbers."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import z3

from ropecheck.conformance.prove.errors import NotHere, Unanswered
from ropecheck.conformance.prove.explorer import Explorer
from ropecheck.conformance.prove.plain import search
from ropecheck.conformance.prove.stand_ins import on_terms
from ropecheck.conformance.prove.statement import Broken, Parting, Theorem, World
from ropecheck.conformance.prove.terms import Terms

AXES = (3, 4)
"""Rows of the tables that the statements run with: HunYuan-VL has four."""

ENOUGH = 6
"""Paths without a proof after which no more are looked at."""

Statement = Callable[[World], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counterexample:
    """Values at which a statement does not hold."""

    statement: str
    says: str
    values: dict[str, Any]
    difference: Parting
    weight: int
    """Sum of its sizes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What became of one theorem. state: "proved", "refuted", "unanswered"."""

    rule: str
    state: str
    paths: int
    queries: int
    reason: str = ""
    counterexample: Counterexample | None = None


class Prover:
    """Proves theorems one by one; a statement that several share runs once."""

    def __init__(self) -> None:
        self._done: dict[Statement, Result] = {}

    def prove(self, theorem: Theorem) -> Result:
        """All statements of a theorem; the first one that fails decides."""
        paths = queries = 0
        for statement in theorem.statements:
            if statement not in self._done:
                self._done[statement] = _run(theorem.rule, statement)
            found = self._done[statement]
            paths, queries = paths + found.paths, queries + found.queries
            if found.state != "proved":
                break
        return Result(
            rule=theorem.rule,
            state=found.state,
            paths=paths,
            queries=queries,
            reason=found.reason,
            counterexample=found.counterexample,
        )


def z3_version() -> str:
    """The version of z3."""
    return str(z3.get_version_string())


def _run(rule: str, statement: Statement) -> Result:
    paths = queries = 0
    found: list[Counterexample] = []
    reasons: list[str] = []
    for axes in AXES:
        explorer = Explorer()
        world = Terms(explorer, axes)
        for ended in _paths(explorer, partial(statement, world)):
            if isinstance(ended, NotHere):
                continue
            paths += 1
            if ended is not None:
                broken = _confirmed(explorer, statement, axes)
                found += [broken] if broken else []
                reasons += [] if broken else [_reason(ended)]
                if found or len(reasons) == ENOUGH:
                    break
        queries += explorer.queries
        if not found and not reasons and (empty := explorer.met - explorer.shown):
            reasons.append(f"nothing was asked where {sorted(empty)[0][0]} is number {sorted(empty)[0][1]}")
        if found or reasons:
            break
    best = found[0] if found else None
    state = "refuted" if best else ("unanswered" if reasons else "proved")
    text = f"{statement.__name__}: {reasons[0]}" if state == "unanswered" else ""
    return Result(rule=rule, state=state, paths=paths, queries=queries, reason=text, counterexample=best)


def _paths(explorer: Explorer, body: Callable[[], None]) -> Any:
    """As the explorer's, with the specification on terms while it runs, and not between."""

    def on() -> None:
        with on_terms(explorer):
            body()

    try:
        yield from explorer.paths(on)
    except Unanswered as error:
        yield error


def _reason(ended: Exception) -> str:
    if isinstance(ended, Unanswered):
        return str(ended)
    return f"{'' if isinstance(ended, Broken) else type(ended).__name__ + ' '}{ended}, but at no size that was tried"


def _confirmed(explorer: Explorer, statement: Statement, axes: int) -> Counterexample | None:
    """Small values on this path that break the statement on plain numbers too."""
    broken = search(statement, axes, explorer.choices, explorer.values())
    if broken is None:
        return None
    world, difference = broken
    return Counterexample(
        statement=statement.__name__,
        says=" ".join((statement.__doc__ or "").split()),
        values=dict(world.used),
        difference=difference,
        weight=sum(world.sizes.values()),
    )

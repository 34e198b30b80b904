"""Proves a theorem, or finds the smallest values that z3 gives against it, confirmed on plain numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import z3

from ropecheck.conformance.prove.anywhere import Anywhere, running
from ropecheck.conformance.prove.explorer import Abandoned, Explorer, Unanswered
from ropecheck.conformance.prove.plain import NotHere, Plain, Tables
from ropecheck.conformance.prove.statement import Broken, Difference, Theorem, World

AXES = (3, 4)
"""Rows of the tables that the statements run with: HunYuan-VL has four."""

LARGEST = 64
"""Where the search for the smallest sum of sizes, and of table entries, ends."""

ATTEMPTS = 4
"""Models of one broken path that are tried on plain numbers."""

ENOUGH = 8
"""Broken paths that are confirmed; the smallest is shown."""

Statement = Callable[[World], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counterexample:
    """Values at which a statement does not hold."""

    statement: str
    says: str
    values: dict[str, Any]
    difference: Difference
    tables: Tables
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


class Enough(BaseException):
    """No more paths are needed. Not an Exception: no path may take it for its own end."""


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
    reason = ""
    for axes in AXES:
        explorer = Explorer()

        def ended(raised: Exception | None, explorer: Explorer = explorer, axes: int = axes) -> None:
            nonlocal paths, reason
            if isinstance(raised, Abandoned):
                return
            paths += 1
            if raised is None:
                return
            if broken := _confirmed(explorer, statement, axes):
                found.append(broken)
                if len(found) == ENOUGH:
                    raise Enough
            else:
                reason = f"{type(raised).__name__} {raised} on a path, but at no size that was tried"

        world = Anywhere(explorer, axes, ended)

        def body(explorer: Explorer = explorer, world: Anywhere = world) -> None:
            world.begin()
            with running(explorer):
                statement(world)

        try:
            explorer.paths(body, ended)
        except Unanswered as error:
            reason = str(error)
        except Enough:
            pass
        queries += explorer.queries
        if world.asked != world.answered or not world.asked:
            reason = reason or "a question that no path answers"
        if found:
            break
    best = min(found, key=lambda one: one.weight) if found else None
    state = "refuted" if best else ("unanswered" if reason else "proved")
    text = f"{statement.__name__}: {reason}" if state == "unanswered" else ""
    return Result(rule=rule, state=state, paths=paths, queries=queries, reason=text, counterexample=best)


def _confirmed(explorer: Explorer, statement: Statement, axes: int) -> Counterexample | None:
    """The smallest values on this path that break the statement on plain numbers too."""
    least = 0
    for _ in range(ATTEMPTS):
        sizes = _smallest(explorer, least)
        if sizes is None:
            return None
        found = _at(statement, sizes, explorer.path.choices, axes, _tables(explorer, sizes))
        if found:
            return _shrunk(found, statement, sizes, explorer.path.choices, axes)
        least = sum(sizes.values()) + 1
    return None


def _at(
    statement: Statement, sizes: dict[str, int], choices: dict[str, int], axes: int, tables: Tables
) -> Counterexample | None:
    """The statement on plain numbers; None where it holds or says nothing."""
    world = Plain(sizes, choices, axes, tables)
    difference = _difference(statement, world)
    if difference is None:
        return None
    return Counterexample(
        statement=statement.__name__,
        says=" ".join((statement.__doc__ or "").split()),
        values=dict(world.used),
        difference=difference,
        tables=tables,
        weight=sum(sizes.values()),
    )


def _shrunk(
    found: Counterexample, statement: Statement, sizes: dict[str, int], choices: dict[str, int], axes: int
) -> Counterexample:
    """The same with every size as small as it can be alone: another path may break at smaller ones."""
    for name in sizes:
        for value in range(sizes[name]):
            smaller = {**sizes, name: value}
            media = name.removesuffix(" tokens")
            tables = {
                run: {start: columns[:value] if run == media else columns for start, columns in at.items()}
                for run, at in found.tables.items()
            }
            if all(columns for at in tables.values() for columns in at.values()):
                less = _at(statement, smaller, choices, axes, tables)
                if less:
                    return _shrunk(less, statement, smaller, choices, axes)
    return found


def _smallest(explorer: Explorer, least: int) -> dict[str, int] | None:
    """Sizes of the smallest sum from `least` on."""
    total = z3.Sum([z3.IntVal(0), *explorer.path.sizes.values()])
    model = _first(explorer, total, least)
    if model is None:
        return None
    return {name: model.eval(term, model_completion=True).as_long() for name, term in explorer.path.sizes.items()}


def _first(explorer: Explorer, total: Any, least: int = 0) -> Any:
    """A model of the path in which `total` is least, or None."""
    for bound in range(least, LARGEST):
        explorer.solver.push()
        explorer.solver.add(total == bound)
        model = explorer.solver.model() if explorer.check() else None
        explorer.solver.pop()
        if model is not None:
            return model
    return None


def _tables(explorer: Explorer, sizes: dict[str, int]) -> Tables:
    """Columns of the media runs at these sizes, with the smallest entries."""
    explorer.solver.push()
    explorer.tell_all(max([0, *sizes.values()]))
    entries = []
    for name, term in explorer.path.sizes.items():
        explorer.solver.add(term == sizes[name])
    for placed in explorer.path.placed:
        count = sizes[f"{placed.media} tokens"]
        entries += [part for index in range(count) for part in placed.column(z3.IntVal(index))]
    for entry in entries:
        explorer.fact(entry >= 0)
    model = _first(explorer, z3.Sum([z3.IntVal(0), *entries]))
    tables: dict[str, dict[int, tuple[tuple[int, ...], ...]]] = {}
    if model is not None:
        for placed in explorer.path.placed:
            start = model.eval(placed.start, model_completion=True).as_long()
            tables.setdefault(placed.media, {})[start] = tuple(
                tuple(model.eval(part, model_completion=True).as_long() for part in placed.column(z3.IntVal(index)))
                for index in range(sizes[f"{placed.media} tokens"])
            )
    explorer.solver.pop()
    return tables


def _difference(statement: Statement, world: Plain) -> Difference | None:
    """Where the statement breaks on plain numbers, if it does."""
    try:
        statement(world)
    except Broken as error:
        return error.difference
    except NotHere:
        return None
    except Exception as error:
        return Difference(what="the answer", left=f"raises {type(error).__name__}: {error}", right="a table")
    return None

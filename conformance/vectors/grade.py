"""An engine's answers against the vectors: the same judge, rules and signatures as in a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import msgspec
import numpy as np
from ropecheck.reference.batches import Batch, Expected

from ropecheck.adapters import protocol
from ropecheck.conformance.errors import UsageError
from ropecheck.conformance.judge.outcome import Difference, Failure
from ropecheck.conformance.judge.verdict import judge
from ropecheck.conformance.plan.planner import Plan, TableCheck
from ropecheck.conformance.scenario.operations import Scenario
from ropecheck.conformance.vectors import store
from ropecheck.conformance.vectors import types as v
from ropecheck.conformance.vectors.answers import filled_in, spread
from ropecheck.conformance.vectors.derive import Derived, derive
from ropecheck.conformance.vectors.lint import problems_of
from ropecheck.conformance.vectors.runs import columns_of
from ropecheck.reference.tables import Span, Tables
from ropecheck.reference.timeline import Timeline
from ropecheck.spec.modes import cells

Answers = dict[str, tuple[v.Answer, ...] | v.Declined]
"""Vector id -> the engine's tables, or why it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """What became of one vector. state: "pass", "fail", "not offered" or "missing"."""

    path: Path
    vector: v.Vector
    state: str
    failures: tuple[Failure, ...] = ()
    reason: str = ""


def read_answers(path: Path) -> Answers:
    """Raises UsageError naming file and field."""
    return store.read_as(path, Answers)


def grade_all(where: Path, answers: Mapping[str, tuple[v.Answer, ...] | v.Declined], but: Path) -> tuple[Grade, ...]:
    """Every vector of a folder, or one. Raises UsageError for an unsound vector or a meaningless answer."""
    out = []
    for path in store.paths(where, but):
        vector = store.read(path)
        problem = next(problems_of(vector), None)
        if problem is not None:
            raise UsageError(f"{path}: {problem}")
        answer = answers.get(vector.id)
        if answer is None:
            out.append(Grade(path=path, vector=vector, state="missing"))
        elif isinstance(answer, v.Declined):
            out.append(Grade(path=path, vector=vector, state="not offered", reason=answer.not_offered))
        else:
            try:
                failures = grade(vector, answer)
            except (ValueError, OverflowError) as error:
                raise UsageError(f"{but}: {vector.id}: {error}") from error
            out.append(Grade(path=path, vector=vector, state="fail" if failures else "pass", failures=failures))
    return tuple(out)


def grade(vector: v.Vector, answer: tuple[v.Answer, ...]) -> tuple[Failure, ...]:
    """The failures of one vector. Raises ValueError for two tables of one label, or a label that means nothing."""
    answered = spread(vector, answer)
    derived = derive(vector.input)
    if isinstance(vector.input, v.ForwardInput | v.PaddingInput):
        return _judged(vector, derived, answered)
    found: list[Failure] = []
    for one in derived:
        found.extend(_judged(vector, (one,), answered) if one.has_rows else _missing(vector, one, answered))
        found.extend(_facts(one, answered.get(one.label)))
    return tuple(found)


def _judged(vector: v.Vector, derived: tuple[Derived, ...], answered: Mapping[str, v.Answer]) -> tuple[Failure, ...]:
    """Tables: what the judge of a run says of them."""
    first = derived[0]
    lines = _lines(vector, first)
    expected = Expected(
        batch=Batch(mode=first.mode, reqs=tuple(range(len(lines)))),
        lines=lines,
        tables={one.label: _tables(one) for one in derived},
        parent_lines=(None,) * len(lines),
        situations=frozenset(),
    )
    tables = []
    for label, answer in answered.items():
        one = next((one for one in derived if one.label == label), None)
        if one is None and first.mode != "draft_decode":
            continue
        uneven = _uneven(first, answer)
        if uneven is not None:
            return (uneven,)
        tables.append(_as_answered(first if one is None else one, answer))
    check = TableCheck(op=0, result=0, expected=expected, labels={one.label: one.label for one in derived})
    scenario = Scenario(name=vector.provenance.scenario, ops=(), family=vector.input.family)
    plan = Plan(scenario, protocol.Job(id=vector.id, steps=()), (check,))
    return judge(plan, protocol.Answer(vector.id, (protocol.Tables(tuple(tables)),), 0, 1)).failures


def _lines(vector: v.Vector, first: Derived) -> tuple[Timeline, ...]:
    """Every request's columns: what the signatures of wrong tables are told by."""
    match vector.input:
        case v.ForwardInput(requests=requests):
            return tuple(map(_line, requests))
        case v.PaddingInput(load=load):
            return tuple(map(_line, load.requests))
        case _:
            table = np.array([cell.column for cell in first.cells], dtype=np.int64).reshape(-1, first.axes).T
            delta = int(table.max()) + 1 - table.shape[1] if table.size else 0
            return (Timeline(table=table, delta=delta, tabulated=table.shape[1], has_media=delta != 0),)


def _line(request: v.Request) -> Timeline:
    columns = columns_of(request.table)
    table = np.array(columns, dtype=np.int64).reshape(len(columns), len(request.table)).T
    has_media = any(run.kind != "text" for run in request.runs)
    return Timeline(table=table, delta=request.delta, tabulated=request.tabulated, has_media=has_media)


def _tables(one: Derived) -> Tables:
    """Derived cells as the judge's tables: neighbours under the same rules are one span."""
    spans = []
    at = 0
    for (request, index_rule, column_rule), group in groupby(
        one.cells, key=lambda cell: (cell.request, cell.index_rule, cell.column_rule)
    ):
        count = len(list(group))
        spans.append(Span(request, at, at + count, index_rule, column_rule))
        at += count
    positions = np.array([cell.index for cell in one.cells], dtype=np.int64)
    rows = np.array([cell.column for cell in one.cells], dtype=np.int64).reshape(-1, one.axes).T
    return Tables(positions, rows if one.has_rows else None, tuple(spans), one.width_rule)


def _as_answered(one: Derived, answer: v.Answer) -> protocol.Table:
    """An answer as a worker would send it. JSON has no dtypes, so each table has the one that it must have."""
    positions, rows = filled_in(one, answer)
    index = None if positions is None else np.array(positions, dtype=cells.dtype(one.mode, True))
    table = None if rows is None else np.array(rows, dtype=cells.dtype(one.mode, False))
    return protocol.Table(answer.label, _tensor(index), _tensor(table) if one.has_rows else None)


def _tensor(array: np.ndarray[tuple[int, ...], np.dtype[np.int64]] | None) -> protocol.Tensor | None:
    if array is None:
        return None
    return protocol.Tensor(array.dtype.name, tuple(array.shape), np.ascontiguousarray(array).tobytes())


def _uneven(one: Derived, answer: v.Answer) -> Failure | None:
    """Rows of unequal width are no table."""
    widths = [len(row) for row in answer.rows or ()]
    if len(set(widths)) <= 1:
        return None
    return Failure(
        rule="table.three_rows",
        mode=one.mode,
        signature="rows of unequal width",
        step=0,
        label=answer.label,
        message=f"rows of {', '.join(map(str, widths))} columns",
        difference=Difference("rows", expected=max(widths), observed=min(widths)),
    )


def _missing(vector: v.Vector, one: Derived, answered: Mapping[str, v.Answer]) -> tuple[Failure, ...]:
    """A refused turn has no table, but it must be answered."""
    if one.label in answered:
        return ()
    found = ", ".join(map(repr, answered)) or "none"
    return (
        Failure(
            rule="table.present",
            mode=one.mode,
            signature="table missing",
            step=0,
            label=one.label,
            message=f"no table {one.label!r}; answered: {found}",
        ),
    )


def _facts(one: Derived, answer: v.Answer | None) -> tuple[Failure, ...]:
    """Values beside the table. One that is missing is wrong."""
    out = []
    for fact in one.facts if answer is not None else ():
        found = getattr(answer, fact.field)
        if found != fact.value:
            signature = f"{fact.field} missing" if found is None else f"other {fact.field}"
            out.append(
                Failure(
                    rule=fact.rule,
                    mode=one.mode,
                    signature=signature,
                    step=0,
                    label=one.label,
                    message=f"{fact.field} {_shown(found)}, must be {_shown(fact.value)}",
                    difference=Difference(fact.field, expected=_shown(fact.value), observed=_shown(found)),
                )
            )
    return tuple(out)


def _shown(value: object) -> str:
    return msgspec.json.encode(value).decode()

"""One builder's answer, laid into the views that spec/families/rules.py judges."""

from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ropecheck.adapters import protocol
from ropecheck.conformance.families import accepted
from ropecheck.conformance.families.case import Case, Expected, expected
from ropecheck.conformance.judge.ask import ask
from ropecheck.conformance.judge.outcome import Difference, Failure, Outcome, TableView, Unrun
from ropecheck.conformance.judge.tally import ScenarioTally
from ropecheck.conformance.scenario import dimensions
from ropecheck.reference.blocks import Table
from ropecheck.spec.families import FAMILIES
from ropecheck.spec.families.rules import FOUR_AXES, BuiltTable, BuiltTensor, TornPrompt
from ropecheck.spec.rules import Rule, Violation

_BEYOND = 64
"""Columns behind the first wrong one that a failure carries; it carries all before it."""

Array = npt.NDArray[np.generic]
Broken = list[tuple[Rule, Violation]]


def judge(case: Case, result: protocol.Result) -> Outcome:
    """Everything that the rules say of the answer."""
    tally = ScenarioTally()
    if unjudged := without_answer(case, result):
        return unjudged
    if case.torn:
        _torn(tally, case, result)
    elif isinstance(result, protocol.Raised):
        nothing = BuiltTable(family=FAMILIES[case.family], history=case.laid[0].history, columns=None, delta=None)
        raised(tally, case, ask(tally, case.mode, nothing), result)
    elif isinstance(result, protocol.PromptTables):
        _tables(tally, case, expected(case), result)
    return outcome(case, tally)


def without_answer(case: Case, result: protocol.Result) -> Outcome | None:
    """What an answer comes to that says nothing of tables."""
    if isinstance(result, protocol.NotOfferedAnswer):
        return Outcome(case.id, case.name, not_offered=((case.mode, result.reason),))
    if isinstance(result, protocol.Raised) and result.stage != "engine":
        return Outcome(
            case.id, case.name, unrun=(Unrun(result.stage, f"{result.type}: {result.message} {result.where}"),)
        )
    if not isinstance(result, protocol.Raised | protocol.PromptTables):
        return Outcome(case.id, case.name, unrun=(Unrun("decode", f"a {type(result).__name__} for a prompt table"),))
    return None


def _tables(tally: ScenarioTally, case: Case, want: Expected, result: protocol.PromptTables) -> None:
    table, delta = array(result.table), array(result.delta)
    axes, batch = FAMILIES[case.family].axes, len(want.tables)
    shapes: tuple[tuple[int, ...], ...] = ((axes, batch, want.width),)
    if batch == 1:  # a builder of one prompt needs no batch
        shapes = ((axes, want.width), *shapes)
    tensors(tally, case, result, shapes, ((batch, 1),))
    if table.ndim in (2, 3) and len(table) != axes:
        return
    rows = table[:, None, :] if table.ndim == 2 else table
    answered = rows.shape[1] if rows.ndim == 3 else 0
    deltas = [number_of(value) for value in delta.reshape(-1)]
    ahead = () if result.ahead is None else array(result.ahead)
    for number, right in enumerate(want.tables):
        got = None
        if number < answered:
            tokens = len(case.laid[number].ids)
            got = rows[:, number, want.width - tokens :]
            if number < len(ahead) and right.shape[1] > tokens:
                got = np.concatenate((got, ahead[number][:, : right.shape[1] - tokens]), axis=1)
        one_table(tally, case, right, got, deltas[number] if number < len(deltas) else None, number)


def tensors(
    tally: ScenarioTally,
    case: Case,
    result: protocol.PromptTables,
    table: tuple[tuple[int, ...], ...],
    delta: tuple[tuple[int, ...], ...],
) -> None:
    """Dtypes and shapes. table, delta: the shapes that are right."""
    for name, tensor, right in (("table", result.table, table), ("delta", result.delta, delta)):
        view = BuiltTensor(name=name, dtype=tensor.dtype, shape=tensor.shape, right=right)
        for rule, found in ask(tally, case.mode, view):
            tally.fail(failure(case, rule.id, found.shape, found.message))


def one_table(
    tally: ScenarioTally, case: Case, right: Table, got: Array | None, delta: int | float | None, number: int = 0
) -> None:
    """One prompt's table and delta. right: int64 [axes, P]; got: whatever the builder returned for this prompt."""
    laid = case.laid[number]
    built = BuiltTable(
        family=FAMILIES[case.family],
        history=laid.history,
        targets=laid.targets,
        columns=None if got is None else tuple(zip(*map(_numbers, got), strict=True)),
        delta=delta,
    )
    broken = ask(tally, case.mode, built)
    for rule, found in told(broken):
        where = f"prompt {number}" if found.at is None else f"prompt {number}, token {found.at}"
        shape = found.shape or signature(case, right, got, number, found.at)
        shown = None if got is None or found.at is None or not built.whole else found.at + _BEYOND
        difference = Difference(found.axis, found.at, number, found.expected, found.observed)
        views = _view(right, shown), _view(got, shown)
        tally.fail(failure(case, rule.id, shape, f"{where}: {found.message}", difference, *views))


def told(broken: Broken) -> Broken:
    """What a table's own column or width, and what its delta, breaks first: the rest follows from that."""
    of_delta = [one for one in broken if one[1].axis == "delta"]
    of_table = [one for one in broken if one[1].axis != "delta"]
    first = min(of_table, key=lambda one: -1 if one[1].at is None else one[1].at, default=None)
    return [one for one in (first, *of_delta[:1]) if one is not None]


def signature(case: Case, right: Table, got: Array | None, number: int, column: int | None) -> str:
    """In words, where the first wrong column stands and what became of it."""
    laid = case.laid[number]
    if got is None or column is None:
        return "wrong"
    if column >= len(laid.ids):
        return "wrong ahead"
    inside = any(start <= column < stop for start, stop in laid.media)
    place = "media" if inside else "text"
    shift = np.asarray(got[:, column], dtype=np.float64) - right[:, column]
    if not inside and any(one != other for one, other in pairwise(got[:, column].tolist())):
        return "rows differ"
    if not np.isfinite(np.asarray(got[:, column], dtype=np.float64)).all():
        return f"{place} at no number"
    if (np.asarray(got[:, column]) % 1 != 0).any():
        return f"{place} between positions"
    if inside and shift[1:].any():
        return "media in another order"
    if inside:
        return "media time too small" if shift[0] < 0 else "media time too large"
    return "text starts too early" if shift[0] < 0 else "text starts too late"


def _torn(tally: ScenarioTally, case: Case, result: protocol.Result) -> None:
    if isinstance(result, protocol.PromptTables):
        table = array(result.table)
        squeezed = table[:, 0] if table.ndim == 3 and table.shape[1] == 1 else table
        view = TornPrompt(torn=case.torn, refused=False, tokens=squeezed.shape[-1])
        shape = accepted.outcome(case, squeezed, array(result.delta))
    else:
        view, shape = TornPrompt(torn=case.torn, refused=True), ""
    for rule, found in ask(tally, case.mode, view):
        tally.fail(failure(case, rule.id, shape or found.shape, f"the builder returns {found.message}"))


def raised(tally: ScenarioTally, case: Case, broken: Broken, result: protocol.Raised) -> None:
    """The engine raised where a table had to be: the first rule that its absence breaks."""
    for rule, _ in told(broken)[:1]:
        message = f"{result.type}: {result.message}"
        tally.fail(failure(case, rule.id, f"raises {result.type}", message, where=result.where))


def outcome(case: Case, tally: ScenarioTally) -> Outcome:
    return Outcome(
        case.id,
        case.name,
        checked=tally.checked,
        by_mode=tally.by_mode,
        failures=tuple(tally.failures),
        modes={case.mode: 1},
        situations=dict.fromkeys((f"{case.mode} x {case.torn or case.builder}", *_bounds(case)), 1),
    )


def _bounds(case: Case) -> tuple[str, ...]:
    """What the case's right tables cross."""
    return () if case.torn else dimensions.counted(dimensions.of_prompt(case.family, expected(case).deltas))


def failure(
    case: Case,
    rule: str,
    shape: str,
    message: str,
    difference: Difference | None = None,
    right: TableView | None = None,
    got: TableView | None = None,
    where: str = "",
) -> Failure:
    return Failure(
        rule=rule,
        mode=case.mode,
        signature=shape,
        step=0,
        label=case.builder,
        message=message,
        difference=difference,
        expected=right,
        observed=got,
        where=where,
    )


def array(tensor: protocol.Tensor) -> Array:
    """The answer's numbers, in its own dtype and shape; a view of its bytes."""
    return np.frombuffer(tensor.data, dtype=tensor.dtype).reshape(tensor.shape)


def number_of(value: np.generic) -> int | float:
    """A whole number as an int."""
    return _number(value.item())


def _numbers(row: Array) -> Iterable[int | float]:
    numbers = row.tolist()
    return numbers if row.dtype.kind in "iu" else map(_number, numbers)


def _number(value: int | float) -> int | float:
    return int(value) if value % 1 == 0 else value


def _view(table: Array | None, columns: int | None) -> TableView | None:
    """Fractions are cut off, and what is no number is -1; the difference has them."""
    if table is None or columns is None:
        return None
    shown = np.nan_to_num(np.asarray(table[:, :columns], dtype=np.float64), nan=-1, posinf=-1, neginf=-1)
    rows = tuple(tuple(map(int, row)) for row in shown)
    return TableView(None, rows, axes=FOUR_AXES if len(rows) == 4 else ())

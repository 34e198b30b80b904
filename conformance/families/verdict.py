"""The verdict on one builder's answer: a pure function of case, answer and target."""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

from ropecheck.adapters import protocol
from ropecheck.conformance.families import accepted
from ropecheck.conformance.families.case import Case, Expected, expected
from ropecheck.conformance.judge.outcome import Difference, Failure, Outcome, TableView, Unrun
from ropecheck.reference.blocks import Table
from ropecheck.spec.families import FAMILIES
from ropecheck.spec.families.omni import has_track
from ropecheck.spec.families.released import continued, one_continuation, released_table

RELEASED = "as the released code"
"""Signature of a table that is the model authors' released code's and not the paper's."""

AXES = ("t", "h", "w")
FOUR_AXES = ("index", "w", "h", "image")
_BEYOND = 64
"""Columns behind the first wrong one that a failure carries; it carries all before it."""

Array = npt.NDArray[np.generic]


def judge(case: Case, result: protocol.Result) -> Outcome:
    """Every rule that the case checks."""
    if isinstance(result, protocol.NotOffered):
        return Outcome(case.id, case.name, not_offered=((case.mode, result.reason),))
    if isinstance(result, protocol.Raised) and result.stage != "engine":
        message = f"{result.type}: {result.message} {result.where}"
        return Outcome(case.id, case.name, unrun=(Unrun(result.stage, message),))
    if case.torn:
        return _judge_refusal(case, result)
    if isinstance(result, protocol.Raised):
        message = f"{result.type}: {result.message}"
        raising = failure(case, "families.table", f"raises {result.type}", message, where=result.where)
        return outcome(case, {"families.table"}, [raising])
    if not isinstance(result, protocol.PromptTables):
        return Outcome(case.id, case.name, unrun=(Unrun("decode", f"a {type(result).__name__} for a prompt table"),))
    want = expected(case)
    table, delta = array(result.table), array(result.delta)
    failures = _judge_shape(case, want, result)
    if table.ndim in (2, 3) and len(table) != FAMILIES[case.family].axes:
        return outcome(case, {"families.dtype_and_shape", "families.delta"}, failures)
    rows = table[:, None, :] if table.ndim == 2 else table
    ahead = None if result.ahead is None else array(result.ahead)
    answered = rows.shape[1] if rows.ndim == 3 else 0
    if answered != len(want.tables):
        failures.append(_unanswered(case, list(table.shape), len(want.tables)))
    deltas: list[int | str] = [number_of(value) for value in delta.reshape(-1)]
    settled = []
    for number, right in enumerate(want.tables[:answered]):
        prompt = len(case.laid[number].ids)
        got = rows[:, number, want.width - prompt :]
        if ahead is not None and number < len(ahead) and right.shape[1] > prompt:
            got = np.concatenate((got, ahead[number][:, : right.shape[1] - prompt]), axis=1)
        if number < len(deltas) and as_released(case, number, right, got):
            failures.extend(_judge_released(case, right, got, deltas[number], number))
        else:
            failures.extend(judge_table(case, right, got, number))
            settled.append(number)
    failures.extend(_judge_deltas(case, want, deltas, settled))
    rules = {
        case.rule,
        "families.text_rows_equal",
        "families.table_width",
        "families.delta",
        "families.dtype_and_shape",
    }
    if any(has_track(run) for laid in case.laid for run in laid.history):
        rules |= {"families.one_continuation", "families.text_after_media"}
    return outcome(case, rules, failures)


def _unanswered(case: Case, shape: list[int], prompts: int) -> Failure:
    """A table that is not one of so many prompts: what it leaves out would be read from somewhere else."""
    message = f"the table is {shape}; a batch of {prompts} prompts needs one table each"
    return failure(case, case.rule, "prompts unanswered", message)


def judge_table(case: Case, right: Table, got: Array, number: int) -> list[Failure]:
    """Width, then values. right: int64 [axes, P]; got: whatever the builder returned for this prompt."""
    if got.shape != right.shape:
        shape = "too few columns" if got.shape[1] < right.shape[1] else "too many columns"
        message = f"prompt {number}: {got.shape[1]} columns for {right.shape[1]} tokens"
        return [failure(case, "families.table_width", shape, message)]
    wrong = np.argwhere((got != right).T)
    if not len(wrong):
        return []
    column, axis = (int(value) for value in wrong[0])
    difference = Difference(
        axis=(FOUR_AXES if len(right) == 4 else AXES)[axis],
        column=column,
        request=number,
        expected=int(right[axis, column]),
        observed=number_of(got[axis, column]),
    )
    message = (
        f"prompt {number}, token {column}: {difference.axis} is {difference.observed}, the family says "
        f"{difference.expected}"
    )
    shown = column + _BEYOND
    view = (_view(right, shown), _view(got, shown))
    inside = any(start <= column < stop for start, stop in case.laid[number].media)
    if not inside and column < len(case.laid[number].ids) and len(set(got[:, column].tolist())) > 1:
        return [failure(case, "families.text_rows_equal", "rows differ", message, difference, *view)]
    return [failure(case, case.rule, signature(case, right, got, number, column), message, difference, *view)]


def signature(case: Case, right: Table, got: Array, number: int, column: int) -> str:
    """In words, where the first wrong column stands and what became of it."""
    laid = case.laid[number]
    if column >= len(laid.ids):
        return "wrong ahead"
    inside = any(start <= column < stop for start, stop in laid.media)
    place = "media" if inside else "text"
    shift = np.asarray(got[:, column], dtype=np.float64) - right[:, column]
    if (np.asarray(got[:, column]) % 1 != 0).any():
        return f"{place} between positions"
    if inside and shift[1:].any():
        return "media in another order"
    if inside:
        return "media time too small" if shift[0] < 0 else "media time too large"
    return "text starts too early" if shift[0] < 0 else "text starts too late"


def _judge_shape(case: Case, want: Expected, result: protocol.PromptTables) -> list[Failure]:
    axes, batch = FAMILIES[case.family].axes, len(want.tables)
    right: list[tuple[int, ...]] = [(axes, batch, want.width)]
    if batch == 1:  # a builder of one prompt needs no batch
        right.insert(0, (axes, want.tables[0].shape[1]))
    fits = len(result.table.shape) in {len(shape) for shape in right}
    found = []
    if result.table.dtype != "int64":
        found.append((f"table is {result.table.dtype}", f"the table is {result.table.dtype}, not int64"))
    if not fits:
        found.append(("table shape", f"the table is {list(result.table.shape)}, not {list(right[0])}"))
    elif result.table.shape[0] != axes:
        found.append(("wrong number of rows", f"the table has {result.table.shape[0]} rows, not {axes}"))
    if result.delta.dtype != "int64":
        found.append((f"delta is {result.delta.dtype}", f"the delta is {result.delta.dtype}, not int64"))
    if result.delta.shape != (batch, 1):
        found.append(("delta shape", f"the delta is {list(result.delta.shape)}, not {[batch, 1]}"))
    return [failure(case, "families.dtype_and_shape", name, message) for name, message in found]


def _judge_deltas(case: Case, want: Expected, got: list[int | str], settled: list[int]) -> list[Failure]:
    """settled: the prompts whose tables are the family's or are wrong."""
    if len(got) != len(want.deltas):
        message = f"{len(got)} deltas for {len(want.deltas)} prompts"
        return [failure(case, "families.delta", "prompts unanswered", message)]
    for number, (right, value) in enumerate(zip(want.deltas, got, strict=True)):
        if right != value and number in settled:
            difference = Difference(axis="delta", request=number, expected=right, observed=value)
            shape = "delta between positions" if isinstance(value, str) else "other value"
            return [failure(case, "families.delta", shape, f"prompt {number}: delta {value}, not {right}", difference)]
    return []


def as_released(case: Case, number: int, right: Array, got: Array) -> bool:
    """Whether the table is not the paper's, and is that of the model authors' released code."""
    history = case.laid[number].history
    if got.shape != right.shape or np.array_equal(got, right):
        return False
    return np.array_equal(got, np.array(released_table(FAMILIES[case.family], history), dtype=np.int64).T)


def _judge_released(case: Case, right: Table, got: Array, delta: int | str, number: int) -> list[Failure]:
    """Neither right nor a mistake: both tables are told. A delta that continues neither is a mistake all the same."""
    (wrong,) = judge_table(case, right, got, number)
    found = [msgspec.structs.replace(wrong, rule="families.text_after_media", signature=RELEASED)]
    table = released_table(FAMILIES[case.family], case.laid[number].history)
    if case.laid[number].history[-1].is_text and not one_continuation(table, int(float(delta))):
        mine = int(continued(table))
        message = f"prompt {number}: its text ends at {max(table[-1])}, its delta {delta} goes on at "
        message += f"{int(float(delta)) + len(table)}; behind its own text is {mine}"
        difference = Difference(axis="delta", request=number, expected=mine, observed=delta)
        found.append(failure(case, "families.one_continuation", "contradicts its own table", message, difference))
    return found


def _judge_refusal(case: Case, result: protocol.Result) -> Outcome:
    if isinstance(result, protocol.Raised):
        return outcome(case, {case.rule}, [])
    if not isinstance(result, protocol.PromptTables):
        return Outcome(case.id, case.name, unrun=(Unrun("decode", f"a {type(result).__name__} for a prompt table"),))
    table = array(result.table)
    squeezed = table[:, 0] if table.ndim == 3 and table.shape[1] == 1 else table
    shape = accepted.outcome(case, squeezed, array(result.delta))
    message = f"the builder returns a table of {squeezed.shape[-1]} columns though the input is torn: {case.torn}"
    return outcome(case, {case.rule}, [failure(case, case.rule, shape, message)])


def outcome(case: Case, rules: set[str], failures: list[Failure]) -> Outcome:
    return Outcome(
        case.id,
        case.name,
        checked=dict.fromkeys(sorted(rules), 1),
        by_mode={rule: {case.mode: 1} for rule in rules},
        failures=tuple(failures),
        modes={case.mode: 1},
        situations={f"{case.mode} x {case.torn or case.builder}": 1},
    )


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
    """The answer's numbers."""
    return np.frombuffer(tensor.data, dtype=tensor.dtype).reshape(tensor.shape)


def number_of(value: np.generic) -> int | str:
    """A whole number as an int; anything between as text."""
    number = float(value)
    return int(number) if number.is_integer() else str(number)


def _view(table: Array, columns: int) -> TableView:
    """Fractions are cut off; the difference has them."""
    rows = tuple(tuple(int(value) for value in row[:columns]) for row in table)
    return TableView(None, rows, axes=FOUR_AXES if len(rows) == 4 else ())

"""The verdict on one forward's tables: the answer laid beside the script, and every rule asked."""

import struct
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ropecheck.adapters import protocol
from ropecheck.conformance.judge.ask import Settled, as_bytes, ask, no_tables
from ropecheck.conformance.judge.outcome import Difference, Failure, TableView, Unrun
from ropecheck.conformance.judge.signature import column_signature, fill_signature, index_signature
from ropecheck.conformance.judge.tally import ScenarioTally
from ropecheck.conformance.plan.planner import TableCheck, decoded
from ropecheck.conformance.scenario.forward import ExpectedTables
from ropecheck.reference.tables import BatchTables, Span
from ropecheck.reference.timeline import IntArray, Timeline
from ropecheck.spec.rules import Rule, Violation
from ropecheck.spec.views import Built, Filler, Loop, Row, Seen, Tables, Twice

FORMATS = {"int64": "q", "int32": "i", "int16": "h", "int8": "b", "uint8": "B"}
"""Integer dtypes as struct formats: little-endian bytes are read without a copy of each number."""


@dataclass(frozen=True, slots=True)
class _Site:
    """What one table of an answer is judged with."""

    tally: ScenarioTally
    check: TableCheck
    label: str = ""
    want: BatchTables | None = None
    got: protocol.TablePair | None = None

    @property
    def mode(self) -> str:
        return self.check.expected.mode_of(self.label)


_settled = Settled()


def judge_tables(tally: ScenarioTally, check: TableCheck, result: protocol.TablesAnswer) -> None:
    """Judge every table that the forward answered, and what building it changed."""
    expected = check.expected
    for name in {expected.mode_of(label) for label in check.labels}:
        tally.note(name, result.ran)
    tally.reached += check.situations
    if not expected.small:
        _forward(tally, check, result)
        return
    asked = (expected, *check.labels, check.positions_only, check.echoed, as_bytes(result))
    _settled.once(tally, asked, lambda: _forward(tally, check, result))


def _forward(tally: ScenarioTally, check: TableCheck, result: protocol.TablesAnswer) -> None:
    expected, site = check.expected, _Site(tally, check)
    mode = expected.mode.name
    _ask(site, Built(mode=mode, changed=result.changed))
    answered = {table.label: table for table in result.tables}
    if len(answered) != len(result.tables):
        tally.unrun.append(Unrun(stage="decode", message=f"{mode}: two tables of one label", step=check.op))
        return
    if expected.mode.forwards is not None:
        wanted, steps = (sum(label.startswith("step ") for label in known) + 1 for known in (check.labels, answered))
        if _ask(site, Loop(mode=mode, must=wanted, ran=steps)):
            return
    for label, name in check.labels.items():
        table, site = answered.get(label), _Site(tally, check, label, expected.tables[name], answered.get(label))
        if table is None:
            known = ", ".join(map(repr, answered)) or "none"
            for rule, found in no_tables(tally, site.mode):
                _fail(site, rule.id, found.shape, f"no table {label!r}; answered: {known}")
        else:
            _table(site, expected.tables[name], table)
    first, again = answered.get(""), answered.get("again")
    if first is not None and again is not None and "again" in check.labels:
        one, two = (first.positions, first.mrope), (again.positions, again.mrope)
        _ask(_Site(tally, check, "again"), Twice(mode=mode, first=one, second=two))


def _table(site: _Site, want: BatchTables, got: protocol.TablePair) -> None:
    check = site.check
    expected, mode = check.expected, check.expected.mode
    buffer = expected.buffer if site.label == "padded" or expected.buffer == "tier" else ""
    if got.matched:
        got = _as_compared(want)
    positions, rows = seen(got.positions), None if check.positions_only else seen(got.mrope)
    view = Tables(
        mode=mode.name,
        tokens=want.positions.size,
        positions=positions,
        rows=rows,
        index_dtype=mode.index_dtype,
        one_dimensional=check.positions_only or not mode.three_rows,
        buffer=buffer,
    )
    broken = _ask(site, view)
    if any(rule.id != "table.dtype" for rule in broken) or positions is None:
        return
    if not positions.values or (rows is not None and not rows.values):
        if not broken:
            told = f"{mode.name}: a table's bytes do not fit its shape"
            site.tally.unrun.append(Unrun(stage="decode", message=told, step=check.op))
        return
    columns = rows.values if rows is not None and mode.three_rows else None
    if {len(values) for values in (positions.values[0], *(columns or ()))} != {want.positions.size}:
        return  # nothing can be laid beside it; the rules on widths have been asked
    for span, line in zip(want.spans, expected.lines, strict=True):
        part = slice(span.start, span.stop)
        row = Row(
            mode=mode.name,
            place=line.place,
            tokens=span.tokens.tolist(),
            positions=positions.values[0][part],
            columns=None if columns is None else tuple(values[part] for values in columns),
            given=check.echoed,
            buffer=buffer,
        )
        for rule, found in ask(site.tally, site.mode, row):
            _wrong_row(site, want, span, row, rule, found)
    if buffer:
        filler = Filler(
            mode=mode.name,
            buffer=buffer,
            positions=positions.values[0][want.live :],
            columns=tuple(values[want.live :] for values in columns or ()),
        )
        _ask(site, filler, want.live)


def seen(tensor: protocol.Tensor | None) -> Seen | None:
    """A tensor as the rules look at it; without values where it has no shape that can be read in rows of ints."""
    if tensor is None:
        return None
    code = FORMATS.get(tensor.dtype)
    values: tuple[list[int], ...] = ()
    if code is not None and len(tensor.shape) in (1, 2):
        width = tensor.shape[-1]
        try:
            flat = list(struct.unpack(f"<{len(tensor.data) // struct.calcsize(code)}{code}", tensor.data))
        except struct.error:
            flat = []
        rows = 1 if len(tensor.shape) == 1 else tensor.shape[0]
        if len(flat) == rows * width:
            values = tuple(flat[row * width : (row + 1) * width] for row in range(rows))
    return Seen(dtype=tensor.dtype, shape=tensor.shape, values=values)


def _as_compared(want: BatchTables) -> protocol.TablePair:
    """What stayed on the device because it was compared there and is right."""
    positions = want.positions.astype(want.index_dtype, copy=False)
    index = protocol.Tensor(want.index_dtype, tuple(positions.shape), positions.tobytes())
    rows = None
    if want.rows is not None:
        rows = protocol.Tensor("int64", tuple(want.rows.shape), want.rows.tobytes())
    return protocol.TablePair("", index, rows)


def _ask(site: _Site, view: object, start: int = 0) -> list[Rule]:
    """Ask the rules of a view of the whole forward, and report what it breaks; returns the broken rules."""
    broken = ask(site.tally, site.mode, view)
    for rule, found in broken:
        shape, message = found.shape, found.message
        at = None if found.at is None else found.at + start
        if isinstance(view, Filler):
            shape = fill_signature(site.check.expected, view, start, _deltas(site.tally, site.check.expected))
            message = f"column {at} is padding and holds {found.observed}, must be 0"
        request = -1 if at is None else _request_at(site, at)
        difference = Difference(found.axis, at, request, found.expected, found.observed)
        _fail(site, rule.id, shape, message, difference)
    return [rule for rule, _ in broken]


def _wrong_row(site: _Site, want: BatchTables, span: Span, row: Row, rule: Rule, found: Violation) -> None:
    """A row of the batch breaks a rule: the shape of what is wrong, and whether its own held state explains it."""
    assert found.at is not None
    tally, expected, column = site.tally, site.check.expected, span.start + found.at
    req = expected.batch.reqs[span.row]
    follows = ""
    if found.axis == "1d":
        signature = index_signature(span.tokens, np.array(row.positions))
        message = f"1-D table, column {column}: {found.observed}, must be {found.expected}"
    else:
        assert want.rows is not None and row.columns is not None
        good, bad = want.rows[:, span.start : span.stop], np.array(row.columns, dtype=np.int64)
        wrong = (good != bad).any(axis=0) & _governed(rule, row)
        columns, indices = np.arange(span.start, span.stop)[wrong], span.tokens[wrong]
        deltas = _deltas(tally, expected)
        signature = column_signature(expected, span, columns, indices, good[:, wrong], bad[:, wrong], deltas)
        message = f"column {column}: {_tuple(bad[:, found.at])}, must be {_tuple(good[:, found.at])}"
        follows = tally.tainted.get(req, "")
        if follows and not _implied(tally, req, indices, bad[:, wrong]):
            follows = ""
        if follows:
            signature = f"follows from {follows}"
    difference = Difference(found.axis, column, req, found.expected, found.observed)
    _fail(site, rule.id, signature, message, difference, follows)


def _governed(rule: Rule, row: Row) -> npt.NDArray[np.bool_]:
    """Which of the row's tokens the rule speaks of."""
    mask = np.ones(len(row.tokens), dtype=bool)
    if rule.id in ("table.inside_table", "table.past_table"):
        mask[list(row.past if rule.id == "table.inside_table" else row.inside)] = False
    return mask


def _deltas(tally: ScenarioTally, expected: ExpectedTables) -> list[int]:
    """Per request of a batch, the delta that the engine holds: the right one unless it was seen to be wrong."""
    out = []
    for req, line in zip(expected.batch.reqs, expected.lines, strict=True):
        held = decoded(tally.held[req][1]) if req in tally.tainted and req in tally.held else None
        out.append(line.delta if held is None or held.size != 1 else int(held.flat[0]))
    return out


def _implied(tally: ScenarioTally, req: int, indices: IntArray, bad: IntArray) -> bool:
    """Whether these wrong columns are the ones that the request's own (wrong) table and delta give: a token's column of
    the table where it reaches, or index + delta, which a decode adds without a look at the table."""
    if req not in tally.held:  # no table at all: text
        return bool((bad == indices).all())
    table, delta = (decoded(part) for part in tally.held[req])
    if table.ndim != 2 or delta.size != 1:
        return False
    shift = int(delta.flat[0])
    line = Timeline(table=table, delta=shift, tabulated=table.shape[1], has_media=True)
    by_table, by_delta = line.take(indices), np.broadcast_to(indices + shift, bad.shape)
    return bool(((by_table == bad).all(axis=0) | (by_delta == bad).all(axis=0)).all())


def _fail(
    site: _Site, rule: str, signature: str, message: str, difference: Difference | None = None, follows: str = ""
) -> None:
    expected, observed = _views(site)
    site.tally.fail(
        Failure(
            rule=rule,
            mode=site.mode,
            signature=signature,
            step=site.check.op,
            label=site.label,
            message=message,
            difference=difference,
            expected=expected,
            observed=observed,
            follows=follows,
        )
    )


def _views(site: _Site) -> tuple[TableView | None, TableView | None]:
    """Both tables for people; None where the answer's cannot be shown."""
    want, got = site.want, site.got
    if want is None or got is None or got.positions is None:
        return None, None
    owners = [-1] * want.positions.size
    for span in want.spans:
        owners[span.start : span.stop] = [site.check.expected.batch.reqs[span.row]] * (span.stop - span.start)
    good = TableView(_row(want.positions), None if want.rows is None else tuple(map(_row, want.rows)), tuple(owners))
    try:
        positions = decoded(got.positions)
        rows = None if got.mrope is None else decoded(got.mrope)
    except protocol.ProtocolError:
        return good, None
    shown = None if rows is None or rows.ndim != 2 else tuple(map(_row, rows))
    return good, TableView(_row(positions.ravel()), shown, ())


def _row(values: IntArray) -> tuple[int, ...]:
    return tuple(values.tolist())


def _tuple(values: IntArray) -> str:
    return "(" + ", ".join(str(value) for value in values.tolist()) + ")"


def _request_at(site: _Site, column: int) -> int:
    """The scenario's number of the request that a column belongs to; -1 for padding."""
    for span in site.want.spans if site.want is not None else ():
        if span.start <= column < span.stop:
            return site.check.expected.batch.reqs[span.row]
    return -1

"""The verdict on one forward's tables: presence, dtype, rows, width, then cell by cell."""

from __future__ import annotations

import numpy as np

from ropecheck.adapters import protocol
from ropecheck.conformance.judge.outcome import Difference, Failure, TableView, Unrun
from ropecheck.conformance.judge.signature import column_signature, index_signature, width_signature
from ropecheck.conformance.judge.tally import Tally
from ropecheck.conformance.plan.planner import RightAnswer, TableCheck, decoded
from ropecheck.reference.batches import Expected
from ropecheck.reference.tables import Tables
from ropecheck.reference.timeline import IntArray, Timeline
from ropecheck.spec.modes import cells

AXES = ("t", "h", "w", "x")
"""Names of a table's rows."""


def judge_tables(tally: Tally, check: TableCheck, result: protocol.Tables) -> None:
    mode = check.expected.mode
    for name in {check.expected.mode_of(label) for label in check.labels}:
        tally.modes[name] = tally.modes.get(name, 0) + 1
        tally.note(name, result.ran)
    for key in check.situations:
        tally.situations[key] = tally.situations.get(key, 0) + 1
    tally.check("ownership.batch_is_read_only")
    if result.changed:
        tally.fail(
            Failure(
                rule="ownership.batch_is_read_only",
                mode=mode,
                signature="changed " + ", ".join(result.changed),
                step=check.op,
                label="",
                message=f"building the forward changed {', '.join(result.changed)}",
            )
        )
    answered = {table.label: table for table in result.tables}
    if len(answered) != len(result.tables):
        tally.unrun.append(Unrun(stage="decode", message=f"{mode}: two tables of one label", step=check.op))
        return
    if mode == "draft_decode":
        tally.check("draft_decode.forwards")
        steps = sum(label.startswith("step ") for label in answered)
        wanted = sum(label.startswith("step ") for label in check.labels)
        if steps != wanted:
            _fail(
                tally,
                check,
                "draft_decode.forwards",
                "too many forwards" if steps > wanted else "too few forwards",
                "",
                f"{steps + 1} draft forwards, must be {wanted + 1}",
                Difference("forwards", expected=wanted + 1, observed=steps + 1),
            )
            return
    for label, name in check.labels.items():
        table = answered.get(label)
        if table is None:
            tally.check("table.present")
            found = ", ".join(repr(known) for known in answered) or "none"
            _fail(tally, check, "table.present", "table missing", label, f"no table {label!r}; answered: {found}")
        else:
            _table(tally, check, label, check.expected.tables[name], table)
    first, again = answered.get(""), answered.get("again")
    if first is not None and again is not None and "again" in check.labels:
        tally.check("laws.same_step_twice")
        if (first.positions, first.mrope) != (again.positions, again.mrope):
            _fail(
                tally,
                check,
                "laws.same_step_twice",
                "second build differs",
                "again",
                "the same batch built twice gave two different tables",
            )


def _right(check: TableCheck, label: str, want: Tables) -> RightAnswer:
    """What a right engine answers for this table."""
    mode = check.expected.mode
    positions = want.positions.astype(cells.dtype(mode, True), copy=False)
    rules = {"table.present", "table.dtype", want.width_rule}
    if not check.echoed:
        rules |= {span.index_rule for span in want.spans}
    mrope = None
    if want.mrope is not None and not check.positions_only:
        mrope = protocol.Tensor(cells.dtype(mode, False), tuple(want.mrope.shape), want.mrope.tobytes())
        rules |= {"table.three_rows", *(span.column_rule for span in want.spans)}
    known = RightAnswer(
        protocol.Tensor(positions.dtype.name, tuple(positions.shape), positions.tobytes()), mrope, tuple(rules)
    )
    check.right[label] = known
    return known


def _table(tally: Tally, check: TableCheck, label: str, want: Tables, got: protocol.Table) -> None:
    right = check.right.get(label) or _right(check, label, want)
    if got.matched:
        tally.check(*right.rules)
        return
    if got.positions == right.positions and (right.mrope is None or got.mrope == right.mrope):
        tally.check(*right.rules)
        return
    mode = check.expected.mode
    tally.check("table.present", "table.dtype")
    if not _dtype(tally, check, label, "1d", got.positions, cells.dtype(mode, True)):
        return
    assert got.positions is not None
    positions = decoded(got.positions)
    rows: IntArray | None = None
    if want.mrope is not None and not check.positions_only:
        tally.check("table.three_rows")
        if not _dtype(tally, check, label, "rows", got.mrope, cells.dtype(mode, False)):
            return
        assert got.mrope is not None
        rows = decoded(got.mrope)
        axes = want.mrope.shape[0]
        if rows.ndim != 2 or rows.shape[0] != axes:
            shape = f"[{', '.join(map(str, rows.shape))}]"
            _fail(
                tally,
                check,
                "table.three_rows",
                "wrong number of rows",
                label,
                f"shape {shape}, not [{axes}, T]",
                Difference("rows", expected=axes, observed=shape),
            )
            return
    tally.check(want.width_rule)
    width = want.positions.size
    for axis, array in (("1d", positions), ("t", rows)):
        if array is not None and array.shape[-1:] != (width,):
            observed = array.shape[-1] if array.ndim else 0
            _fail(
                tally,
                check,
                want.width_rule,
                width_signature(width, observed),
                label,
                f"{observed} columns for {width} tokens ({'1-D' if axis == '1d' else 'three-row'} table)",
                Difference(
                    axis,
                    min(observed, width),
                    _request_at(check.expected, want, min(observed, width - 1)),
                    width,
                    observed,
                ),
                _view(check.expected, want, positions, rows),
            )
            return
    _cells(tally, check, label, want, positions, rows)


def _cells(
    tally: Tally, check: TableCheck, label: str, want: Tables, positions: IntArray, rows: IntArray | None
) -> None:
    right_index = positions.tobytes() == want.positions.tobytes()
    right_rows = rows is None or want.mrope is None or rows.tobytes() == want.mrope.tobytes()
    rules = set() if check.echoed else {span.index_rule for span in want.spans}
    if rows is not None:
        rules |= {span.column_rule for span in want.spans}
    tally.check(*rules)
    if right_index and right_rows:
        return
    for span in want.spans:
        part = slice(span.start, span.stop)
        index, seen = want.positions[part], positions[part]
        if not right_index and (index != seen).any():
            column = int((index != seen).argmax())
            _fail(
                tally,
                check,
                span.index_rule,
                index_signature(index, seen),
                label,
                f"1-D table, column {span.start + column}: {seen[column]}, must be {index[column]}",
                Difference(
                    "1d",
                    span.start + column,
                    _request(check.expected, span.request),
                    int(index[column]),
                    int(seen[column]),
                ),
                _view(check.expected, want, positions, rows),
            )
        if right_rows or rows is None or want.mrope is None:
            continue
        good, bad = want.mrope[:, part], rows[:, part]
        if (good != bad).any():
            column = int((good != bad).any(axis=0).argmax())
            axis = int((good[:, column] != bad[:, column]).argmax())
            req = _request(check.expected, span.request)
            wrong = (good != bad).any(axis=0)
            columns = np.arange(span.start, span.stop)[wrong]
            signature = column_signature(
                check.expected,
                span,
                columns,
                index[wrong],
                good[:, wrong],
                bad[:, wrong],
                _deltas(tally, check.expected),
            )
            follows = tally.tainted.get(req, "")
            if follows and not _implied(tally, req, index[wrong], bad[:, wrong]):
                follows = ""
            if follows:
                signature = f"follows from {follows}"
            _fail(
                tally,
                check,
                span.column_rule,
                signature,
                label,
                f"column {span.start + column}: {_tuple(bad[:, column])}, must be {_tuple(good[:, column])}",
                Difference(AXES[axis], span.start + column, req, int(good[axis, column]), int(bad[axis, column])),
                _view(check.expected, want, positions, rows),
                follows,
            )


def _deltas(tally: Tally, expected: Expected) -> list[int]:
    """Per request of a batch, the delta that the engine holds: the right one unless it was seen to be wrong."""
    out = []
    for req, line in zip(expected.batch.reqs, expected.lines, strict=True):
        held = decoded(tally.held[req][1]) if req in tally.tainted and req in tally.held else None
        out.append(line.delta if held is None or held.size != 1 else int(held.flat[0]))
    return out


def _implied(tally: Tally, req: int, indices: IntArray, bad: IntArray) -> bool:
    """Whether these wrong columns are the ones that the request's own (wrong) table and delta give."""
    if req not in tally.held:
        return False
    table, delta = (decoded(part) for part in tally.held[req])
    if table.ndim != 2 or delta.size != 1:
        return False
    line = Timeline(table=table, delta=int(delta.flat[0]), tabulated=table.shape[1], has_media=True)
    return bool((line.take(indices) == bad).all())


def _dtype(tally: Tally, check: TableCheck, label: str, name: str, tensor: protocol.Tensor | None, dtype: str) -> bool:
    if tensor is None:
        _fail(
            tally,
            check,
            "table.present",
            "table missing",
            label,
            f"the {'1-D' if name == '1d' else 'three-row'} table is unset",
            Difference(name, observed="None"),
        )
        return False
    if tensor.dtype != dtype:
        _fail(
            tally,
            check,
            "table.dtype",
            f"dtype {tensor.dtype}",
            label,
            f"dtype {tensor.dtype}, must be {dtype}",
            Difference(name, expected=dtype, observed=tensor.dtype),
        )
        return tensor.dtype.startswith(("int", "uint"))
    return True


def _fail(
    tally: Tally,
    check: TableCheck,
    rule: str,
    signature: str,
    label: str,
    message: str,
    difference: Difference | None = None,
    views: tuple[TableView, TableView] | None = None,
    follows: str = "",
) -> None:
    expected, observed = views or (None, None)
    tally.fail(
        Failure(
            rule=rule,
            mode=check.expected.mode_of(label),
            signature=signature,
            step=check.op,
            label=label,
            message=message,
            difference=difference,
            expected=expected,
            observed=observed,
            follows=follows,
        )
    )


def _view(expected: Expected, want: Tables, positions: IntArray, rows: IntArray | None) -> tuple[TableView, TableView]:
    owners = [_request(expected, span.request) for span in want.spans for _ in range(span.start, span.stop)]
    good = TableView(_row(want.positions), None if want.mrope is None else tuple(map(_row, want.mrope)), tuple(owners))
    bad = TableView(_row(positions.ravel()), None if rows is None else tuple(map(_row, rows)), ())
    return good, bad


def _row(values: IntArray) -> tuple[int, ...]:
    return tuple(values.tolist())


def _tuple(values: IntArray) -> str:
    return "(" + ", ".join(str(value) for value in values.tolist()) + ")"


def _request(expected: Expected, row: int) -> int:
    """The scenario's number of a batch row; -1 for padding."""
    return expected.batch.reqs[row] if 0 <= row < len(expected.batch.reqs) else -1


def _request_at(expected: Expected, want: Tables, column: int) -> int:
    for span in want.spans:
        if span.start <= column < span.stop:
            return _request(expected, span.request)
    return -1

"""The rotary embedding's answers, laid into the views that spec/rotary.py judges."""

from array import array
from functools import lru_cache
from typing import Any

import numpy as np

from ropecheck.adapters import protocol
from ropecheck.conformance.judge.ask import ask
from ropecheck.conformance.judge.outcome import Unrun, failure_of
from ropecheck.conformance.judge.signature import raise_signature, raised_line
from ropecheck.conformance.judge.tally import ScenarioTally
from ropecheck.conformance.plan.rotary import RotaryCheck, heads
from ropecheck.reference.rotary import LAYOUTS, Floats, bounded
from ropecheck.spec.rotary import Heads, OfView, Reach, Rotation, RowMoved, TableAfter, TokenHeads

MODE = "rotary"
"""What reports file it under."""

PARTS = ("query", "key")

TOLERANCE = 2e-4
"""Of float32 sines and cosines of positions up to a hundred; it grows with the position."""


def judge_rotary(tally: ScenarioTally, check: RotaryCheck, answer: protocol.JobAnswer) -> None:
    """Judge the answers; without the first there is nothing to compare the others with."""
    first, *others = (answer.results[number] for number in check.results)
    layout, seen = LAYOUTS[check.layout], _heads(tally, check, first)
    if not isinstance(first, protocol.Rotated) and not _raised(first):
        return
    most = int(check.table.max())
    turned = Rotation(
        layout=layout,
        table=tuple(row.tolist() for row in check.table),
        given=_given(check.table.shape[1], layout.head_size, check.method),
        seen=seen,
        tolerance=TOLERANCE * max(1.0, most / 100),
    )
    if bounded(check.layout):
        error = first.type if isinstance(first, protocol.Raised) else ""
        _ask(tally, check, Reach(position=most, prepared=layout.longest, error=error, rotation=turned), first)
        return
    _ask(tally, check, turned, first)
    *moved, of_view = others
    if seen is None or not all(part.dims for part in seen):
        return
    for row, result in enumerate(moved):
        after = _heads(tally, check, result)
        if after is not None or _raised(result):
            _ask(tally, check, RowMoved(layout=layout, row=row, before=seen, after=after), result)
    view = _heads(tally, check, of_view)
    if view is not None or _raised(of_view):
        _ask(tally, check, OfView(layout=layout, copy=seen, view=view), of_view)


def _raised(result: protocol.Result) -> bool:
    """Whether the engine itself raised."""
    return isinstance(result, protocol.Raised) and result.stage == "engine"


def _heads(tally: ScenarioTally, check: RotaryCheck, result: protocol.Result) -> Heads | None:
    """Query and key as answered, and what became of the table; None, with the reason told, where there are none."""
    if isinstance(result, protocol.NotOfferedAnswer):
        tally.not_offered.append((MODE, result.reason))
    elif isinstance(result, protocol.Raised):
        if not _raised(result):
            tally.unrun.append(Unrun(stage=result.stage, message=f"{MODE}: {raised_line(result)}", step=check.op))
    elif not isinstance(result, protocol.Rotated):
        tally.unrun.append(Unrun(stage="decode", message=f"answered with {type(result).__name__}", step=check.op))
    else:
        tally.note(MODE, result.ran)
        _ask(tally, check, TableAfter(changed=result.table_changed), result)
        size = LAYOUTS[check.layout].head_size
        given = _given(check.table.shape[1], size, check.method)
        answered = zip(PARTS, (result.query, result.key), given, strict=True)
        return tuple(_part(name, tensor, right, size) for name, tensor, right in answered)
    return None


def _part(name: str, tensor: protocol.Tensor, right: TokenHeads, size: int) -> TokenHeads:
    if (tensor.dtype, tensor.shape) != (right.dtype, right.shape):
        return TokenHeads(name=name, dtype=tensor.dtype, shape=tensor.shape, dims=())
    return as_part(name, np.frombuffer(tensor.data, dtype="<f4").astype(np.float64).reshape(tensor.shape[0], -1, size))


@lru_cache(maxsize=64)
def _given(tokens: int, size: int, method: str) -> Heads:
    return tuple(as_part(name, part) for name, part in zip(PARTS, heads(tokens, size, method), strict=True))


def as_part(name: str, values: Floats) -> TokenHeads:
    """values: [T, heads, size]."""
    tokens, many, size = values.shape
    dims = np.ascontiguousarray(values.transpose(2, 0, 1)).reshape(size, -1)
    return TokenHeads(name=name, shape=(tokens, many * size), dims=tuple(array("d", dim.tobytes()) for dim in dims))


def _ask(tally: ScenarioTally, check: RotaryCheck, view: object, result: protocol.Result) -> None:
    """Another method is a kernel of its own: its faults are findings of their own."""
    raised = result if isinstance(result, protocol.Raised) else None
    for rule, found in ask(tally, MODE, view):
        signature, message = found.shape, found.message
        if raised is not None:
            signature = signature or raise_signature(raised.type, raised.where)
            message = f"{message}: {raised_line(raised)}" if found.shape else raised_line(raised)
        more: dict[str, Any] = {
            "signature": signature if check.method == "native" else f"{signature} ({check.method})",
            "label": check.method,
            "message": f"{check.layout}, {check.method}: {message}",
            "where": "" if raised is None else raised.where,
        }
        more |= {} if found.expected is not None else {"difference": None}
        tally.fail(failure_of(rule.id, MODE, found, check.req, step=check.op, **more))

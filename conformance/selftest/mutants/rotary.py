"""Faults in the consumer of the three-row table: the rotary embedding."""

from collections.abc import Callable

import msgspec
import numpy as np

from ropecheck.adapters import protocol
from ropecheck.conformance.plan.planner import decoded
from ropecheck.conformance.reference_engine import ReferenceEngine, tensor
from ropecheck.conformance.selftest.mutants.base import Mutant
from ropecheck.reference.timeline import IntArray


def _mutant(name: str, like: str, says: str, change: Callable[[protocol.Rotary], protocol.Rotary]) -> Mutant:
    """A fault that reads the step otherwise."""

    class Turning(ReferenceEngine):
        def rotate(self, step: protocol.Rotary) -> protocol.Rotated:
            return super().rotate(change(step))

    return Mutant(name, like, says, Turning)


def _with(step: protocol.Rotary, **fields: object) -> protocol.Rotary:
    return msgspec.structs.replace(step, **fields)


def _table(step: protocol.Rotary, table: IntArray) -> protocol.Rotary:
    return _with(step, table=tensor(table))


def _boundary(step: protocol.Rotary) -> protocol.Rotary:
    t, h, w = step.sections
    return step if step.interleaved else _with(step, sections=(t, h - 1, w + 1))


def _one_row(row: int) -> Callable[[protocol.Rotary], protocol.Rotary]:
    def change(step: protocol.Rotary) -> protocol.Rotary:
        table = decoded(step.table).copy()
        table[row] = table[0]
        return _table(step, table)

    return change


def _whole_head(step: protocol.Rotary) -> protocol.Rotary:
    factor = step.head_size // step.rotary_dim
    return _with(step, rotary_dim=step.head_size, sections=tuple(pairs * factor for pairs in step.sections))


def _packed(step: protocol.Rotary) -> protocol.Rotary:
    """The buffer's first 3 * T numbers."""
    if not step.buffer:
        return step
    table = decoded(step.table)
    wide = np.zeros((len(table), step.buffer), dtype=np.int64)
    wide[:, : table.shape[1]] = table
    return _table(step, wide.ravel()[: table.size].reshape(table.shape))


def _early_tokens(step: protocol.Rotary) -> protocol.Rotary:
    """Tokens after the first 128 are at position 0."""
    table = decoded(step.table).copy()
    table[:, 128:] = 0
    return _table(step, table)


class _FirstTable(ReferenceEngine):
    """Angles are kept from the first table of a width, as if every forward were that one."""

    def __init__(self) -> None:
        super().__init__()
        self.first: dict[int, protocol.Tensor] = {}

    def rotate(self, step: protocol.Rotary) -> protocol.Rotated:
        return super().rotate(_with(step, table=self.first.setdefault(step.table.shape[1], step.table)))


class _WritesTable(ReferenceEngine):
    """Positions are turned in place."""

    def rotate(self, step: protocol.Rotary) -> protocol.Rotated:
        return msgspec.structs.replace(super().rotate(step), table_changed=True)


class _FewHeads(ReferenceEngine):
    """Query heads after the first two are left as they were."""

    def rotate(self, step: protocol.Rotary) -> protocol.Rotated:
        out = super().rotate(step)
        kept = 2 * step.head_size
        query = np.frombuffer(out.query.data, np.float32).reshape(out.query.shape).copy()
        query[:, kept:] = np.frombuffer(step.query.data, np.float32).reshape(step.query.shape)[:, kept:]
        return msgspec.structs.replace(out, query=protocol.Tensor("float32", out.query.shape, query.tobytes()))


MUTANTS = (
    Mutant("rotary keeps its first table", "slip", "angles are cached by the width of the table", _FirstTable),
    Mutant("rotary writes into the table", "slip", "positions are changed in place", _WritesTable),
    Mutant("rotary turns two heads", "slip", "query heads after the second are left out", _FewHeads),
    _mutant("rotary turns 128 tokens", "slip", "a kernel's second program is never started", _early_tokens),
    _mutant("rotary section one pair short", "slip", "the h section ends one pair early", _boundary),
    _mutant(
        "rotary interleaving ignored",
        "slip",
        "interleaved sections are taken for contiguous ones",
        lambda step: _with(step, interleaved=False),
    ),
    _mutant("rotary ignores the h row", "slip", "the h pairs are turned by t", _one_row(1)),
    _mutant("rotary ignores the w row", "slip", "the w pairs are turned by t", _one_row(2)),
    _mutant("rotary turns the whole head", "slip", "a partial rotation turns every dimension", _whole_head),
    _mutant(
        "rotary of another base", "slip", "the base is not the model's", lambda step: _with(step, base=step.base * 2)
    ),
    _mutant(
        "rotary clamps positions",
        "slip",
        "a position past the prepared ones reads the last one",
        lambda step: _table(step, np.minimum(decoded(step.table), step.longest - 1)),
    ),
    _mutant("rotary unscaled", "slip", "the scaling is not read", lambda step: _with(step, scaling=None)),
    _mutant(
        "rotary of alternating sections as contiguous",
        "slip",
        "h and w do not take turns",
        lambda step: _with(step, alternating=False),
    ),
    _mutant("rotary backwards", "slip", "the sine has the wrong sign", lambda step: _table(step, -decoded(step.table))),
    _mutant("rotary ignores the stride", "slip", "rows of a wider buffer are read as packed ones", _packed),
)

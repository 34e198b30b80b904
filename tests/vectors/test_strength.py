"""How much the vectors see: planted faults in a forward's tables, answered through the vectors."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from ropecheck.adapters import protocol
from ropecheck.adapters.batch import Batch
from ropecheck.conformance.plan.planner import decoded
from ropecheck.conformance.reference_engine import Held, ReferenceEngine
from ropecheck.conformance.scenario.forward import OWN_NAME
from ropecheck.conformance.selftest.mutants import cells, forwards, generic, padding
from ropecheck.conformance.selftest.mutants.base import Mutant
from ropecheck.conformance.vectors import store
from ropecheck.conformance.vectors import types as v
from ropecheck.conformance.vectors.grade import grade
from ropecheck.conformance.vectors.runs import history_of, media_spans
from ropecheck.spec.families import family as find_family
from ropecheck.spec.modes import all_modes
from tests.vectors.conftest import COMMITTED

UNSEEN = {
    "extend changes the media": "inputs are data: nothing shows that they were changed",
    "decode edits in place": "shows only when the same forward is built again",
    "text verify copies from the host": "copies are not counted",
    "decode copies per request": "copies are not counted",
    "draft extend copies too often": "copies are not counted",
}
"""Faults that no vector can show, and why. All others must be caught."""


def _hold(engine: ReferenceEngine, family: str, requests: tuple[v.VectorRequest, ...], first: int) -> tuple[int, ...]:
    """Give the engine these requests, numbered from `first`."""
    for number, request in enumerate(requests, start=first):
        spans = media_spans(find_family(family), history_of(request.runs))
        table = np.array(request.table, dtype=np.int64)
        engine.held[number] = Held(
            tuple(range(table.shape[1])), table, request.delta, spans, 1 << 20, media_width=request.tabulated
        )
    return tuple(range(first, first + len(requests)))


def _step(
    batch: Batch, reqs: tuple[int, ...], padding: protocol.Padding | None = None, tier: int = 0
) -> protocol.BuildForward:
    parts = tuple(replace(part, reqs=tuple(reqs[req] for req in part.reqs)) for part in batch.parts)
    return protocol.BuildForward(batch=Batch(batch.mode, parts), padding=padding, tier=tier, path="caller")


def _tables(engine: ReferenceEngine, step: protocol.BuildForward, padded: bool) -> tuple[v.Answer, ...]:
    """The engine's answer to a forward as an answer to a vector; one that raises has no tables."""
    try:
        result = engine.run(step)
    except Exception:
        return ()
    assert isinstance(result, protocol.TablesAnswer)
    return tuple(_as_json(table) for table in result.tables if (table.label == "padded") == padded)


def _as_json(table: protocol.TablePair) -> v.Answer:
    positions = None if table.positions is None else tuple(decoded(table.positions).tolist())
    rows = None if table.mrope is None else decoded(table.mrope)
    if rows is not None and rows.ndim == 1:
        rows = rows[None]
    return v.Answer(
        label=table.label, positions=positions, rows=None if rows is None else tuple(map(tuple, rows.tolist()))
    )


def _answer(mutant: Mutant | None, value: v.ForwardInput | v.PaddingInput) -> tuple[v.Answer, ...]:
    engine = ReferenceEngine() if mutant is None else mutant.make()
    if isinstance(value, v.ForwardInput):
        reqs = _hold(engine, value.family, value.requests, 0)
        return _tables(engine, _step(value.batch, reqs, tier=value.tier), padded=False)
    answer: tuple[v.Answer, ...] = ()
    first = 0
    for load in (*value.earlier, value.load):
        reqs = _hold(engine, value.family, load.requests, first)
        first += len(reqs)
        padding = protocol.Padding(value.buffer, len(reqs), load.padded_tokens)
        answer = _tables(engine, _step(load.batch, reqs, padding), padded=True)
    return answer


VECTORS = [
    vector
    for vector in map(store.read, store.paths(COMMITTED))
    if isinstance(vector.input, v.ForwardInput | v.PaddingInput)
]


def _caught(mutant: Mutant | None, mode: str = "", rules: tuple[str, ...] = ()) -> str:
    """The first rule that a vector sees broken; "" for none. mode: of the vectors; rules: the ones looked for."""
    for vector in VECTORS:
        assert isinstance(vector.input, v.ForwardInput | v.PaddingInput)
        batch = vector.input.batch if isinstance(vector.input, v.ForwardInput) else vector.input.load.batch
        if mode not in ("", batch.mode):
            continue
        for failure in grade(vector, _answer(mutant, vector.input)):
            if not rules or failure.rule in rules:
                return failure.rule
    return ""


def test_the_reference_is_caught_by_no_vector() -> None:
    assert _caught(None) == ""


TABLE_FAULTS = (*forwards.MUTANTS, *padding.MUTANTS, *cells.MUTANTS)


@pytest.mark.parametrize("mutant", TABLE_FAULTS, ids=lambda mutant: mutant.name)
def test_planted_faults_are_caught(mutant: Mutant) -> None:
    assert bool(_caught(mutant)) != (mutant.name in UNSEEN), mutant.says


UNSEEN_RULES = {
    "table.dtype": "JSON has no dtypes",
    "laws.same_step_twice": "shows only when the same forward is built again",
    "ownership.batch_is_read_only": "inputs are data: nothing shows that they were changed",
    "cost.text_only": "copies are not counted",
    "cost.media": "copies are not counted",
    "cost.host_lengths": "copies are not counted",
    "cost.device_values": "reads of the device are not counted",
}
"""Rules that no vector can show broken."""


def test_faults_in_every_declared_mode_are_caught() -> None:
    shown = {
        name: one
        for name, one in generic.planted().items()
        if one.mode not in OWN_NAME and not set(one.rules) <= set(UNSEEN_RULES)
    }
    assert {one.mode for one in shown.values()} == set(all_modes())
    missed = [name for name, one in shown.items() if not _caught(one.mutant, one.mode, one.rules)]
    assert missed == []

"""Faults in the shape of a forward's tables, in what building it changes and costs."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from ropecheck.adapters.protocol import BuildForward, TablePair
from ropecheck.conformance.reference_engine import ReferenceEngine
from ropecheck.conformance.selftest.mutants.base import (
    Mutant,
    altered,
    owners,
    planted,
    rows_of,
    twisted,
    with_both,
    with_rows,
)
from ropecheck.conformance.selftest.mutants.generic import one_forward_less, short
from ropecheck.reference.tables import BatchTables
from ropecheck.reference.timeline import Timeline

Lines = Sequence[Timeline]
MUTANTS: list[Mutant] = []
fault = partial(planted, MUTANTS)
instead = partial(altered, MUTANTS)


@fault(
    "draft extend one column a request", "S7, S8", "the fallback gives a decode's column per request", "draft_extend_v2"
)
@fault("draft one column a request", "V3", "branches share a column", "draft_decode")
def _first_only(_step: BuildForward, lines: Lines, tables: BatchTables) -> BatchTables:
    """One column per request."""
    keep = [int((owners(tables) == row).argmax()) for row in range(len(lines))]
    return with_both(tables, tables.positions, rows_of(tables)[:, keep])


@fault("draft extend one column a media request", "S7", "text requests get all, media requests one", "draft_extend_v2")
def _media_first_only(_step: BuildForward, lines: Lines, tables: BatchTables) -> BatchTables:
    """One column per request with media."""
    who = owners(tables)
    keep = [c for c, row in enumerate(who) if row < 0 or not lines[row].has_media or c == 0 or who[c - 1] != row]
    return with_rows(tables, rows_of(tables)[:, keep])


@fault("extend cut at the table's end", "S11, S1 (#39144)", "a slice past the table is short", "extend")
def _cut_at_table_end(_step: BuildForward, lines: Lines, tables: BatchTables) -> BatchTables:
    who = owners(tables)
    keep = [c for c, row in enumerate(who) if not lines[row].has_media or tables.positions[c] < lines[row].tabulated]
    return with_rows(tables, rows_of(tables)[:, keep])


fault("decode one column short", "O7", "the last request gets none", "decode")(short)


@fault("ragged verify padded to the longest", "O12", "packed widths are made equal", "ragged_verify")
def _ragged_to_max(step: BuildForward, _lines: Lines, tables: BatchTables) -> BatchTables:
    """Ragged requests are each padded to the longest."""
    nodes = [len(tree) + 1 for tree in step.batch.each("parents")]
    extra = max(nodes, default=0) * len(nodes) - sum(nodes)
    if extra <= 0:
        return tables
    return with_both(tables, np.pad(tables.positions, (0, extra)), np.pad(rows_of(tables), ((0, 0), (0, extra))))


@fault("diffusion block from zero", "slip", "the block's offset is ignored", "dllm_extend")
def _block_from_zero(step: BuildForward, _lines: Lines, tables: BatchTables) -> BatchTables:
    return with_both(tables, np.tile(np.arange(step.batch.number("block_size"), dtype=np.int64), len(step.reqs)), None)


def _raises(step: BuildForward, lines: Lines, found: list[BatchTables]) -> list[BatchTables]:
    if any(line.has_media for line in lines) and any(not line.has_media for line in lines):
        raise TypeError("expected Tensor as element 1, but got list")
    return found


MUTANTS += [
    twisted(
        "draft extend raises on mixed batches",
        "S10",
        "entries without media are empty lists",
        "draft_extend_v2",
        _raises,
    ),
    twisted("draft one forward less", "slip", "the loop ends one early", "draft_decode", one_forward_less),
]


Answer = Callable[[str, BuildForward, BatchTables], TablePair]


@instead("idle without a table", "releases before 0.5.23", "the idle table is unset", "answer")
def _no_idle_table(_e: ReferenceEngine, right: Answer, label: str, step: BuildForward, built: BatchTables) -> TablePair:
    found = right(label, step, built)
    return TablePair(label, found.positions, None) if step.mode == "idle" and not label else found


@instead("text table has one row", "V23, R5", "the shape depends on content", "answer")
def _flat_text(engine: ReferenceEngine, right: Answer, label: str, step: BuildForward, built: BatchTables) -> TablePair:
    found = right(label, step, built)
    media = any(engine.held[req].items for req in step.reqs)
    return found if media or step.path == "kernel" else TablePair(label, found.positions, found.positions)


@instead("extend changes the media", "T3", "tables are written while being read", "changed")
def _changes_media(engine: ReferenceEngine, _right: object, step: BuildForward) -> tuple[str, ...]:
    return ("multimodal_inputs",) if step.mode == "extend" and any(engine.held[r].items for r in step.reqs) else ()


@instead("decode edits in place", "R6, V9", "a second build differs", "answer")
def _in_place(_e: ReferenceEngine, right: Answer, label: str, step: BuildForward, built: BatchTables) -> TablePair:
    """The second build starts from what the first one left."""
    edited = label == "again" and step.mode == "decode"
    return right(label, step, with_rows(built, rows_of(built) + 1) if edited else built)


@instead("text verify copies from the host", "PR 20864", "deltas are built on the host", "copies")
def _verify_copies(_engine: ReferenceEngine, _right: object, step: BuildForward) -> int:
    return 1 if step.mode == "target_verify" else 0


@instead("decode copies per request", "S37", "each request's delta is sent by itself", "copies")
def _copy_per_request(engine: ReferenceEngine, _right: object, step: BuildForward) -> int:
    return sum(bool(engine.held[req].items) for req in step.reqs) if step.mode == "decode" else 0


@instead("draft extend copies too often", "S38", "four copies where three are allowed", "copies")
def _draft_extend_copies(_engine: ReferenceEngine, _right: object, step: BuildForward) -> int:
    return 4 if step.mode == "draft_extend_v2" and step.host_lengths else 0

"""One forward of a scenario: its whole batch, the tables that it must produce, and what it is an example of."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from ropecheck.adapters.batch import Batch, BatchPart
from ropecheck.conformance.scenario import dimensions
from ropecheck.conformance.scenario.operations import Build
from ropecheck.reference import resolve
from ropecheck.reference.requests import Request, State, tokens_of
from ropecheck.reference.tables import BatchTables, Part, padded, tables_of
from ropecheck.reference.timeline import Timeline
from ropecheck.spec.history import OutOfDomain
from ropecheck.spec.modes import mode_of
from ropecheck.spec.modes.declaration import PREFILLING, Mode, Tree, Whole

OWN_NAME = ("frozen_kv", "multi_layer")
"""Buffers of graph runners that are not the mode's usual one: their failures go by their own names."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExpectedTables:
    """Tables by label: "" the forward, "step 1".. later forwards of the mode's loop, "padded" a wider buffer."""

    mode: Mode
    batch: Batch
    """Whole: state fields filled in."""
    tables: dict[str, BatchTables]
    lines: tuple[Timeline, ...]
    """Each row's columns, in batch order."""
    parent_lines: tuple[Timeline | None, ...]
    """The columns of the session turn that each row's request continues, if any: what a stale table would show."""
    situations: frozenset[str]
    """What this forward is an example of: "text only", "past the table", "unequal deltas", .."""
    counted: tuple[str, ...] = ()
    """The situations, and the bounds that it crosses, as a report counts them."""
    small: bool = False
    """It is likely to come again."""
    buffer: str = ""
    """Which buffer the "padded" table stands in; "tier": the batch itself is padded."""

    def mode_of(self, label: str) -> str:
        """Where a wrong table of this label is reported."""
        return self.buffer if label == "padded" and self.buffer in OWN_NAME else self.mode.name


KEPT = 4096
"""Forwards that are kept. A sweep comes to few different ones, again and again."""
SMALL = 64
"""Tokens of a batch, or of a request, up to which it is likely to come again: a sweep's are few, drawn ones are not."""

_kept: dict[tuple[Any, ...], ExpectedTables] = {}
_encoder = msgspec.msgpack.Encoder()


def expected_of(state: State, op: Build) -> ExpectedTables:
    """The forward of one operation. The same operation on requests that stand alike gives the same object.

    Raises OutOfDomain where a request is not in the state that it needs.
    """
    mode = mode_of(op.batch.mode)
    key = (id(mode), _encoder.encode(op), *(_standing(state, req) for req in op.batch.reqs))
    found = _kept.get(key)
    if found is None:
        found = _expected(mode, state, op)  # it holds the mode, whose id is in the key
        if found.small:
            if len(_kept) >= KEPT:
                _kept.clear()
            _kept[key] = found
    return found


def _standing(state: State, req: int) -> tuple[Any, ...] | None:
    """All of a request that a forward depends on; None where there is no such request."""
    request = state.requests.get(req)
    if request is None:
        return None
    parent = None if request.parent is None else state.requests[request.parent].line
    turn = request.session is not None and request.parent is not None
    return request.line, parent, tokens_of(request), request.computed, request.admitted, request.status, turn


def _expected(mode: Mode, state: State, op: Build) -> ExpectedTables:
    if not op.host_lengths and mode.prefills:
        raise OutOfDomain(f"{mode.name}: a prefill is planned by lengths that stand on the host")
    if op.lengths and op.path != "direct":
        raise OutOfDomain(
            f"{mode.name}: a caller brings its own lengths; {op.lengths} ones are set by hand (path direct)"
        )
    if op.lengths == "lagging" and not (mode.given_indices and op.host_lengths):
        raise OutOfDomain(f"{mode.name}: its indices follow from lengths, which may not lag")
    chosen = _parts(mode, op.batch)
    requests: list[Request] = []
    parts, whole = [], []
    for row_mode, part in zip(mode.parts, chosen, strict=True):
        rows = resolve.requests_for(state, row_mode, part.reqs)
        _check_rows(mode, row_mode, rows, requests)
        fields = resolve.resolved(row_mode, rows, part.fields)
        parts.append(Part(row_mode, [request.line for request in rows], fields))
        whole.append(BatchPart(reqs=part.reqs, fields=fields, mode="" if row_mode is mode else row_mode.name))
        requests += rows
    steps = 1 if op.path == "direct" else mode.loops(parts[0].fields)
    if steps < 1:
        raise OutOfDomain(f"{mode.name}: runs no forward")
    tables = {"" if step == 0 else f"step {step}": tables_of(mode, parts, step) for step in range(steps)}
    if op.buffer:
        _check_buffer(mode, op)
        if op.buffer == "tier":
            tables[""] = padded(tables[""], op.buffer_tokens)
        else:
            tables["padded"] = padded(tables[""], buffer_tokens(op, tables[""], len(requests)))
    parents = [None if request.parent is None else state.requests[request.parent] for request in requests]
    lines = tuple(line for part in parts for line in part.lines)
    situations = _common(lines) | {text for part, row in _with_requests(parts, requests) for text in _of(part, row)}
    if op.buffer:
        situations.add(f"padded {op.buffer}")
    if mode.either_lengths:
        situations.add("host lengths" if op.host_lengths else "device lengths")
    prefills = mode.prefills
    bounds = dimensions.of_forward(tables, lines, prefills)
    return ExpectedTables(
        mode=mode,
        batch=Batch(mode=mode.name, parts=tuple(whole)),
        tables=tables,
        lines=lines,
        parent_lines=tuple(None if parent is None else parent.line for parent in parents),
        situations=frozenset(situations),
        counted=(*(f"{mode.name} x {situation}" for situation in sorted(situations)), *dimensions.counted(bounds)),
        small=all(one.positions.size <= SMALL for one in tables.values()),
        buffer=op.buffer,
    )


def buffer_tokens(op: Build, tables: BatchTables, rows: int) -> int:
    """Columns of the wider buffer: as many per row as the batch has, unless the operation says it."""
    if op.buffer_tokens:
        return op.buffer_tokens
    return op.buffer_rows * (tables.live // rows if rows else 1)


def situations_of(mode: Mode) -> tuple[str, ...]:
    """What forwards of this mode can be an example of: a complete run reaches each."""
    if not mode.parts or mode.reads == "nobody":
        return (IDLE,)
    out = list(MIXES if mode.three_rows and mode.reads != "text" else MIXES[:1])
    for part in mode.parts:
        if part.reads == PREFILLING:
            out += WINDOWS
        for field in part.chosen:
            if isinstance(field.domain, Tree) and field.domain.nodes:
                out += ["chain", "tree"]
            elif isinstance(field.domain, Whole) and field.name == "topk" and field.name in _row_fields(part):
                out += ["one branch", "several branches"]
    if mode.either_lengths:
        out += ["host lengths", "device lengths"]
    return (*out, *(f"padded {buffer}" for buffer in mode.buffers))


IDLE = "idle"
MIXES = ("text only", "media only", "media beside text", "unequal deltas")
WINDOWS = (
    "inside the table",
    "straddles the table end",
    "past the table",
    "prefix hit",
    "chunk",
    "re-prefill",
    "session turn",
)


def _parts(mode: Mode, batch: Batch) -> tuple[BatchPart, ...]:
    """The batch's parts, one for each of the mode's. Raises OutOfDomain for parts of other modes."""
    names = tuple(part.mode or batch.mode for part in batch.parts)
    if names != tuple(part.name for part in mode.parts):
        wanted = ", ".join(part.name for part in mode.parts)
        raise OutOfDomain(f"{mode.name}: a batch has rows of {wanted}, in this order, not of {', '.join(names)}")
    return batch.parts


def _check_rows(mode: Mode, row_mode: Mode, rows: Sequence[Request], before: Sequence[Request]) -> None:
    """A request stands in a batch once; rows that follow others are of requests that stand there already."""
    here, known = {request.req for request in rows}, {request.req for request in before}
    if len(here) != len(rows) or (here & known and not row_mode.follows):
        raise OutOfDomain("a request stands twice in one batch")
    if row_mode.follows and [request.req for request in before if request.req in here] != [one.req for one in rows]:
        raise OutOfDomain(f"{mode.name}: rows of {row_mode.name} follow rows of the same requests, in their order")


def _check_buffer(mode: Mode, op: Build) -> None:
    if op.buffer not in mode.buffers:
        known = ", ".join(mode.buffers) or "none"
        raise OutOfDomain(f"{mode.name} is not loaded into a buffer {op.buffer!r}; known: {known}")


def _row_fields(mode: Mode) -> set[str]:
    return set(mode.tokens.__code__.co_varnames[: mode.tokens.__code__.co_argcount])


def _with_requests(parts: Sequence[Part], requests: Sequence[Request]) -> list[tuple[Part, list[Request]]]:
    out, at = [], 0
    for part in parts:
        out.append((part, list(requests[at : at + len(part.lines)])))
        at += len(part.lines)
    return out


def _common(lines: Sequence[Timeline]) -> set[str]:
    if not lines:
        return {IDLE}
    deltas = {line.delta for line in lines if line.has_media}
    media = sum(line.has_media for line in lines)
    out = {"text only" if not media else ("media only" if media == len(lines) else "media beside text")}
    if len(deltas) > 1:
        out.add("unequal deltas")
    return out


def _of(part: Part, requests: Sequence[Request]) -> set[str]:
    out: set[str] = set()
    for field in part.mode.chosen:
        value = part.fields[field.name]
        if isinstance(field.domain, Tree):
            out.add("chain" if all(tree == tuple(range(len(tree))) for tree in value) else "tree")
        elif field.name == "topk" and field.name in _row_fields(part.mode):
            out.add("one branch" if value == 1 else "several branches")
    if part.mode.reads == PREFILLING:
        windows = zip(part.fields["prefix_len"], part.fields["extend_len"], strict=True)
        for request, line, (prefix, extend) in zip(requests, part.lines, windows, strict=True):
            out |= _window(request, line, prefix, extend)
    return out


def _window(request: Request, line: Timeline, prefix: int, extend: int) -> set[str]:
    out = set()
    if prefix and not request.admitted:
        out.add("prefix hit")
    if prefix + extend < tokens_of(request):
        out.add("chunk")
    if request.status == "retracted":
        out.add("re-prefill")
    if request.session is not None and request.parent is not None:
        out.add("session turn")
    if line.has_media:
        if prefix >= line.tabulated:
            out.add("past the table")
        elif prefix + extend > line.tabulated:
            out.add("straddles the table end")
        else:
            out.add("inside the table")
    return out

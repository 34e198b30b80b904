"""A vector's right answer, a second time: cell by cell, from the specification alone, as slowly as it reads.

Nothing here comes from the reference: no numpy, no whole-batch tables. A row's tokens are those that its mode's
declaration names; a token's column is looked up in the prompt's table, or is index + delta past it.
"""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from ropecheck.adapters.batch import Batch, BatchPart
from ropecheck.conformance.vectors import types as v
from ropecheck.conformance.vectors.derive_session import TurnSeen, turns_of
from ropecheck.conformance.vectors.runs import columns_of, history_of, media_spans
from ropecheck.spec.families import family as find_family
from ropecheck.spec.families.glm_image import GLM_IMAGE
from ropecheck.spec.history import Column, OutOfDomain, delta_of, prompt_table
from ropecheck.spec.modes import mode_of
from ropecheck.spec.modes.declaration import RUNNING, Field, Mode, Tree, Whole

FILL = 0
"""What padded columns hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived:
    """One expected table. tokens: of a forward, the indices that each batch row reads."""

    table: v.ExpectedTable
    tokens: tuple[tuple[int, ...], ...] = ()


def derive(value: v.Input) -> tuple[Derived, ...]:
    """Raises OutOfDomain where the input is not legal, or where it holds a table that is not its runs'."""
    match value:
        case v.ForwardInput():
            forwards = _forwards(value.family, value.requests, value.batch)
            return tuple(_widened(one, value.tier, value.tier) for one in forwards) if value.tier else forwards
        case v.PaddingInput():
            return (_padded(value),)
        case v.SessionInput():
            return tuple(Derived(table=_turn(seen)) for seen in turns_of(value))
        case v.RetractionInput():
            return _retractions(value)
        case v.PromptTableInput():
            return (Derived(table=_prompt(value)),)


def _forwards(family: str, requests: Sequence[v.VectorRequest], batch: Batch) -> tuple[Derived, ...]:
    """One table per forward of the mode's loop, row by row, token by token."""
    mode = mode_of(batch.mode)
    tables = [_table_of(family, request) for request in requests]
    _check(mode, batch, requests)
    axes = find_family(family).axes
    out = []
    for step in range(mode.loops(batch.parts[0].fields)):
        tokens: list[tuple[int, ...]] = []
        positions: list[int] = []
        rows: list[list[int]] = [[] for _ in range(axes)]
        for part_mode, part in zip(mode.parts, batch.parts, strict=True):
            for row, req in enumerate(part.reqs):
                read = _tokens(part_mode, part.fields, row, step)
                tokens.append(read)
                for index in read:
                    positions.append(index)
                    for axis in range(axes):
                        rows[axis].append(_cell(tables[req], requests[req].delta, index, axis))
        table = v.ExpectedTable(
            label=f"step {step}" if step else "",
            positions=tuple(positions),
            rows=tuple(map(tuple, rows)) if mode.three_rows else None,
        )
        out.append(Derived(table=table, tokens=tuple(tokens)))
    return tuple(out)


def _cell(table: Sequence[Column], delta: int, index: int, axis: int) -> int:
    return table[index][axis] if index < len(table) else index + delta


def _tokens(mode: Mode, fields: Mapping[str, Any], row: int, step: int) -> tuple[int, ...]:
    """What the declaration says that one row reads. Raises OutOfDomain for an index below 0."""
    values: dict[str, Any] = {}
    for name in inspect.signature(mode.tokens).parameters:
        field = next(field for field in mode.fields if field.name == name)
        values[name] = step if field.kind == "step" else fields[name][row] if field.each else fields[name]
    found = tuple(int(index) for index in mode.tokens(**values))
    if any(index < 0 for index in found):
        raise OutOfDomain(f"{mode.name}: row {row} reads token {min(found)}")
    return found


def _table_of(family: str, request: v.VectorRequest) -> tuple[Column, ...]:
    """The request's columns, after a look at whether its table and delta are those of its runs."""
    columns = prompt_table(find_family(family), history_of(request.runs))
    if columns_of(request.table) != columns:
        raise OutOfDomain("a request's table is not that of its runs")
    if request.delta != delta_of(columns):
        raise OutOfDomain(f"a request's delta is {request.delta}, its table's {delta_of(columns)}")
    if request.tabulated > len(columns):
        raise OutOfDomain(f"tabulated is {request.tabulated} of a prompt of {len(columns)} tokens")
    return columns


# ---------------------------------------------------------------- what a batch may say


def _check(mode: Mode, batch: Batch, requests: Sequence[v.VectorRequest]) -> None:
    """Whether the batch has the parts and fields of its declaration. Raises OutOfDomain, naming the field."""
    names = [part.mode or batch.mode for part in batch.parts]
    if names != [part.name for part in mode.parts]:
        raise OutOfDomain(f"{mode.name}: rows of {', '.join(names)}, must be {', '.join(p.name for p in mode.parts)}")
    if tuple(dict.fromkeys(batch.reqs)) != tuple(range(len(requests))):
        raise OutOfDomain(f"{mode.name}.reqs: {list(batch.reqs)}, must number the {len(requests)} requests in order")
    for part_mode, part in zip(mode.parts, batch.parts, strict=True):
        wanted = [field for field in part_mode.fields if field.kind != "step"]
        if set(part.fields) != {field.name for field in wanted}:
            must = ", ".join(field.name for field in wanted) or "no fields"
            raise OutOfDomain(f"{part_mode.name}: carries {', '.join(part.fields) or 'no fields'}, must carry {must}")
        for field in wanted:
            for number, (req, value) in enumerate(_values(part_mode, field, part)):
                _check_value(part_mode, field, part, value, f"row {number}", requests[req] if field.each else None)


def _values(mode: Mode, field: Field, part: BatchPart) -> Iterator[tuple[int, Any]]:
    """(request, value) per row; one of them where the field is one number."""
    value: Any = part.fields[field.name]
    if isinstance(value, tuple) != field.each:
        raise OutOfDomain(f"{mode.name}.{field.name}: must be {'one value per row' if field.each else 'one number'}")
    if field.each and len(value) != len(part.reqs):
        raise OutOfDomain(f"{mode.name}.{field.name}: {len(value)} values for {len(part.reqs)} rows")
    yield from zip(part.reqs, value, strict=True) if field.each else [(0, value)]


def _check_value(
    mode: Mode, field: Field, part: BatchPart, value: Any, row: str, request: v.VectorRequest | None
) -> None:
    where, domain = f"{mode.name}.{field.name}", field.domain
    if isinstance(domain, Tree):
        nodes = part.fields.get(domain.nodes, len(value) + 1)
        if nodes != len(value) + 1:
            raise OutOfDomain(f"{where}: {row} has {len(value) + 1} nodes, {domain.nodes} is {nodes}")
        return
    least = domain.low if isinstance(domain, Whole) else _least(mode, field, request)
    if not least <= value <= v.LARGEST:
        raise OutOfDomain(f"{where}: {row} has {value}, not in {least} .. {v.LARGEST}")


def _least(mode: Mode, field: Field, request: v.VectorRequest | None) -> int:
    """A state's smallest value: a running request has its whole prompt behind it, and has emitted a token."""
    prompt = len(request.table[0]) if request is not None and request.table else 0
    if field.kind == "seq_len":
        return prompt + (mode.reads == RUNNING)
    return {"prefix_len": 0, "extend_len": 1, "committed_len": prompt}[field.kind]


# ---------------------------------------------------------------- other kinds


def _widened(one: Derived, width: int, capacity: int) -> Derived:
    """The table in a buffer: fill up to the padded width, free columns after it."""
    table = one.table
    live = len(table.positions or ())
    if live > width:
        raise OutOfDomain(f"padded to {width} columns, {live} are live")
    if width > capacity:
        raise OutOfDomain(f"padded to {width} columns in a buffer of {capacity}")
    tail = (FILL,) * (width - live) + (v.FREE,) * (capacity - width)
    wide = v.ExpectedTable(
        label=table.label,
        positions=(*(table.positions or ()), *tail),
        rows=None if table.rows is None else tuple((*row, *tail) for row in table.rows),
        free=((width, capacity),) if capacity > width else (),
        optional_from=width if capacity > width else None,
    )
    return Derived(table=wide, tokens=one.tokens)


def _padded(value: v.PaddingInput) -> Derived:
    for load in (*value.earlier, value.load):
        mode = mode_of(load.batch.mode)
        if value.buffer not in mode.buffers:
            raise OutOfDomain(f"buffer: {mode.name} is not loaded into a buffer {value.buffer!r}")
        first = _forwards(value.family, load.requests, load.batch)[0]  # of a loop, what its graph is loaded with
        wide = _widened(first, load.padded_tokens, value.capacity)
    return Derived(table=msgspec.structs.replace(wide.table, label="padded"), tokens=wide.tokens)


def _turn(seen: TurnSeen) -> v.ExpectedTable:
    label = f"turn {seen.request}"
    if seen.refused:
        return v.ExpectedTable(label=label, refused=True)
    columns = prompt_table(seen.family, seen.prompt)
    return v.ExpectedTable(
        label=label,
        rows=_rows(columns, seen.family.axes),
        tokens=len(columns),
        delta=int(delta_of(columns)),
        refused=False,
        media_spans=media_spans(seen.family, seen.prompt),
        optional_from=_optional(seen.tabulated, len(columns)),
    )


def _retractions(value: v.RetractionInput) -> tuple[Derived, ...]:
    prompt = _table_of(value.family, value.request)
    axes = find_family(value.family).axes
    needed = value.request.tabulated if any(run.kind != "text" for run in value.request.runs) else 0
    out = []
    for number, one in enumerate(value.retractions):
        width = len(prompt) + one.outputs
        columns = [
            tuple(_cell(prompt, value.request.delta, index, axis) for axis in range(axes)) for index in range(width)
        ]
        table = v.ExpectedTable(
            label=f"retraction {number}",
            rows=_rows(columns, axes),
            tokens=width,
            optional_from=_optional(needed, width),
        )
        out.append(Derived(table=table))
    return tuple(out)


def _prompt(value: v.PromptTableInput) -> v.ExpectedTable:
    """GLM-Image's delta is 0: its generated tokens read tabulated columns."""
    family = find_family(value.family)
    columns = prompt_table(family, history_of(value.runs))
    delta = 0 if family is GLM_IMAGE else int(delta_of(columns))
    return v.ExpectedTable(label="", rows=_rows(columns, family.axes), delta=delta)


def _rows(columns: Sequence[Column], axes: int) -> v.Rows:
    return tuple(tuple(column[axis] for column in columns) for axis in range(axes))


def _optional(needed: int, width: int) -> int | None:
    return needed if needed < width else None

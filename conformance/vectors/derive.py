"""A vector's right answer, from the specification alone: nothing here comes from the reference.

`derive` answers an input with one `Derived` per expected table; `to_table` puts it into a vector's form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ropecheck.spec.modes.cells import Cell, Place

from ropecheck.conformance.vectors import types as v
from ropecheck.conformance.vectors.derive_prompt import delta_beside, rules_of
from ropecheck.conformance.vectors.derive_session import TurnSeen, turns_of
from ropecheck.conformance.vectors.runs import columns_of, history_of, media_spans
from ropecheck.spec import retraction
from ropecheck.spec.families import family as find_family
from ropecheck.spec.history import OutOfDomain, delta_of, length, prompt_table
from ropecheck.spec.modes import (
    decode,
    dllm_extend,
    draft_decode,
    draft_extend_v2,
    extend,
    idle,
    mixed,
    padding,
    ragged_verify,
    split_prefill,
    target_verify,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A value beside the table: a field of `Answer`, the rule that says so, and the value."""

    field: str
    rule: str
    value: object


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived:
    """One expected table."""

    label: str
    mode: str
    cells: tuple[Cell, ...]
    width_rule: str
    axes: int = 3
    has_positions: bool = True
    has_rows: bool = True
    capacity: int = 0
    """Columns of the buffer; those past the cells are free."""
    optional_from: int | None = None
    facts: tuple[Fact, ...] = ()
    also: tuple[str, ...] = ()
    """Rules that the table is an example of, beside those that its cells name."""

    @property
    def rules(self) -> frozenset[str]:
        """Every rule that the table checks."""
        found = {self.width_rule, "table.present", *self.also, *(fact.rule for fact in self.facts)}
        if self.has_rows:
            found.add("table.three_rows")
        for cell in self.cells:
            found |= {cell.index_rule} if self.has_positions else set()
            found |= {cell.column_rule} if self.has_rows else set()
        return frozenset(found)


def derive(value: v.Input) -> tuple[Derived, ...]:
    """Raises OutOfDomain where the input is not legal, or where it holds a table that is not its runs'."""
    match value:
        case v.ForwardInput():
            return _forwards(value.family, value.requests, value.batch)
        case v.PaddingInput():
            return (_padded(value),)
        case v.SessionInput():
            return tuple(_turn(seen) for seen in turns_of(value))
        case v.RetractionInput():
            return _retractions(value)
        case v.PromptTableInput():
            return (_prompt(value),)


def place_of(family: str, request: v.Request) -> Place:
    """The request's columns, after a look at whether its table and delta are those of its runs."""
    columns = prompt_table(find_family(family), history_of(request.runs))
    if columns_of(request.table) != columns:
        raise OutOfDomain("a request's table is not that of its runs")
    if request.delta != delta_of(columns):
        raise OutOfDomain(f"a request's delta is {request.delta}, its table's {delta_of(columns)}")
    if request.tabulated > len(columns):
        raise OutOfDomain(f"tabulated is {request.tabulated} of a prompt of {len(columns)} tokens")
    has_media = any(run.kind != "text" for run in request.runs)
    return Place(columns=columns, tabulated=request.tabulated, has_media=has_media)


def _forwards(family: str, requests: Sequence[v.Request], batch: v.Batch) -> tuple[Derived, ...]:
    """One per forward of the batch. Lengths are checked by `zip(strict=True)` in the specification."""
    places = [place_of(family, request) for request in requests]
    axes = find_family(family).axes

    def one(
        mode: str,
        cells: tuple[Cell, ...],
        label: str = "",
        rule: str = "width",
        also: tuple[str, ...] = (),
        has_rows: bool = True,
    ) -> Derived:
        return Derived(
            label=label, mode=mode, cells=cells, width_rule=f"{mode}.{rule}", axes=axes, also=also, has_rows=has_rows
        )

    match batch:
        case v.Extend():
            return (one("extend", extend.forward(_windows(places, batch, len(places)))),)
        case v.SplitPrefill():
            return (one("split_prefill", split_prefill.forward(_windows(places, batch, len(places)))),)
        case v.Mixed():
            first = len(places) - batch.decoding
            cells = mixed.forward(_windows(places, batch, first), places[first:], batch.seq_lens[first:])
            return (one("mixed", cells),)
        case v.Decode():
            return (one("decode", decode.forward(places, batch.seq_lens)),)
        case v.DraftDecode():
            count = draft_decode.forwards(batch.num_steps)
            if count < 1:
                raise OutOfDomain(f"a draft of {batch.num_steps} steps runs no forward")
            return tuple(
                one(
                    "draft_decode",
                    draft_decode.forward(places, batch.seq_lens, batch.topk, step),
                    f"step {step}" if step else "",
                    also=("draft_decode.forwards",),
                )
                for step in range(count)
            )
        case v.TargetVerify():
            if len({len(parents) for parents in batch.parents}) > 1:
                raise OutOfDomain("trees of one batch have the same number of nodes, unless ragged")
            return (one("target_verify", target_verify.forward(places, batch.seq_lens, batch.parents)),)
        case v.RaggedVerify():
            if batch.verify_lens != tuple(len(parents) + 1 for parents in batch.parents):
                raise OutOfDomain("verify_lens do not count the nodes of parents")
            cells = ragged_verify.forward(places, batch.seq_lens, batch.parents, batch.ragged_tokens)
            return (one("ragged_verify", cells),)
        case v.DraftExtendV2():
            cells = draft_extend_v2.forward(places, batch.seq_lens, batch.num_draft_tokens)
            return (one("draft_extend_v2", cells),)
        case v.DllmExtend():
            return (one("dllm_extend", dllm_extend.forward(batch.block_offsets, batch.block_size), has_rows=False),)
        case v.Idle():
            return (one("idle", idle.forward(), rule="no_columns"),)


def _windows(places: Sequence[Place], batch: v.Extend | v.SplitPrefill | v.Mixed, count: int) -> list[extend.Window]:
    """The first `count` requests' windows."""
    for one in (batch.seq_lens, batch.prefix_lens, batch.extend_lens):
        if len(one) != len(places):
            raise OutOfDomain(f"{len(places)} requests, but a list of {len(one)} lengths")
    for seq_len, prefix, new in zip(batch.seq_lens, batch.prefix_lens, batch.extend_lens, strict=True):
        if seq_len != prefix + new:
            raise OutOfDomain(f"seq_len {seq_len} is not prefix_len {prefix} + extend_len {new}")
    return [
        extend.Window(place=place, prefix_len=batch.prefix_lens[row], extend_len=batch.extend_lens[row])
        for row, place in enumerate(places[:count])
    ]


def _padded(value: v.PaddingInput) -> Derived:
    for load in (*value.earlier, value.load):
        if load.padded_tokens > value.capacity:
            raise OutOfDomain(f"padded to {load.padded_tokens} columns in a buffer of {value.capacity}")
        plain = _forwards(value.family, load.requests, load.batch)[0]  # of a draft loop, what its graph is loaded with
    live = "padding.live_columns"
    cells = padding.forward(
        tuple(replace(cell, index_rule=live, column_rule=live) for cell in plain.cells),
        value.load.padded_tokens,
        plain.axes,
    )
    return Derived(
        label="padded",
        mode=plain.mode,
        cells=cells,
        width_rule="padding.width",
        axes=plain.axes,
        capacity=value.capacity,
        optional_from=_optional(value.load.padded_tokens, value.capacity),
    )


def _turn(seen: TurnSeen) -> Derived:
    label = f"turn {seen.request}"
    if seen.refused:
        fact = Fact(field="refused", rule="session.refused", value=True)
        return Derived(
            label=label,
            mode="session",
            cells=(),
            width_rule="session.refused",
            has_positions=False,
            has_rows=False,
            facts=(fact,),
        )
    columns = prompt_table(seen.family, seen.prompt)
    return Derived(
        label=label,
        mode="session",
        cells=_held("session.table", columns),
        width_rule="session.table",
        axes=seen.family.axes,
        has_positions=False,
        optional_from=_optional(seen.tabulated, len(columns)),
        facts=(
            Fact(field="refused", rule="session.refused", value=False),
            Fact(field="tokens", rule=seen.rules[-1], value=len(columns)),
            Fact(field="delta", rule="session.delta", value=int(delta_of(columns))),
            Fact(field="media_spans", rule="session.media_spans", value=media_spans(seen.family, seen.prompt)),
        ),
        also=seen.rules,
    )


def _retractions(value: v.RetractionInput) -> tuple[Derived, ...]:
    family = find_family(value.family)
    place = place_of(value.family, value.request)
    prompt = history_of(value.request.runs)
    out = []
    for number, one in enumerate(value.retractions):
        columns = retraction.table(family, prompt, one.outputs)
        also = ("retraction.refused_attempts",) if one.refusals else ()
        columns = retraction.after_attempts(columns, one.refusals)
        out.append(
            Derived(
                label=f"retraction {number}",
                mode="retraction",
                cells=_held("retraction.table", columns),
                width_rule="retraction.table",
                axes=family.axes,
                has_positions=False,
                also=also,
                optional_from=_optional(value.request.tabulated if place.has_media else 0, len(columns)),
                facts=(
                    Fact(
                        field="tokens",
                        rule="retraction.same_history",
                        value=length(family, retraction.history(prompt, one.outputs)),
                    ),
                    Fact(field="delta", rule="retraction.table", value=int(place.delta)),
                ),
            )
        )
    return tuple(out)


def _prompt(value: v.PromptTableInput) -> Derived:
    family = find_family(value.family)
    history = history_of(value.runs)
    columns = prompt_table(family, history)
    delta = Fact(field="delta", rule="families.delta", value=delta_beside(family, columns))
    return Derived(
        label="",
        mode="prompt_table",
        cells=_held("families.table", columns),
        width_rule="families.table_width",
        axes=family.axes,
        has_positions=False,
        facts=(delta,),
        also=rules_of(family, history),
    )


def _held(rule: str, columns: Sequence[tuple[int, ...]]) -> tuple[Cell, ...]:
    return tuple(
        Cell(request=0, index=index, column=column, index_rule=rule, column_rule=rule)
        for index, column in enumerate(columns)
    )


def _optional(needed: int, width: int) -> int | None:
    return needed if needed < width else None


def to_table(derived: Derived) -> v.Table:
    """In a vector's form; free columns hold FREE."""
    width = max(len(derived.cells), derived.capacity)
    spare = (v.FREE,) * (width - len(derived.cells))
    positions = tuple(cell.index for cell in derived.cells) + spare
    rows = tuple(tuple(cell.column[axis] for cell in derived.cells) + spare for axis in range(derived.axes))
    table = v.Table(
        label=derived.label,
        positions=positions if derived.has_positions else None,
        rows=rows if derived.has_rows else None,
        free=((len(derived.cells), width),) if spare else (),
        optional_from=derived.optional_from,
    )
    return v.with_facts(table, {fact.field: fact.value for fact in derived.facts})

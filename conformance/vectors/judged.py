"""One vector's answer, judged: the rules of a run are asked, about views that the answer and the input make up."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np

from ropecheck.adapters import protocol
from ropecheck.adapters.batch import Batch
from ropecheck.conformance.judge.ask import ask
from ropecheck.conformance.judge.outcome import Failure, failure_of
from ropecheck.conformance.judge.signature import held_signature
from ropecheck.conformance.judge.tables import judge_tables
from ropecheck.conformance.judge.tally import ScenarioTally
from ropecheck.conformance.plan.planner import TableCheck
from ropecheck.conformance.scenario.forward import ExpectedTables
from ropecheck.conformance.vectors import types as v
from ropecheck.conformance.vectors.derive import Derived, derive
from ropecheck.conformance.vectors.derive_session import PLACEHOLDER, TurnSeen, turns_of
from ropecheck.conformance.vectors.judged_prompt import prompt_judge
from ropecheck.conformance.vectors.runs import columns_of, history_of, media_spans
from ropecheck.reference.tables import BatchTables, Span
from ropecheck.reference.timeline import Timeline
from ropecheck.spec.families import family as find_family
from ropecheck.spec.history import Delta, Family, History, delta_of, prompt_table, run_length
from ropecheck.spec.modes import mode_of
from ropecheck.spec.modes.declaration import Mode
from ropecheck.spec.rules import Rule, Violation
from ropecheck.spec.views import HeldState, Place, Seen

UNSEEN = {
    "table.dtype": "JSON has no dtypes",
    "ownership.batch_is_read_only": "inputs are data: nothing shows that they were changed",
    "freshness.padded_media": "a vector counts tokens, it does not hold them",
}
"""Rules that are asked on the way and that no answer can break -> why. They are not counted."""


AskRules = Callable[[ScenarioTally, Mapping[str, v.Answer]], None]
Judge = Callable[[Mapping[str, v.Answer]], ScenarioTally]
"""Tables by label -> what the rules say of them."""


def judge_of(value: v.Input) -> Judge:
    """The judge of one vector: what does not depend on the answer is worked out once."""
    match value:
        case v.ForwardInput():
            ask_rules = _forward(value.batch, value.requests, derive(value), "tier" if value.tier else "")
        case v.PaddingInput():
            ask_rules = _forward(value.load.batch, value.load.requests, derive(value), value.buffer)
        case v.SessionInput():
            ask_rules = _session(value)
        case v.RetractionInput():
            ask_rules = _retractions(value)
        case v.PromptTableInput():
            ask_rules = prompt_judge(value)

    def judged(answered: Mapping[str, v.Answer]) -> ScenarioTally:
        tally = ScenarioTally()
        ask_rules(tally, answered)
        tally.forget(UNSEEN)
        tally.failures = [failure for failure in tally.failures if failure.rule not in UNSEEN]
        return tally

    return judged


def rules_of(value: v.Input, expected: Sequence[v.Answer]) -> tuple[str, ...]:
    """What a vector checks: the rules that its right answer is put to."""
    return shown(judge_of(value)({table.label: table for table in expected}))


def shown(tally: ScenarioTally) -> tuple[str, ...]:
    """The rules that were asked about what an answer carries. It carries neither a request's tokens nor, after a
    retraction, its delta: `request` rules see right ones.
    """
    return tuple(sorted(rule for rule in tally.checked if not rule.startswith("request.")))


# ---------------------------------------------------------------- forwards


def _forward(batch: Batch, requests: Sequence[v.VectorRequest], derived: Sequence[Derived], buffer: str) -> AskRules:
    """By the judge of a run, as a worker would have answered."""
    mode = mode_of(batch.mode)
    right = {one.table.label: _tables(one, mode) for one in derived}
    lines = tuple(_line(requests[req]) for req in batch.reqs)
    expected = ExpectedTables(
        mode=mode,
        batch=batch,
        lines=lines,
        tables={"": next(iter(right.values())), **right},
        parent_lines=(None,) * len(lines),
        situations=frozenset(),
        buffer=buffer,
    )
    check = TableCheck(0, 0, expected, {label: label for label in right})
    ends = {one.table.label: one.table.free[0][0] for one in derived if one.table.free}

    def ask_rules(tally: ScenarioTally, answered: Mapping[str, v.Answer]) -> None:
        tables = tuple(_as_answered(mode, answer, ends.get(label)) for label, answer in answered.items())
        judge_tables(tally, check, protocol.TablesAnswer(tables))
        if "padded" in right:
            tally.forget({"table.forwards"})  # one forward of the loop is loaded

    return ask_rules


def _line(request: v.VectorRequest) -> Timeline:
    columns = columns_of(request.table)
    table = np.array(columns, dtype=np.int64).reshape(len(columns), len(request.table)).T
    has_media = any(run.kind != "text" for run in request.runs)
    return Timeline(table=table, delta=request.delta, tabulated=request.tabulated, has_media=has_media)


def _tables(one: Derived, mode: Mode) -> BatchTables:
    """Derived columns as the judge's tables, without those that are free."""
    counts = [len(tokens) for tokens in one.tokens]
    spans = tuple(
        Span(row, stop - count, stop, np.array(tokens, dtype=np.int64))
        for row, (tokens, count, stop) in enumerate(zip(one.tokens, counts, accumulate(counts), strict=True))
    )
    table = one.table
    rows = table.rows
    return BatchTables(
        np.array(_specified(table, table.positions or ()), dtype=np.int64),
        None if rows is None else np.array([_specified(table, row) for row in rows], dtype=np.int64),
        spans,
        mode.index_dtype,
    )


def _specified(table: v.ExpectedTable, row: tuple[int, ...]) -> tuple[int, ...]:
    """The columns that are not free; free ones stand at the end."""
    return row[: table.free[0][0]] if table.free else row


def _as_answered(mode: Mode, answer: v.Answer, width: int | None) -> protocol.TablePair:
    """An answer as a worker would send it. JSON has no dtypes, so each table has the one that it must have. width: the
    columns after it are free."""
    positions = None if answer.positions is None else _tensor([answer.positions[:width]], mode.index_dtype)
    if positions is not None:
        positions = protocol.Tensor(positions.dtype, positions.shape[1:], positions.data)
    rows = None if answer.rows is None else _tensor([row[:width] for row in answer.rows], "int64")
    return protocol.TablePair(answer.label, positions, rows)


def _tensor(rows: Sequence[Sequence[int]], dtype: str) -> protocol.Tensor:
    """Rows of unequal width are no table of rows: one number per row, its width."""
    widths = [len(row) for row in rows]
    array = np.array(rows if len(set(widths)) == 1 else widths, dtype=dtype)
    return protocol.Tensor(dtype, tuple(array.shape), np.ascontiguousarray(array).tobytes())


# ---------------------------------------------------------------- what a request holds


def _session(value: v.SessionInput) -> AskRules:
    turns = turns_of(value)
    places = [_place(seen.family, seen.prompt, seen.tabulated) for seen in turns]
    parents = [None if seen.parent is None else _place(seen.family, seen.parent, 0) for seen in turns]

    def ask_rules(tally: ScenarioTally, answered: Mapping[str, v.Answer]) -> None:
        for seen, place, parent in zip(turns, places, parents, strict=True):
            answer = _found(tally, "session", f"turn {seen.request}", answered)
            if answer is not None:
                _turn(tally, seen, place, parent, answer)

    return ask_rules


def _turn(tally: ScenarioTally, seen: TurnSeen, place: Place, parent: Place | None, answer: v.Answer) -> None:
    refused, right = bool(answer.refused), seen.arrived.ids
    ids = None if refused else _counted(right or (), answer.tokens or 0)
    arrived = replace(seen.arrived, ids=ids, refused=refused)
    _report(tally, "session", answer.label, seen.request, ask(tally, "session", arrived))
    if refused or right is None:
        return
    spans = media_spans(seen.family, seen.prompt)
    held = _held("turn", place, right, answer, covers=seen.tabulated, spans=spans, parent=parent)
    _report(tally, "session", answer.label, seen.request, ask(tally, "session", held), held)


def _retractions(value: v.RetractionInput) -> AskRules:
    family, prompt = find_family(value.family), history_of(value.request.runs)
    place = _place(family, prompt, value.request.tabulated)
    covers = value.request.tabulated if place.has_media else 0
    raw: tuple[int, ...] = ()
    for run in prompt:
        size = run_length(family, run)
        raw += tuple(range(len(raw) + 1, len(raw) + 1 + size)) if run.is_text else (PLACEHOLDER,) * size
    before = _seen_rows(tuple(row[:covers] for row in value.request.table)) if covers else None

    def ask_rules(tally: ScenarioTally, answered: Mapping[str, v.Answer]) -> None:
        for number, one in enumerate(value.retractions):
            answer = _found(tally, "retraction", f"retraction {number}", answered)
            if answer is None:
                continue
            outputs = tuple(range(len(raw) + 1, len(raw) + 1 + one.outputs))
            held = _held(
                "scheduled",
                place,
                raw,
                answer,
                covers=covers,
                outputs=outputs,
                fill_ids=_counted(raw + outputs, answer.tokens or 0),
                table_before=before if one.refusals else None,
            )
            _report(tally, "retraction", answer.label, 0, ask(tally, "retraction", held), held)

    return ask_rules


def _held(
    moment: str,
    place: Place,
    raw: tuple[int, ...],
    answer: v.Answer,
    *,
    covers: int,
    spans: v.Spans = (),
    outputs: tuple[int, ...] = (),
    fill_ids: tuple[int, ...] | None = None,
    table_before: Seen | None = None,
    parent: Place | None = None,
) -> HeldState:
    delta = place.delta if moment != "turn" and place.has_media else answer.delta
    return HeldState(
        moment=moment,
        place=place,
        covers=covers,
        spans=spans,
        media=tuple(token == PLACEHOLDER for token in raw),
        raw=raw,
        outputs=outputs,
        retracted=moment == "scheduled",
        table=None if answer.rows is None else _seen_rows(answer.rows),
        delta=None if delta is None else Seen(dtype="int64", shape=(1, 1), values=((delta,),)),
        delta_cache=None,
        offsets=answer.media_spans or (),
        ids=raw,
        unpadded_ids=raw,
        output_ids=outputs,
        fill_ids=fill_ids,
        parent=parent,
        table_before=table_before,
    )


def _place(family: Family, history: History, tabulated: int) -> Place:
    columns = prompt_table(family, history)
    return Place(
        rows=tuple(tuple(column[axis] for column in columns) for axis in range(family.axes)),
        tabulated=tabulated,
        delta=Delta(delta_of(columns)),
        has_media=any(not run.is_text for run in history),
    )


def _seen_rows(rows: v.Rows) -> Seen:
    """Rows of unequal width are no table of rows."""
    widths = {len(row) for row in rows}
    shape = (len(rows), *widths) if len(widths) == 1 else (len(rows),)
    return Seen(dtype="int64", shape=shape, values=rows)


def _counted(right: tuple[int, ...], count: int) -> tuple[int, ...]:
    """A vector counts tokens: so many of the right ones, and others past them."""
    return right[:count] + (-1,) * (count - len(right))


def _found(tally: ScenarioTally, mode: str, label: str, answered: Mapping[str, v.Answer]) -> v.Answer | None:
    tally.asked[mode].append("table.present")
    if label in answered:
        return answered[label]
    shape, message = "table missing", f"no table {label!r}; answered: {', '.join(map(repr, answered)) or 'none'}"
    tally.fail(Failure(rule="table.present", mode=mode, signature=shape, step=0, label=label, message=message))
    return None


def _report(
    tally: ScenarioTally,
    mode: str,
    label: str,
    request: int,
    broken: Sequence[tuple[Rule, Violation]],
    held: HeldState | None = None,
) -> None:
    for rule, found in broken:
        shape = found.shape or ("other values" if held is None else held_signature(held, found))
        tally.fail(failure_of(rule.id, mode, found, request, signature=shape, label=label))

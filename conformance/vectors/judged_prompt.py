"""A prompt table that a family's builder made, put to the rules of families."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from ropecheck.conformance.judge.outcome import Difference, Failure
from ropecheck.conformance.judge.tally import Tally
from ropecheck.conformance.vectors import types as v
from ropecheck.conformance.vectors.runs import columns_of, history_of
from ropecheck.spec.families import family as find_family
from ropecheck.spec.families.declaration import GridFamily
from ropecheck.spec.families.hunyuan_vl import HUNYUAN_VL
from ropecheck.spec.families.omni import has_track
from ropecheck.spec.families.rules import pieces
from ropecheck.spec.history import Column, delta_of, next_position, prompt_table, run_length
from ropecheck.spec.rules import all_rules

MODE = "prompt_table"

Asked = tuple[str, tuple[object, ...]]
"""Rule, and what it is asked about."""


def prompt_judge(value: v.PromptTableInput) -> Callable[[Tally, Mapping[str, v.Answer]], None]:
    """Asks every rule that speaks of the prompt."""
    family = find_family(value.family)
    right = prompt_table(family, history_of(value.runs))

    def ask_rules(tally: Tally, answered: Mapping[str, v.Answer]) -> None:
        answer = answered.get("")
        tally.check("table.present", MODE)
        if answer is None or answer.rows is None:
            _fail(tally, "table.present", "table missing", "no table ''")
            return
        tally.check("table.three_rows", MODE)
        if len(answer.rows) != family.axes or len({len(row) for row in answer.rows}) > 1:
            widths = ", ".join(str(len(row)) for row in answer.rows)
            message = f"rows of {widths} columns, must be {family.axes} of equal width"
            _fail(tally, "table.three_rows", "wrong number of rows", message)
            return
        table, rules = columns_of(answer.rows), all_rules()
        for rule, about in _asked(value, right, table, answer.delta):
            tally.check(rule, MODE)
            if not rules[rule].check(*about):
                _wrong(tally, rule, right, table, answer.delta)

    return ask_rules


def _asked(
    value: v.PromptTableInput, right: Sequence[Column], table: Sequence[Column], delta: int | None
) -> Iterator[Asked]:
    """Every family rule that the prompt is an example of; of a table of another width, those on widths."""
    family, history = find_family(value.family), history_of(value.runs)
    whole = (family, history, table)
    yield "families.table_width", whole
    yield "families.delta", (family, history, delta)
    for run in history:
        if run.kind == "video" and getattr(family, "temporal_merge", 1) > 1:
            yield "families.temporal_merge", (family, run, run_length(family, run) + len(table) - len(right))
    if len(table) != len(right):
        return
    yield "families.table", whole
    if any(run.is_text for run in history):
        yield "families.text_rows_equal", whole
    yield "families.text_after_media", whole
    if family is HUNYUAN_VL:
        yield "families.hunyuan_vl.four_rows", (history, table, delta)
    if any(map(has_track, history)) and history[-1].is_text and delta is not None:
        yield "families.one_continuation", (table, delta)
    cut = pieces(family, history, table)
    if family.frames_apart and any(run.kind == "video" and len(columns) > 1 for run, columns in cut):
        yield "families.frame_per_run", whole
    at = 0
    for run, columns in cut:
        start = next_position(right[:at])
        at += len(columns)
        if run.kind != "video":
            continue
        if has_track(run):
            yield "families.audio_in_video", (family, run, start, columns)
        elif family.absolute_time and isinstance(family, GridFamily):
            yield "families.absolute_time", (family, run, start, columns)


def _wrong(tally: Tally, rule: str, right: Sequence[Column], table: Sequence[Column], delta: int | None) -> None:
    if rule == "families.delta":
        missing = "delta missing" if delta is None else "other delta"
        _fail(tally, rule, missing, f"delta {delta}, must be {delta_of(right)}", Difference("delta", observed=delta))
        return
    if len(right) != len(table):
        few = "too few columns" if len(table) < len(right) else "too many columns"
        difference = Difference("t", min(len(right), len(table)), 0, len(right), len(table))
        _fail(tally, rule, few, f"{len(table)} columns for {len(right)} tokens", difference)
        return
    cells = ((at, axis) for at in range(len(right)) for axis in range(len(right[0])))
    at, axis = next(((at, axis) for at, axis in cells if right[at][axis] != table[at][axis]), (0, 0))
    shifts = {
        seen - want for one, other in zip(right, table, strict=True) for want, seen in zip(one, other, strict=True)
    }
    constant = len(shifts) == 1
    shape = ("off by one" if shifts <= {1, -1} else "shifted by a constant") if constant else "other values"
    difference = Difference("thwx"[axis], at, 0, right[at][axis], table[at][axis])
    _fail(tally, rule, shape, f"column {at}: {table[at]}, must be {right[at]}", difference)


def _fail(tally: Tally, rule: str, shape: str, message: str, difference: Difference | None = None) -> None:
    tally.fail(Failure(rule=rule, mode=MODE, signature=shape, step=0, label="", message=message, difference=difference))

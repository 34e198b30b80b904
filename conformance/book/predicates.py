"""What rules say, as one expression each: the rule book draws it as a formula.

A second statement beside the body that judges, which also names the shape of what is wrong. Tests hold the two together
on every view that a run makes and on drawn ones. Rules whose own body is one expression need none here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ropecheck.spec.held import INT64
from ropecheck.spec.history import delta_of
from ropecheck.spec.ownership import cached_deltas, fill
from ropecheck.spec.prefix import agreeing
from ropecheck.spec.retraction import history
from ropecheck.spec.rules import Rule
from ropecheck.spec.session import afresh, continued, must_refuse, without_reply
from ropecheck.spec.views import Readings

Predicate = Callable[[Any], Any]

PREDICATES: dict[str, Predicate] = {}
"""Rule id -> whether a view keeps the rule."""


def of(*rules: str) -> Callable[[Predicate], Predicate]:
    """What these rules say."""

    def put(function: Predicate) -> Predicate:
        PREDICATES.update(dict.fromkeys(rules, function))
        return function

    return put


@of("table.present")
def present(view: Any) -> Any:
    return view.positions is not None and (view.rows is not None or view.one_dimensional)


@of("table.dtype")
def dtype(view: Any) -> Any:
    return (view.positions is None or view.positions.dtype == view.index_dtype) and (
        view.rows is None or view.rows.dtype == INT64
    )


@of("table.three_rows")
def three_rows(view: Any) -> Any:
    return len(view.rows.shape) == 2 and view.rows.shape[0] == view.axes


@of("table.width", "padding.width")
def width(view: Any) -> Any:
    return (view.positions is None or view.positions.shape == (view.tokens,)) and (
        view.rows is None or (len(view.rows.shape) > 0 and view.rows.shape[-1] == view.tokens)
    )


@of("table.index")
def index(row: Any) -> Any:
    return all(row.positions[k] == row.tokens[k] for k in range(len(row.tokens)))


@of("table.text_only")
def text_only(row: Any) -> Any:
    return all(axis[k] == row.tokens[k] for axis in row.columns for k in range(len(row.tokens)))


@of("table.inside_table")
def inside_table(row: Any) -> Any:
    return all(
        row.columns[a][k] == row.place.rows[a][row.tokens[k]] for k in row.inside for a in range(len(row.columns))
    )


@of("table.past_table")
def past_table(row: Any) -> Any:
    return all(axis[k] == row.tokens[k] + row.place.delta for k in row.past for axis in row.columns)


@of("padding.live_columns")
def live_columns(row: Any) -> Any:
    return all(
        row.positions[k] == row.tokens[k]
        and all(row.columns[a][k] == row.place.column(row.tokens[k])[a] for a in range(len(row.columns)))
        for k in range(len(row.tokens))
    )


@of("padding.harmless_fill", "padding.tail")
def zeros(filler: Any) -> Any:
    return all(axis[k] == 0 for axis in (filler.positions, *filler.columns) for k in range(len(axis)))


@of("table.forwards")
def forwards(loop: Any) -> Any:
    return loop.ran == loop.must


@of("ownership.batch_is_read_only")
def batch_is_read_only(built: Any) -> Any:
    return built.changed == ()


@of("laws.same_step_twice")
def same_step_twice(twice: Any) -> Any:
    return twice.first == twice.second


@of("session.refused")
def refused(turn: Any) -> Any:
    return turn.refused == must_refuse(
        turn.streaming,
        turn.in_flight,
        turn.parent_finished,
        turn.parent_known,
        turn.replace or turn.offset > 0 or turn.drop_previous_output,
    )


@of(
    "session.append",
    "session.branch",
    "session.streaming_append",
    "session.replace_with_parent",
    "session.abort_and_retry",
)
def append(turn: Any) -> Any:
    return turn.ids == continued(turn.saved.prompt, turn.saved.outputs[: turn.saved.max_new_tokens], turn.new)


@of("session.replace_all")
def replace_all(turn: Any) -> Any:
    return turn.ids == afresh(turn.new)


@of("session.drop_previous_output")
def drop_previous_output(turn: Any) -> Any:
    return turn.ids == without_reply(turn.saved.prompt, turn.new)


@of("session.offset")
def offset(turn: Any) -> Any:
    return turn.ids == (
        continued(turn.saved.prompt, () if turn.drop_previous_output else kept_reply(turn.saved), ())[: turn.offset]
        + turn.new
        if turn.saved is not None
        else turn.new
    )


def kept_reply(saved: Any) -> Any:
    """The reply that a later turn continues from."""
    return saved.outputs[: saved.max_new_tokens]


@of("session.reply_that_counts")
def reply_that_counts(turn: Any) -> Any:
    return (
        turn.ids[len(turn.saved.prompt) : len(turn.ids) - len(turn.new)]
        == turn.saved.outputs[: turn.saved.max_new_tokens]
    )


@of("session.table", "request.table", "retraction.table")
def table(held: Any) -> Any:
    return (
        held.table is not None
        and len(held.table.shape) == 2
        and held.table.shape[0] == len(held.place.rows)
        and held.table.dtype == INT64
        and held.table.shape[1] >= held.covers
        and all(
            held.table.values[a][i] == held.place.column(i)[a]
            for a in range(len(held.place.rows))
            for i in range(held.table.shape[1])
        )
    )


@of("session.delta", "request.delta")
def delta(held: Any) -> Any:
    return (
        held.delta is not None
        and held.delta.shape == (1, 1)
        and held.delta.dtype == INT64
        and held.delta.values[0][0] == held.place.delta
    )


@of("session.media_spans", "request.media_spans")
def media_spans(held: Any) -> Any:
    return held.offsets == held.spans


@of("retraction.same_history")
def same_history(held: Any) -> Any:
    return held.fill_ids == history(held.ids, held.outputs)


@of("retraction.refused_attempts")
def refused_attempts(held: Any) -> Any:
    return (
        len(held.table.shape) != 2
        or len(held.table_before.shape) != 2
        or (
            held.table_before.shape[1] <= held.table.shape[1] <= len(held.raw) + len(held.outputs)
            and all(
                row[i] == before[i]
                for row, before in zip(held.table.values, held.table_before.values, strict=False)
                for i in range(held.table_before.shape[1])
            )
        )
    )


@of("freshness.fill_ids")
def fill_ids(held: Any) -> Any:
    return held.fill_ids == fill(held.ids, held.outputs)


@of("freshness.delta_cache")
def delta_cache(held: Any) -> Any:
    return {value for row in held.delta_cache.values for value in row} == cached_deltas(held.place.delta)


@of("freshness.padded_media")
def padded_media(held: Any) -> Any:
    return len(held.ids) == len(held.raw) and all(
        (held.ids[i] != held.raw[i]) == held.media[i] for i in range(len(held.raw))
    )


@of("request.prompt")
def prompt(held: Any) -> Any:
    return held.unpadded_ids == held.raw


@of("request.outputs")
def outputs(held: Any) -> Any:
    return held.output_ids == held.outputs


@of("request.prefix_len")
def prefix_len(held: Any) -> Any:
    return held.prefix_len == held.hit


@of("request.pad_values")
def pad_values(held: Any) -> Any:
    return all(held.ids[i] == held.ids_before[i] for span in held.spans for i in range(span[0], span[1]))


@of("request.aborted")
def aborted(one: Any) -> Any:
    return one.aborted == one.refused


@of("ownership.parent_unchanged")
def parent_unchanged(one: Any) -> Any:
    return one.now == one.was


@of("ownership.others_unchanged")
def others_unchanged(one: Any) -> Any:
    return one.now == one.was or one.filled


@of("cost.text_only")
def cost_text_only(cost: Any) -> Any:
    return cost.copies <= cost.allowed[0]


@of("cost.media")
def cost_media(cost: Any) -> Any:
    return cost.copies <= cost.allowed[1]


@of("cost.host_lengths")
def cost_host_lengths(cost: Any) -> Any:
    return cost.copies <= cost.allowed[cost.has_media] + cost.extra


@of("cost.device_values")
def cost_device_values(cost: Any) -> Any:
    return cost.reads == 0


@of("cost.synchronisations")
def cost_synchronisations(cost: Any) -> Any:
    return cost.waits <= (1 if cost.has_media else 0)


@of("schedule.window")
def schedule_window(view: Any) -> Any:
    return (
        view.start >= 0
        and view.count >= 1
        and view.start + view.count <= view.total
        and (view.free or view.start == view.computed)
    )


@of("schedule.newest")
def schedule_newest(view: Any) -> Any:
    return view.computed == view.total - 1


@of("schedule.members")
def schedule_members(view: Any) -> Any:
    return view.state == "live"


@of("schedule.counts")
def schedule_counts(view: Any) -> Any:
    return view.seq_len == view.right


@of("schedule.reply")
def schedule_reply(view: Any) -> Any:
    return (
        view.before + len(view.got) <= view.limit
        and view.got == view.answered[view.before : view.before + len(view.got)]
    )


@of("schedule.survives")
def survives(view: Any) -> Any:
    return view.error == ""


@of("families.dtype_and_shape")
def dtype_and_shape(built: Any) -> Any:
    return built.dtype == INT64 and (
        built.shape in built.right
        if built.name == "delta"
        else len(built.shape) in {len(one) for one in built.right} and built.shape[0] == built.right[0][0]
    )


@of("families.table")
def families_table(built: Any) -> Any:
    return built.columns is not None and built.columns == built.right


@of("families.table_width")
def table_width(built: Any) -> Any:
    return len(built.columns) == len(built.right)


@of("families.delta")
def families_delta(built: Any) -> Any:
    return built.delta == (0 if built.family.name == "glm_image" else delta_of(built.right))


@of("families.one_continuation")
def one_continuation(built: Any) -> Any:
    return built.delta == max(built.columns[-1]) + 1 - len(built.columns)


@of("families.hunyuan_vl.four_rows")
def four_rows(built: Any) -> Any:
    return (
        all(len(built.columns[i]) == 4 and built.columns[i][0] == i for i in range(len(built.columns)))
        and built.delta == 0
    )


@of("families.refuses_disagreeing_grids", "families.refuses_undivided_grid", "families.refuses_missing_intervals")
def refuses(prompt: Any) -> Any:
    return prompt.refused


@of("prefix.identity")
def identity(hit: Any) -> Any:
    return hit.tokens <= agreeing(hit.own, hit.other)


@of("rotary.table_is_read_only")
def table_is_read_only(table: Any) -> Any:
    return not table.changed


@of("schedule.at_rest")
def schedule_at_rest(view: Any) -> Any:
    return not view.unanswered and not view.retained and not view.leak


def same(view: Any, i: int) -> Any:
    """The same token, at the same probability but for rounding."""
    return view.got[i] == view.right[i] and (
        i >= min(len(view.got_logprobs), len(view.right_logprobs))
        or abs(view.got_logprobs[i] - view.right_logprobs[i]) <= view.tolerance
    )


@of("live.same_answer")
def same_answer(view: Any) -> Any:
    return (
        len(view.got) <= len(view.right) and all(same(view, i) for i in range(min(len(view.got), len(view.right))))
    ) or any(
        view.got[k] != view.right[k]
        and view.margins[k] <= view.tolerance
        and all(same(view, i) for i in range(min(k, len(view.got))))
        for k in range(min(len(view.got), len(view.right), len(view.margins)))
    )


def agree(pair: Any) -> Any:
    """What every law but one says of its two readings; which two they are is the law's sentence."""
    return any(i in pair.right for i in pair.left) and all(
        pair.left[i] == pair.right[i] for i in pair.left if i in pair.right
    )


@of("laws.text_rows_are_the_index")
def text_rows(pair: Any) -> Any:
    return len(pair.left) > 0 and all(position == i for i in pair.left for position in pair.left[i])


def predicate_of(rule: Rule) -> Predicate | None:
    """What the rule says as one expression; None where its body is all that there is."""
    if rule.view is Readings and rule.id not in PREDICATES:
        return agree
    return PREDICATES.get(rule.id)

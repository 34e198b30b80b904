"""Every proof can fail: a fault planted in the specification's own function is refuted with a small counterexample."""

from __future__ import annotations

import pytest

from ropecheck.conformance.prove.prover import Counterexample, Prover
from ropecheck.conformance.prove.text import counterexample_lines
from ropecheck.conformance.prove.theorems import THEOREMS
from tests.prove.planted import plant

CHAINS = "modes.declaration:_one_deeper"
FAULTS = (
    ("laws.chunked_prefill_is_one_prefill", "modes.extend:extend", "span(prefix_len,", "span(0,"),
    ("laws.chunked_prefill_is_one_prefill", "modes.extend:extend", ", extend_len)", ", extend_len - 1)"),
    ("laws.extend_composes", "modes.extend:extend", ", extend_len)", ", extend_len - 1)"),
    ("laws.verify_chain_is_decodes", "modes.target_verify:target_verify", "at(seq_len,", "at(seq_len - 1,"),
    ("laws.verify_chain_is_decodes", CHAINS, "found[parent] + 1", "found[parent] + 2"),
    ("laws.verify_chain_is_decodes", "modes.decode:decode", "span(seq_len - 1, 1)", "span(seq_len, 1)"),
    (
        "laws.draft_extend_is_verify_chain",
        "modes.draft_extend_v2:draft_extend_v2",
        "span(seq_len,",
        "span(seq_len - 1,",
    ),
    ("laws.draft_step_is_a_decode", "modes.draft_decode:draft_decode", "seq_len + step,", "seq_len,"),
    ("laws.batch_order", "modes.declaration:Mode.row", "value[row] if", "value[0] if"),
    ("laws.batch_split", "modes.declaration:Mode.row", "value[row] if", "value[min(row, 2)] if"),
    ("laws.text_rows_are_the_index", "views:Place.column", "row[index] for", "row[index] + 1 for"),
    ("laws.text_rows_are_the_index", "history:run_columns", "(start + i,)", "(start + i + i,)"),
    ("laws.speculation_places_the_same", "modes.ragged_verify:ragged_verify", "at(seq_len,", "at(seq_len + 1,"),
    ("laws.one_token_one_column", "laws:agree", "pair.left[index] != right[index]", "pair.left[index] == right[index]"),
    ("table.index", CHAINS, "found[parent] + 1", "len(found)"),
    ("table.index", "modes.split_prefill:split_prefill", "span(prefix_len, ", "span(prefix_len + 1, "),
    ("table.index", "column_rules:index", "(row.positions,)", "((row.positions[0], *row.tokens[1:]),)"),
    ("table.inside_table", "column_rules:inside_table", "row.place.rows, strict", "row.place.rows[:1] * 4, strict"),
    ("table.inside_table", "column_rules:inside_table", "table[row.tokens[k]]:", "table[row.tokens[k] - 1]:"),
    ("table.past_table", "column_rules:past_table", "row.tokens[k] + row.place.delta", "row.tokens[k]"),
    ("table.past_table", "column_rules:past_table", "zip(AXES,", "zip(AXES[:2],"),
    ("laws.retract_and_resume", "history:delta_of", "len(table))", "len(table) + 1)"),
    ("table.text_only", "column_rules:text_only", "(row.tokens,) * len(columns)", "(row.tokens,)"),
    ("table.width", "column_rules:_width", "found != view.tokens", "found < view.tokens"),
    ("padding.width", "column_rules:_width", '("t", "three-row", view.rows)', ""),
    ("padding.live_columns", "column_rules:live_columns", "(row.tokens, *right)", "(row.tokens, *right[:2])"),
    ("padding.harmless_fill", "column_rules:_zeros", "value != PADDING_VALUE", "value > PADDING_VALUE"),
    ("padding.tail", "column_rules:_zeros", "enumerate(seen)", "enumerate(seen[1:])"),
    ("laws.append_is_a_fresh_request", "session:continued", "prompt + reply + new", "prompt + new"),
    ("laws.append_is_a_fresh_request", "session:reply_tokens", "min(", "max("),
    ("laws.append_is_a_fresh_request", "session:without_reply", "prompt + new", "new + prompt"),
    (
        "laws.append_is_a_fresh_request",
        "history:prompt_table",
        "start = max(start, next_position(placed))",
        "start = next_position(placed)",
    ),
    ("laws.branch_is_its_own_history", "session:continued", "prompt + reply + new", "reply + prompt + new"),
    ("laws.retract_and_resume", "retraction:history", "prompt + outputs", "prompt"),
    ("laws.retract_and_resume", "history:next_position", "map(max, columns)", "column[0] for column in columns"),
    ("session.append", "session:append", "_reply(turn.saved)", "turn.saved.outputs"),
    ("session.append", "families.declaration:block", "start + row", "row"),
    ("session.append", "families.declaration:ramp", "start + i", "i"),
    ("session.delta", "history:delta_of", "next_position(table) - len(table)", "next_position(table) - len(table) - 1"),
    ("session.offset", "history:cut", "text(left)", "text(left - 1)"),
    ("session.offset", "session:offset", "[: turn.offset]", "[: turn.offset + 1]"),
    ("retraction.table", "retraction:history", "prompt + outputs", "prompt + outputs + outputs"),
    ("session.branch", "session:branch", "_reply(turn.saved)", "()"),
    ("session.streaming_append", "session:streaming_append", "_reply(turn.saved)", "()"),
    ("session.replace_with_parent", "session:replace_with_parent", "turn.saved.prompt,", "(),"),
    ("session.replace_all", "session:afresh", "return new", "return new + new"),
    ("session.abort_and_retry", "session:abort_and_retry", "turn.new)", "turn.new[1:])"),
    ("session.drop_previous_output", "session:without_reply", "prompt + new", "prompt"),
    ("session.reply_that_counts", "session:reply_that_counts", "[: saved.max_new_tokens]", ""),
)
"""(rule, module:function, what is replaced, by what)."""


def refuted(rule: str) -> Counterexample:
    found = Prover().prove(THEOREMS[rule])
    assert found.state == "refuted", found
    assert found.counterexample is not None
    return found.counterexample


@pytest.mark.parametrize(("rule", "where", "old", "new"), FAULTS)
def test_a_fault_is_refuted_on_one_screen(
    rule: str, where: str, old: str, new: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, where, old, new)
    found = refuted(rule)
    lines = list(counterexample_lines(found))
    assert len(lines) <= 24
    assert found.weight <= 12, lines
    if old != "pair.left[index] != right[index]":  # a rule turned round complains of equal columns
        assert found.difference.left != found.difference.right


def test_every_theorem_has_a_fault() -> None:
    assert {rule for rule, *_ in FAULTS} == set(THEOREMS)


def test_the_smallest_values_and_both_sides_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, "modes.draft_decode:draft_decode", "seq_len + step,", "seq_len,")
    found = refuted("laws.draft_step_is_a_decode")
    text = "\n".join(counterexample_lines(found))
    assert found.values["step"] == 1 and found.values["seq_len"] == 1 and found.values["topk"] == 1, text
    assert "says laws.draft_step_is_a_decode" in text


def test_a_table_of_three_rows_for_a_family_of_four_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, "history:run_columns", "* family.axes", "* 3")
    refuted("laws.retract_and_resume")


def test_a_fault_in_a_family_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, "families.omni:simple_columns", "ramp(start,", "ramp(0,")
    assert refuted("session.append").values["family"] in ("qwen2_5_omni", "qwen3_omni", "qwen3_asr")


FOLD = "reduce(_one_deeper, parents, (0,))"
NEVER = (
    # Faults that show only in a larger batch, a longer tree, a longer history or a larger size than is tried.
    ("laws.batch_split", "modes.declaration:Mode.row", "value[row] if", "value[min(row, 500)] if"),
    ("laws.batch_order", "modes.declaration:Mode.row", "value[row] if", "value[row - (row > 500)] if"),
    (
        "laws.draft_extend_is_verify_chain",
        "modes.draft_extend_v2:draft_extend_v2",
        ", num_draft_tokens)",
        ", min(num_draft_tokens, 900))",
    ),
    ("table.index", CHAINS, "found[parent] + 1", "found[parent] + (len(found) < 700)"),
    ("table.index", CHAINS, "return found + own", "return found[:700] + own"),
    ("laws.verify_chain_is_decodes", "modes.declaration:depths", "parents, (0,))", "parents[:700], (0,))"),
    ("laws.verify_chain_is_decodes", "modes.declaration:depths", FOLD, f"tuple(min(d, 700) for d in {FOLD})"),
    ("session.append", "history:prompt_table", "in history:", "in history[:500]:"),
    ("session.offset", "history:length", "in history:", "in history[:500]:"),
    ("session.append", "families.declaration:ramp", "start + i", "min(start + i, 700)"),
    ("laws.retract_and_resume", "history:run_columns", "(start + i,)", "(start + (i if i < 5000 else 0),)"),
    ("laws.draft_step_is_a_decode", "modes.draft_decode:draft_decode", "seq_len + step,", "(seq_len * step) // 3,"),
)


@pytest.mark.parametrize(("rule", "where", "old", "new"), NEVER)
def test_a_fault_of_large_sizes_is_never_proved(
    rule: str, where: str, old: str, new: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, where, old, new)
    found = Prover().prove(THEOREMS[rule])
    assert found.state in ("refuted", "unanswered"), found
    assert found.reason or found.counterexample

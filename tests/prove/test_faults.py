"""Every proof can fail: a fault planted in the specification's own function is refuted with a small counterexample."""

from __future__ import annotations

import importlib
import inspect

import pytest

from ropecheck.conformance.prove.columns import THEOREMS as COLUMN_THEOREMS
from ropecheck.conformance.prove.prover import Counterexample, Prover
from ropecheck.conformance.prove.statement import Theorem
from ropecheck.conformance.prove.text import counterexample_lines
from ropecheck.conformance.prove.theorems import THEOREMS
from ropecheck.spec.rules import all_rules
from tests.prove.planted import plant

FAULTS = (
    ("laws.chunked_prefill_is_one_prefill", "modes.extend:indices", "prefix_len + i)", "i)"),
    ("laws.chunked_prefill_is_one_prefill", "modes.extend:past_table", "place.delta", "0"),
    ("laws.extend_composes", "modes.extend:indices", "range(extend_len)", "range(extend_len - 1)"),
    (
        "laws.verify_chain_is_decodes",
        "modes.target_verify:index_of",
        "seq_len + depth",
        "seq_len + depth - 1",
    ),
    ("laws.verify_chain_is_decodes", "modes.target_verify:depths", "out[parent] + 1", "out[parent] + 2"),
    (
        "laws.verify_chain_is_decodes",
        "modes.decode:index_of",
        "TokenIndex(seq_len - 1)",
        "TokenIndex(seq_len)",
    ),
    (
        "laws.draft_extend_is_verify_chain",
        "modes.draft_extend_v2:indices",
        "seq_len + i",
        "seq_len + i - 1",
    ),
    ("laws.draft_step_is_a_decode", "modes.draft_decode:index_of", "seq_len + step", "seq_len"),
    (
        "laws.batch_order",
        "modes.decode:forward",
        '"decode", request, place,',
        '"decode", request, places[0],',
    ),
    (
        "laws.batch_split",
        "modes.mixed:forward",
        '"mixed", request, place,',
        '"mixed", request, places[0],',
    ),
    (
        "laws.batch_split",
        "modes.extend:forward",
        '"extend", request, window',
        '"extend", request, windows[0]',
    ),
    (
        "laws.text_rows_are_the_index",
        "modes.cells:text_column",
        "(index,) * axes",
        "(index + 1,) * axes",
    ),
    (
        "laws.speculation_places_the_same",
        "modes.ragged_verify:index_of",
        "target_verify.index_of(seq_len, depth)",
        "target_verify.index_of(seq_len + 1, depth)",
    ),
    ("target_verify.depths", "modes.target_verify:depths", "out[parent] + 1", "node"),
    (
        "split_prefill.indices",
        "modes.split_prefill:indices",
        "prefix_len, extend_len)",
        "prefix_len + 1, extend_len)",
    ),
    ("mixed.indices", "modes.mixed:indices", "seq_len - 1, 1", "seq_len, 1"),
    ("padding.live_columns", "modes.padding:live", "return cells", "return cells[1:]"),
    (
        "padding.live_columns",
        "modes.padding:fill",
        "text_column(PADDING_VALUE,",
        "text_column(PADDING_VALUE + 1,",
    ),
    (
        "ragged_verify.tail",
        "modes.ragged_verify:tail",
        "return tier - packed",
        "return tier - packed - 1",
    ),
    ("laws.append_is_a_fresh_request", "session:append", "text(reply(saved))", "text(reply(saved) - 1)"),
    ("laws.append_is_a_fresh_request", "session:reply", "min(", "max("),
    ("laws.append_is_a_fresh_request", "session:append", "(saved.prompt, (text", "((text"),
    (
        "laws.append_is_a_fresh_request",
        "history:prompt_table",
        "max(start, next_position(placed))",
        "next_position(placed)",
    ),
    (
        "laws.branch_is_its_own_history",
        "session:branch",
        "del earlier_children",
        "new = (*earlier_children[0], *new)",
    ),
    ("laws.retract_and_resume", "retraction:history", "text(outputs)", "text(outputs - 1)"),
    ("laws.retract_and_resume", "history:next_position", "max(max(column) for", "max(column[0] for"),
    (
        "session.append",
        "session:append",
        "text(reply(saved)),), new",
        "text(reply(saved)),), new, (text(1),)",
    ),
    ("session.append", "families.declaration:block", "start + row", "row"),
    ("session.append", "families.declaration:ramp", "start + i", "i"),
    ("session.delta", "session:delta", "delta_of(columns)", "delta_of(columns[1:])"),
    ("session.offset", "history:cut", "text(left)", "text(left - 1)"),
    ("session.offset", "session:offset", "min(keep, length(family, whole))", "length(family, whole)"),
    ("retraction.table", "retraction:table", "history(prompt, outputs)", "history(prompt, outputs + 1)"),
    (
        "retraction.table",
        "history:delta_of",
        "next_position(table) - len(table)",
        "next_position(table[1:]) - len(table)",
    ),
)
"""(rule, module:function, what is replaced, by what)."""

OWN_INDEX = ("place, index)", "columns[index]", "shifted(index,", "text_column(index,", "text_only(index,")
"""Where a rule that places a token reads its index; one of these stands in each."""


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
    assert len(lines) <= 20
    assert found.weight <= 12, lines
    assert found.difference.left != found.difference.right


@pytest.mark.parametrize("theorem", COLUMN_THEOREMS, ids=lambda theorem: theorem.rule)
def test_a_rule_that_reads_the_next_token_is_refuted(theorem: Theorem, monkeypatch: pytest.MonkeyPatch) -> None:
    where = all_rules()[theorem.rule].stated.removeprefix("ropecheck.spec.")
    module, _, name = where.partition(":")
    source = inspect.getsource(getattr(importlib.import_module(module), name))
    (old,) = [part for part in OWN_INDEX if part in source]
    plant(monkeypatch, where, old, old.replace("index", "index + 1"))
    refuted(theorem.rule)


def test_every_theorem_has_a_fault() -> None:
    assert {rule for rule, *_ in FAULTS} | {theorem.rule for theorem in COLUMN_THEOREMS} == set(THEOREMS)


def test_the_smallest_values_and_both_sides_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """The delta of the first request for the second one: two prompts of one token, whose deltas differ by one."""
    plant(monkeypatch, "modes.decode:forward", '"decode", request, place,', '"decode", request, places[0],')
    found = refuted("laws.batch_split")
    text = "\n".join(counterexample_lines(found))
    assert found.weight == 4, text
    assert found.values["mode"] == "decode"
    assert "(1, 1, 1) by decode.index, decode.delta_applies_once" in text
    assert "(2, 2, 2) by decode.index, decode.delta_applies_once" in text


def test_a_table_of_three_rows_for_a_family_of_four_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, "modes.decode:text_only", "text_column(index, axes)", "text_column(index)")
    assert refuted("decode.text_only").difference.right == "(0, 0, 0, 0)"


def test_a_fault_in_a_family_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, "families.omni:simple_columns", "ramp(start,", "ramp(0,")
    assert refuted("session.append").values["family"] in ("qwen2_5_omni", "qwen3_omni")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("last = place", ""),
        ("places = places[1:]", "carries places"),
        ("seq_len += 0", "carries seq_len"),
        ("if out: place = out[-1]", "reads out, which it fills"),
        ("if request: break", "has a break"),
    ],
)
def test_a_loop_that_carries_something_is_not_proved(line: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two requests stand for any number only where the loop carries nothing from one to the next."""
    plant(
        monkeypatch,
        "modes.decode:forward",
        "        out.append(",
        f"        {line}\n        out.append(",
    )
    found = Prover().prove(THEOREMS["laws.batch_split"])
    assert found.state == ("unanswered" if why else "proved")
    assert found.reason.endswith(f"forward: a loop that {why}" if why else "")


ROUND = "            out.append(decode.cell("
TWICE = f"            out.append(None)\n{ROUND}"
FILL = "out = []\n    for _ in range(count):\n        out.append(cell)\n    return tuple(out)"


@pytest.mark.parametrize(
    ("rule", "where", "old", "new", "state"),
    [
        # Two cells a round: rounds are no longer columns, and where a column lies is not known.
        ("padding.live_columns", "modes.draft_extend_v2:forward", ROUND, TWICE, "unanswered"),
        # Equal cells of a loop count as often as the loop runs.
        ("padding.live_columns", "modes.padding:fill", "return (cell,) * count", FILL, "proved"),
        (
            "padding.live_columns",
            "modes.padding:fill",
            "return (cell,) * count",
            FILL.replace("range(count)", "range(count + 1)"),
            "refuted",
        ),
    ],
)
def test_a_loop_is_as_many_columns_as_it_has_rounds(
    rule: str, where: str, old: str, new: str, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, where, old, new)
    found = Prover().prove(THEOREMS[rule])
    assert found.state == state


def test_what_cannot_be_followed_is_not_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, "modes.draft_decode:index_of", "seq_len + step", "(seq_len * step) // 3")
    found = Prover().prove(THEOREMS["laws.draft_step_is_a_decode"])
    assert (found.state, found.reason) == ("unanswered", "drafted: a product of sizes: seq_len * step")

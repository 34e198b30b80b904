"""Faults that show only in a larger batch, a longer tree or a longer history than z3 runs: never proved."""

from __future__ import annotations

from types import ModuleType

import pytest

from ropecheck.conformance.prove import batches, laws, rows
from ropecheck.conformance.prove.explorer import Unanswered
from ropecheck.conformance.prove.loops import step_of
from ropecheck.conformance.prove.prover import Prover
from ropecheck.conformance.prove.routes import BATCHES
from ropecheck.conformance.prove.statement import Theorem
from ropecheck.conformance.prove.theorems import THEOREMS
from ropecheck.spec.families import declaration
from ropecheck.spec.modes import target_verify
from tests.prove.planted import plant

DECODE = "modes.decode:forward"
ZIPPED = "zip(places, seq_lens, strict=True)"
BATCH_FAULTS = (
    (DECODE, "index_of(seq_len)", "index_of(seq_len + (1 if request >= 2 else 0))"),
    (DECODE, "request, place,", "request, places[min(request, 1)],"),
    (DECODE, "index_of(seq_len)", "index_of(seq_len + len(places) if len(places) > 2 else seq_len)"),
    (DECODE, ZIPPED, f"list({ZIPPED})[:2]"),
    # As above, where no plain batch is large enough to show it.
    (DECODE, "index_of(seq_len)", "index_of(seq_len + (1 if request >= 200 else 0))"),
    (DECODE, "request, place,", "request, places[min(request, 100)],"),
    (DECODE, "index_of(seq_len)", "index_of(seq_len + len(places) if len(places) > 200 else seq_len)"),
    (DECODE, ZIPPED, f"list({ZIPPED})[:200]"),
    (DECODE, "    out = []\n", "    out = []\n    places = places[:200]\n    seq_lens = seq_lens[:200]\n"),
    (DECODE, "return tuple(out)", "return tuple(out[:200])"),
    (DECODE, ", strict=True)", ", strict=True), start=len(out)"),
    ("modes.decode:cell", "media_column(place, index)", "media_column(place, index + (request > 200))"),
    ("modes.extend:cells", "inside_table(place, index)", "inside_table(place, index - (request > 200))"),
    ("modes.mixed:forward", "indices(seq_len)", "indices(seq_len + (len(windows) > 200))"),
    ("modes.ragged_verify:forward", "(parents[request])", "(parents[request - (request > 200)])"),
    ("modes.draft_decode:forward", "range(topk)", "range(topk + (len(seq_lens) > 200))"),
)
SHOWN = BATCH_FAULTS[:4]
"""Those that a plain batch shows."""

DEPTHS = "modes.target_verify:depths"
ADDED = "        out.append(out[parent] + 1)"
DEPTH_FAULTS = (
    ("enumerate(parents, start=1)", "enumerate(parents[:7], start=1)"),
    ("return tuple(out)", "return tuple(out[:8])"),
    ("return tuple(out)", "return tuple(min(d, 7) for d in out)"),
    ("return tuple(out)", "return tuple(sorted(out, reverse=len(out) > 2))"),
    ("out = [0]", "out = [0] if len(parents) < 4 else [1]"),
    # As above, where no plain tree is large enough to show it.
    ("enumerate(parents, start=1)", "enumerate(parents[:700], start=1)"),
    ("return tuple(out)", "return tuple(out[:800])"),
    ("return tuple(out)", "return tuple(min(d, 700) for d in out)"),
    ("return tuple(out)", "return tuple(sorted(out, reverse=len(out) > 200))"),
    ("out = [0]", "out = [0] if len(parents) < 400 else [1]"),
    (ADDED, f"{ADDED}\n        if node > 700: out.append(0)"),
    (ADDED, f"        if node > 700: out[0] = 1\n{ADDED}"),
    ("out[parent] + 1)", "out[parent] + 1 if node < 700 else 0)"),
)
BATCH_LAWS = ("laws.batch_order", "laws.batch_split")
DEPTH_LAWS = ("target_verify.depths", "laws.verify_chain_is_decodes", "laws.draft_extend_is_verify_chain")
OTHER_FAULTS = (
    ("families.declaration:block", "in times:", "in times[:200]:"),
    ("families.declaration:block", "start + row", "start + row + (len(times) > 200)"),
    ("history:prompt_table", "in history:", "in history[:5]:"),
    ("history:prompt_table", "in history:", "in history[:500]:"),
    ("history:length", "in history:", "in history[:500]:"),
    ("history:prompt_table", "media += 1", "media += 1\n        if media > 3: start += 1"),
)


def never_proved(rule: str) -> str:
    found = Prover().prove(THEOREMS[rule])
    assert found.state in ("refuted", "unanswered"), found
    assert found.reason or found.counterexample
    return found.state


@pytest.mark.parametrize(("where", "old", "new"), BATCH_FAULTS)
def test_a_fault_of_larger_batches(where: str, old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the part of the batch laws that looks past two requests."""
    plant(monkeypatch, where, old, new)
    found = Prover().prove(Theorem(rule="laws.batch_split", statements=(laws.any_number,)))
    assert found.state == ("refuted" if (where, old, new) in SHOWN else "unanswered"), found


@pytest.mark.parametrize("rule", BATCH_LAWS)
@pytest.mark.parametrize(("where", "old", "new"), SHOWN)
def test_no_batch_law_is_proved(rule: str, where: str, old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, where, old, new)
    never_proved(rule)


@pytest.mark.parametrize("rule", DEPTH_LAWS)
@pytest.mark.parametrize(("old", "new"), DEPTH_FAULTS)
def test_a_fault_of_longer_trees(rule: str, old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, DEPTHS, old, new)
    never_proved(rule)


@pytest.mark.parametrize(("where", "old", "new"), OTHER_FAULTS)
def test_a_fault_of_longer_histories(where: str, old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, where, old, new)
    never_proved("session.append")


def test_any_number_is_part_of_every_batch_law() -> None:
    for rule in (*BATCH_LAWS, "laws.text_rows_are_the_index", "mixed.indices"):
        assert "any_number" in [one.__name__ for one in THEOREMS[rule].statements]


@pytest.mark.parametrize("module", dict.fromkeys(module for _, module in BATCHES.values()))
def test_each_forward_is_made_row_by_row(module: ModuleType) -> None:
    rows.check(module.forward)
    rows.check(declaration.block)
    step_of(target_verify.depths)


@pytest.mark.parametrize("mode", BATCHES)
def test_the_plain_batches_differ_from_row_to_row(mode: str) -> None:
    """Requests that are all alike would show nothing."""
    *_, (_, found, wanted) = batches.rows(mode, 3)
    assert found == wanted
    own = [tuple(cell[1:] for cell in found if cell[0] == row) for row in range(batches.REQUESTS)]
    assert all(own)
    assert len(set(own)) > 4


def test_a_wrapped_function_is_not_read() -> None:
    with pytest.raises(Unanswered, match="cannot be read as it is written"):
        rows.check(lambda places: places)


def test_the_specification_may_not_have_its_own_enumerate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ropecheck.spec.modes.decode.zip", zip, raising=False)
    assert never_proved("decode.text_only") == "unanswered"

"""`run_conformance`: the documented toy engine, and adapters that fail in each way."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from ropecheck.conformance.adopt import Adapter, run_conformance
from ropecheck.conformance.errors import UsageError
from tests.adopt import engines
from tests.adopt.conftest import DOC


def test_the_documented_engine_passes(toy: Path) -> None:
    ledger = run_conformance(importlib.import_module("toy_engine").ToyEngine())
    assert ledger.checked["table.past_table"] > 100
    assert not any(rule.startswith(("session.", "ownership.")) for rule in ledger.checked)
    assert ("idle", "the toy engine has no idle") in ledger.not_offered


def test_its_broken_copy_fails_with_rule_and_signature_on_one_screen(toy: Path) -> None:
    with pytest.raises(AssertionError) as caught:
        run_conformance(importlib.import_module("broken_engine").ToyEngine())
    text = str(caught.value)
    assert "table.past_table  decode: delta missing" in text
    assert "table.past_table  extend: delta missing" in text
    for part in ("(shrunk)", ">>  2 decode request 0", "broken_engine.py:5 ToyEngine.forward", "P 4, delta -2"):
        assert part in text
    assert len(text.splitlines()) < 40
    assert "table.past_table  decode: delta missing" in DOC.read_text()


def test_the_example_is_about_twenty_lines(toy: Path) -> None:
    code = [line for line in (toy / "toy_engine.py").read_text().splitlines() if line.strip()]
    assert len(code) <= 20


@pytest.mark.parametrize("make", [engines.Whole, engines.Arrays])
def test_a_whole_engine_passes_every_mode(make: type[Adapter]) -> None:
    ledger = run_conformance(make(), phases=("chosen", "laws"))
    topics = {rule.split(".")[0] for rule in ledger.checked}
    assert topics == {"laws", "padding", "table"}
    assert ("table.dtype" in ledger.checked) == (make is engines.Arrays)
    assert "ownership.batch_is_read_only" not in ledger.checked  # numbers cannot be changed: a pass would be empty


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (engines.Narrow, "table.dtype  decode: dtype int32"),
        (engines.Raises, "table.present  decode: raises ValueError"),
        (engines.Unset, "table.present  decode: table missing"),
        (engines.Forgetful, "padding.harmless_fill  decode: fill not zero"),
        (engines.NoTables, "could not run: "),
        (engines.NoTables, "forward(decode) must return (positions, rows), not str"),
        (engines.Declines, "nothing was checked in "),
        (engines.Declines, "not offered: nothing yet"),
    ],
)
def test_each_way_to_fail_is_told(make: type[Adapter], says: str) -> None:
    with pytest.raises(AssertionError) as caught:
        run_conformance(make())
    assert says in str(caught.value)


def test_only_the_modes_that_are_named_are_asked_for() -> None:
    ledger = run_conformance(engines.Raises(), modes=("extend", "ragged_verify"))
    assert {rule.split(".")[0] for rule in ledger.checked} == {"padding", "table", "laws"}
    assert "padding was not asked for" in ledger.why_not("padding.width")
    assert ("decode", "decode was not asked for") in ledger.not_offered


def test_bad_use_is_one_line() -> None:
    with pytest.raises(UsageError, match="unknown 'decodes'; known: beam_decode"):
        run_conformance(engines.Whole(), modes=("decodes",))
    with pytest.raises(UsageError, match="unknown phase 'choosen'"):
        run_conformance(engines.Whole(), phases=("choosen",))
    with pytest.raises(UsageError, match="adapter object: has no method forward"):
        run_conformance(object())  # type: ignore[arg-type]

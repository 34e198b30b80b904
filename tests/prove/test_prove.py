"""The laws are proved, every law is accounted for, and the command line says so."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

import pytest

from ropecheck.conformance.cli import app as cli
from ropecheck.conformance.prove.theorems import OUT_OF_REACH, THEOREMS
from ropecheck.spec.modes import all_modes, mode_of
from ropecheck.spec.rules import all_rules


def test_every_law_is_proved_or_listed() -> None:
    rules = all_rules()
    laws = {id for id in rules if id.startswith("laws.")}
    assert laws <= set(THEOREMS) | set(OUT_OF_REACH)
    assert not set(THEOREMS) & set(OUT_OF_REACH)
    assert set(THEOREMS) | set(OUT_OF_REACH) <= set(rules)
    assert all(reason and "\n" not in reason for reason in OUT_OF_REACH.values())


@pytest.fixture(scope="module")
def prover() -> Any:
    """One for all: a statement that several theorems share is proved once."""
    from ropecheck.conformance.prove.prover import Prover

    return Prover()


@pytest.mark.xdist_group("proofs")
@pytest.mark.parametrize("rule", THEOREMS)
def test_it_is_proved(prover: Any, rule: str) -> None:
    found = prover.prove(THEOREMS[rule])
    assert found.state == "proved", found
    assert found.paths and found.queries


def test_every_mode_with_three_rows_is_in_the_laws_of_batches() -> None:
    from ropecheck.conformance.prove.laws import modes

    parts = {part.name for mode in all_modes().values() for part in mode.parts if part.three_rows}
    assert {mode.name for mode in modes()} == parts - {"idle"}


def test_nothing_is_left_in_the_specification() -> None:
    from ropecheck.conformance.prove.prover import Prover

    all_rules()  # every file of it is read
    before = {name: dict(vars(module)) for name, module in sys.modules.items() if name.startswith("ropecheck.spec.")}
    Prover().prove(THEOREMS["laws.draft_step_is_a_decode"])
    after = {name: dict(vars(module)) for name, module in sys.modules.items() if name.startswith("ropecheck.spec.")}
    assert before == after
    assert list(mode_of("target_verify").tokens(seq_len=9, parents=(0, 0, 1))) == [9, 10, 10, 11]


def test_a_line_for_each_law(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.execute(["prove", "table.width", "laws.same_step_twice", "decode.width"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("proved        table.width: ")
    assert lines[1].startswith("out of reach  laws.same_step_twice: ")
    assert lines[2].startswith("1 proved, 1 out of reach, for all sizes and tables of 3 and 4 rows, by z3 ")


def test_a_limit_is_in_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.execute(["prove", "padding.tail"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("; limits: one padded column, and two")
    assert lines[1].startswith("1 proved, for all sizes within the limits named and tables of ")


def test_nothing_proved_is_exit_4() -> None:
    assert cli.execute(["prove", "laws.same_step_twice"]) == 4


def test_a_refuted_law_is_exit_1(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from tests.prove.planted import plant

    plant(monkeypatch, "modes.draft_decode:draft_decode", "seq_len + step,", "seq_len,")
    assert cli.execute(["prove", "laws.draft_step_is_a_decode", "table.width"]) == 1
    out = capsys.readouterr().out
    assert "REFUTED       laws.draft_step_is_a_decode" in out
    assert "1 proved, 1 refuted" in out


def test_what_z3_cannot_answer_is_exit_3(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    import z3

    monkeypatch.setattr(z3.Solver, "check", lambda self: z3.unknown)
    monkeypatch.setattr(z3.Solver, "reason_unknown", lambda self: "timeout")
    assert cli.execute(["prove", "laws.draft_step_is_a_decode"]) == 3
    assert "UNANSWERED    laws.draft_step_is_a_decode: drafted: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("laws.batch_ordr", "did you mean laws.batch_order"),
        ("batch_order", "did you mean laws.batch_order?"),
        ("zzz", "known: "),
    ],
)
def test_an_unknown_law_is_exit_2(name: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.execute(["prove", "laws.batch_split", name]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


def test_without_z3_it_is_one_line_and_exit_3(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "z3" else find(name, *more))
    assert cli.execute(["prove"]) == 3
    assert capsys.readouterr().err == "ropecheck: prove needs z3, which is not installed: pip install z3-solver\n"


def test_explain_says_what_is_proved_without_z3(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "z3", None)
    assert cli.execute(["explain", "laws.speculation_places_the_same"]) == 0
    out = capsys.readouterr().out
    assert "proved    for all sizes, on the specification: `ropecheck prove laws" in out
    assert "limits: the drafts of a verify are chains" in out
    assert cli.execute(["explain", "laws.same_step_twice"]) == 0
    assert "proved    not by `ropecheck prove`: " in capsys.readouterr().out
    assert cli.execute(["explain", "table.present"]) == 0
    assert "proved " not in capsys.readouterr().out

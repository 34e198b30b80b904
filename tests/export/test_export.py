"""What `ropecheck export` writes: complete, runnable without ropecheck, and true."""

from __future__ import annotations

import ast
import io
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ropecheck.adapters import protocol
from ropecheck.conformance.cards.build import cards
from ropecheck.conformance.cards.card import Card
from ropecheck.conformance.cli import app as cli
from ropecheck.conformance.errors import UsageError
from ropecheck.conformance.export.driver import driver
from ropecheck.conformance.export.look import Look, look
from ropecheck.conformance.export.write import issue, script
from ropecheck.conformance.judge.verdict import judge
from ropecheck.conformance.known import failures as known_list
from ropecheck.conformance.plan.planner import Plan, plan
from ropecheck.conformance.reference_engine import answer
from ropecheck.conformance.run.events import ScenarioDone
from ropecheck.conformance.run.tally import Tally
from ropecheck.conformance.scenario.operations import Scenario
from ropecheck.conformance.scenarios.chosen import chosen
from ropecheck.conformance.selftest.mutants import MUTANTS
from tests.report.support import header


def broken(fault: str, tmp_path: Path) -> tuple[Card, Plan, Look]:
    """The first chosen scenario that the fault breaks."""
    for scenario in chosen():
        planned = plan(scenario)
        came = answer(planned.job, MUTANTS[fault].make())
        outcome = judge(planned, came)
        if outcome.failures:
            tally = Tally(header(tmp_path))
            tally.add(ScenarioDone("chosen", scenario, outcome))
            card = cards(tally.summary)[0]
            failure = next(one for one in outcome.failures if one.key == card.keys[0])
            return card, planned, look(planned, came, failure)
    raise AssertionError(fault)


def values(text: str) -> dict[str, Any]:
    """The script's constants."""
    found = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            value = node.value
            if isinstance(value, ast.Call):
                value = value.args[0]
            found[node.targets[0].id] = ast.literal_eval(value)
    return found


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("verify delta missing", "table"),
        ("append keeps the delta", "state"),
        ("decode copies per request", "count"),
        ("draft extend raises on mixed batches", "raises"),
        ("idle without a table", "missing"),
    ],
)
def test_a_script_holds_the_job_and_what_to_look_at(tmp_path: Path, fault: str, kind: str) -> None:
    card, planned, where = broken(fault, tmp_path)
    assert where.kind == kind
    found = values(script(card, planned, where, engine="sglang 1.0"))
    assert msgspec.json.decode(found["JOB"], type=protocol.Job) == planned.job
    assert msgspec.json.decode(found["LOOK"], type=Look) == msgspec.json.decode(msgspec.json.encode(where), type=Look)
    assert where.expected != where.observed or kind == "missing"


def test_the_driver_is_the_adapter_and_nothing_else() -> None:
    with zipfile.ZipFile(io.BytesIO(driver())) as archive:
        names = archive.namelist()
        sources = [archive.read(name).decode() for name in names]
    assert "ropecheck/adapters/sglang/jobs.py" in names
    assert all(name.startswith("ropecheck/adapters/") or name == "ropecheck/__init__.py" for name in names)
    for source in sources:
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ropecheck"):
                assert (node.module or "").startswith("ropecheck.adapters")
                place = (node.module or "").replace(".", "/")
                for alias in node.names:
                    parts = (f"{place}.py", f"{place}/__init__.py", f"{place}/{alias.name}.py")
                    assert any(part in names for part in parts), f"{node.module}.{alias.name} does not travel"


def test_text_cannot_break_out_of_the_script(tmp_path: Path) -> None:
    card, planned, where = broken("verify delta missing", tmp_path)
    evil = 'x""" \\ {{ 7 }} """; raise SystemExit(7)'
    card = msgspec.structs.replace(card, message=evil, must=evil, signature=evil)
    text = script(card, planned, where, engine=evil, pytest=True)
    module = ast.parse(text)
    assert not [node for node in ast.walk(module) if isinstance(node, ast.Raise) and "7" in ast.dump(node)]
    assert [node.name for node in module.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]


def test_a_law_has_no_script(tmp_path: Path) -> None:
    _, planned, _ = broken("verify delta missing", tmp_path)
    failure = next(one for one in tally_failures(planned))
    law = msgspec.structs.replace(failure, expected=None, observed=None, difference=None)
    with pytest.raises(UsageError, match="no stand-alone form"):
        look(planned, answer(planned.job, MUTANTS["verify delta missing"].make()), law)


def tally_failures(planned: Plan) -> list[Any]:
    return list(judge(planned, answer(planned.job, MUTANTS["verify delta missing"].make())).failures)


def test_an_issue_says_it_all(tmp_path: Path) -> None:
    card, _, _ = broken("verify delta missing", tmp_path)
    text = issue(card, engine="sglang 1.0, torch 2")
    for part in (card.must, "delta missing", "wrong here", "sglang 1.0, torch 2", "https://github.com/", "| "):
        assert part in text


def test_an_unknown_form_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.execute(["export", "x", "--as", "scrip"]) == 2
    assert "known: script, pytest, issue" in capsys.readouterr().err


@pytest.mark.engine
def test_the_script_shows_a_known_bug_by_itself(tmp_path: Path) -> None:
    entry = next(known for known in known_list.load() if known.rule == "retraction.table")
    witness = entry.witness
    assert isinstance(witness, Scenario)
    assert cli.execute(["export", witness.id, "--to", str(tmp_path), "--out", str(tmp_path / "out")]) == 0
    (file,) = tmp_path.glob("*.py")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-P", str(file)], capture_output=True, text=True, cwd="/", env=environment, check=False
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "WRONG" in done.stdout

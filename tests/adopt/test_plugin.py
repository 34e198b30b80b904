"""The pytest plugin: one test per rule, in a pytest of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from ropecheck.spec.rules import all_rules


def _pytest(folder: Path, *arguments: str) -> tuple[int, str]:
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    plugins = ("-p", "ropecheck.conformance.adopt.pytest_plugin", "-p", "no:cacheprovider")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, "-rs", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_the_documented_test_file_passes(toy: Path) -> None:
    code, out = _pytest(toy, "test_positions.py")
    assert code == 0 and "1 passed" in out, out


def test_one_test_per_rule_and_unreached_ones_are_skipped(toy: Path) -> None:
    code, out = _pytest(toy, "-v", "--ropecheck-adapter", "toy_engine:ToyEngine", "--deselect", "test_positions.py")
    assert code == 0, out
    told = dict(re.findall(r"^ropecheck::(\S+) (\w+)", out, re.MULTILINE))
    assert set(told) == set(all_rules())
    assert told["table.past_table"] == "PASSED"
    assert told["table.inside_table"] == "PASSED"
    for rule in (
        "table.forwards",
        "padding.width",
        "session.append",
        "cost.media",
        "families.table",
        "ownership.batch_is_read_only",
        "table.dtype",
        "laws.batch_order",
    ):
        assert told[rule] == "SKIPPED", rule
    assert "sessions and ownership need the worker protocol" in out


def test_a_broken_rule_fails_alone_and_is_explained(toy: Path) -> None:
    code, out = _pytest(toy, "--ropecheck-adapter", "broken_engine:ToyEngine", "--deselect", "test_positions.py")
    assert code == 1
    assert "FAILED" in out or "failed" in out
    assert "table.past_table  decode: delta missing" in out
    assert "Traceback" not in out
    assert re.search(r"\b1 failed, \d+ passed, \d+ skipped", out), out


def test_the_ini_file_names_the_adapter(toy: Path) -> None:
    (toy / "pytest.ini").write_text("[pytest]\nropecheck_adapter = toy_engine:ToyEngine\nropecheck_modes = decode\n")
    code, out = _pytest(toy, "-k", "past_table or table.width")
    assert code == 0, out
    assert "2 passed" in out


def test_without_the_option_nothing_is_added(toy: Path) -> None:
    code, out = _pytest(toy, "--collect-only", "-q")
    assert code == 0 and "ropecheck::" not in out


def test_names_that_lead_nowhere_are_one_error(toy: Path) -> None:
    for name, says in (
        ("toy_engine", "must be module:object"),
        ("toy_motor:ToyEngine", "No module named 'toy_motor'"),
        ("toy_engine:ToyMotor", "has no attribute 'ToyMotor'"),
    ):
        code, out = _pytest(toy, "--ropecheck-adapter", name)
        assert code == 4 and says in out, out
    adapter = ("--ropecheck-adapter", "toy_engine:ToyEngine")
    code, out = _pytest(toy, *adapter, "--ropecheck-modes", "decodes", "-k", "width")
    assert code == 1 and "unknown 'decodes'" in out

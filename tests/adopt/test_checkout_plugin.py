"""`pytest --ropecheck-target`, on a reference with a planted fault in the place of a checkout."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = """
from dataclasses import replace

from ropecheck.conformance.targets import checkout
from ropecheck.conformance.targets.registry import builtin

(reference,) = (one for one in builtin() if one.name == "reference")
checkout.target_of = lambda found, name: replace(reference, argv=(*reference.argv, "--mutant", "decode delta missing"))
"""


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    package = tmp_path / "engine" / "python" / "sglang"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    return tmp_path


def run(folder: Path, *arguments: str) -> tuple[int, str]:
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    plugins = ("-p", "ropecheck.conformance.adopt.pytest_checkout", "-p", "no:cacheprovider")
    command = [sys.executable, "-m", "pytest", *plugins, *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_one_test_per_mode(engine: Path) -> None:
    asked = ("--ropecheck-target", "engine", "--ropecheck-base", "known", "--ropecheck-phase", "chosen")
    _, listed = run(engine, *asked, "--collect-only", "-q")
    for mode in ("decode", "extend", "target_verify"):
        assert f"ropecheck[{mode}]" in listed
    code, out = run(engine, *asked, "-m", "ropecheck", "-k", "dllm_extend or [decode]")
    assert code == 1
    assert "1 failed, 1 passed" in out
    for part in ("delta missing", "wrong here", "ropecheck replay"):
        assert part in out


def test_a_path_without_an_engine_is_a_usage_error(engine: Path) -> None:
    code, out = run(engine, "--ropecheck-target", "nowhere")
    assert code == pytest.ExitCode.USAGE_ERROR
    assert "nowhere: no such folder" in out


def test_without_the_option_nothing_is_added(engine: Path) -> None:
    (engine / "test_one.py").write_text("def test_one(): pass")
    code, out = run(engine)
    assert code == 0
    assert "1 passed" in out

"""`ropecheck record -- CMD`: what it hands to the command, and its exit codes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ropecheck.adapters import events
from ropecheck.conformance.cli.app import execute

HEADER = events.line(events.TraceHeader(version=events.VERSION, family="qwen2_vl"))
FORWARD = events.Forward(
    mode="extend",
    reqs=("a",),
    tokens=(1,),
    positions=(0,),
    rows=((0,),) * 3,
    answers=((7,),),
    seq_lens=(1,),
    prefix_lens=(0,),
)
RIGHT = events.line(events.Arrived("a", (events.PromptRun("text", 1),), 2)) + events.line(FORWARD)
WRITE = "import os, pathlib; pathlib.Path(os.environ['ROPECHECK_RECORD'], 'x.0000.ndjson').write_bytes({body!r})"


def run(tmp_path: Path, body: bytes | None, code: int = 0, *options: str) -> int:
    program = f"import os; os.makedirs(os.environ['ROPECHECK_RECORD'], exist_ok=True)\n{WRITE.format(body=body)}"
    program = program if body is not None else "pass"
    command = [sys.executable, "-c", f"{program}\nraise SystemExit({code})"]
    return execute(["record", "--out", str(tmp_path / "out"), *options, "--", *command])


def test_its_exit_code_is_the_tables_then_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path / "a", HEADER + RIGHT) == 0
    assert run(tmp_path / "b", HEADER + RIGHT, 7) == 7
    assert run(tmp_path / "c", HEADER + RIGHT.replace(b'"positions":[0]', b'"positions":[4]')) == 1
    assert "table.index" in capsys.readouterr().out
    assert run(tmp_path / "d", HEADER.replace(b"qwen2_vl", b"llama")) == 3
    assert run(tmp_path / "e", None) == 4
    assert run(tmp_path / "f", None, 5, "--no-check") == 5


def test_as_a_pytest_plugin_a_wrong_table_fails_the_session(tmp_path: Path) -> None:
    body = HEADER + RIGHT.replace(b'"positions":[0]', b'"positions":[4]')
    (tmp_path / "test_it.py").write_text(
        "import os, pathlib\n\ndef test_a_server():\n    folder = pathlib.Path(os.environ['ROPECHECK_RECORD'])\n"
        f"    folder.mkdir(parents=True)\n    (folder / 'x.0000.ndjson').write_bytes({body!r})\n"
    )
    command = [sys.executable, "-m", "pytest", "-p", "ropecheck.record", "-p", "no:cacheprovider", "test_it.py"]
    root = str(Path(__file__).parents[2])
    done = subprocess.run(command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": root}, capture_output=True, text=True)
    assert done.returncode == 1 and "1 passed" in done.stdout, done.stdout + done.stderr
    assert "1 forwards (extend 1)" in done.stdout and "table.index" in done.stdout


def test_bad_use_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, None, 0, "--mode", "loud") == 2
    assert "log or raise or monitor" in capsys.readouterr().err
    assert run(tmp_path, HEADER + RIGHT) == 0
    assert run(tmp_path, HEADER + RIGHT) == 2, "an older recording is not mixed with a new one"
    assert execute(["record", "--", str(tmp_path / "no such program")]) == 2

"""`[tool.ropecheck]`, `--version`, completion, and an engine that is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from ropecheck.conformance.cli import app as cli
from ropecheck.conformance.cli import options
from ropecheck.conformance.version import spec_hash
from tests.conformance import planted_worker as how
from tests.conformance.conftest import Run
from tests.conformance.support import scenario


def test_options_from_pyproject(ropecheck: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "engine" / "deep"
    folder.mkdir(parents=True)
    (tmp_path / "engine" / "pyproject.toml").write_text(
        '[tool.ropecheck.run]\nreport = "html"\nseed = 7\ntime-limit = 3\n'
    )
    monkeypatch.chdir(folder)
    assert ropecheck([scenario(how.OK)]) == 0
    assert "seed 7" in (tmp_path / "out" / "report.html").read_text()
    assert not (tmp_path / "out" / "junit.xml").exists()
    assert ropecheck([scenario(how.OK)], "--seed", "8", "--report", "junit") == 0
    assert (tmp_path / "out" / "junit.xml").exists(), "the command line has the last word"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[tool.ropecheck]\nrum = {}\n", "unknown 'rum'"),
        ("[tool.ropecheck.run]\nreports = 'html'\n", "unknown 'reports'"),
        ("[tool.ropecheck]\nrun = 3\n", "tool.ropecheck.run: must be a table"),
        ("[tool.ropecheck.run]\nseed = {}\n", "tool.ropecheck.run.seed: must be"),
    ],
)
def test_a_wrong_entry_is_one_line(
    text: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    monkeypatch.chdir(tmp_path)
    assert cli.execute(["list", "rules"]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.execute(["--version"]) == 0
    assert spec_hash() in capsys.readouterr().out


def test_completion_is_offered(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.execute(["--help"]) == 0
    assert "--install-completion" in capsys.readouterr().out


def test_without_torch_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(options, "find_spec", lambda name: None)
    assert cli.execute(["run", "--out", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "needs torch and sglang" in error
    assert "--target reference" in error


def test_a_path_is_a_target(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert cli.execute(["run", "--target", f"{tmp_path}/nowhere", "--out", str(tmp_path / "out")]) == 2
    assert "no such folder" in capsys.readouterr().err
    package = tmp_path / "engine" / "python" / "sglang"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    target = options.target_for(str(tmp_path / "engine"), "cpu")
    assert target.source == str(tmp_path / "engine" / "python")
    assert target.identity.startswith("no git: ")

"""What GitHub is given: annotations, the step's summary, SARIF, and the Action."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import yaml

from ropecheck.conformance.cards.build import cards
from ropecheck.conformance.cards.card import Card, EngineLine
from ropecheck.conformance.report import github
from ropecheck.conformance.run.events import RunEnded, Summary
from ropecheck.conformance.scenarios.chosen import chosen
from tests.report.support import run

ROOT = Path(__file__).parents[2]


@pytest.fixture
def summary(tmp_path: Path) -> Summary:
    return run(tmp_path, "verify delta missing", scenarios=chosen()[::6])


def located(card: Card, file: str = "sglang/srt/a.py") -> Card:
    return msgspec.structs.replace(card, functions=(EngineLine(function="f", file=file, line=7),))


def test_an_annotation_names_the_engines_line(
    summary: Summary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path / "sglang-repo"))
    source = tmp_path / "sglang-repo" / "python"
    source.mkdir(parents=True)
    header = replace(summary.header, source=str(source))
    card = msgspec.structs.replace(located(cards(summary)[0]), message="50 % wrong\n::error::no", signature="a, b: c")
    (line, *_) = github.commands([card], header)
    assert line.startswith("::error file=python/sglang/srt/a.py,line=7,title=")
    assert "\n" not in line
    assert "50 %25 wrong ::error::no" in line
    assert "a%2C b%3A c" in line


def test_known_cards_are_not_annotated(summary: Summary) -> None:
    shown = [msgspec.structs.replace(card, state="known") for card in cards(summary)]
    assert github.commands(shown, summary.header) == []


def test_the_summary_is_appended_to_the_steps(
    summary: Summary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    step = tmp_path / "step.md"
    step.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(step))
    summary.warnings.append("a | <b>warning</b>")
    github.listener(tmp_path / "summary.md", RunEnded(summary))
    text = (tmp_path / "summary.md").read_text()
    assert step.read_text() == "before\n" + text
    assert "delta missing" in text
    assert "a \\| &lt;b>warning" in text
    assert capsys.readouterr().out.count("::error ") == len(cards(summary))


def test_sarif(summary: Summary, tmp_path: Path) -> None:
    github.sarif_listener(tmp_path / "x.sarif", RunEnded(summary))
    (one,) = json.loads((tmp_path / "x.sarif").read_text())["runs"]
    assert {rule["id"] for rule in one["tool"]["driver"]["rules"]} == {result["ruleId"] for result in one["results"]}
    assert {result["level"] for result in one["results"]} == {"error"}
    (result,) = github.sarif([located(cards(summary)[0])], summary.header)["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "sglang/srt/a.py"
    assert place["region"]["startLine"] == 7


def test_the_actions_steps_run(tmp_path: Path) -> None:
    """As written, with programs in the place of the environment: the words arrive as they were given."""
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    home = tmp_path / "action"
    said = tmp_path / "said"
    for program in (home / "requirements" / "setup.sh", home / ".venv" / "bin" / "ropecheck"):
        program.parent.mkdir(parents=True)
        program.write_text(f'#!/usr/bin/env bash\nprintf "%s\\n" "$0" "$@" >> {said}\n')
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    given = {"path": "some where", "base": "$(touch no)", "args": "--mode decode", "out": "out"}
    for step in action["runs"]["steps"]:
        if "run" not in step:
            assert step["uses"].split("@")[0] in ("actions/setup-python", "actions/cache", "actions/upload-artifact")
            continue
        values = {
            name: value.replace("${{ inputs.", "").replace(" }}", "") for name, value in step.get("env", {}).items()
        }
        environment = os.environ | {name: given[value] for name, value in values.items()}
        environment |= {"GITHUB_ACTION_PATH": str(home), "GITHUB_OUTPUT": str(tmp_path / "output")}
        assert "${{" not in step["run"], "a value inside of a script could be one"
        subprocess.run(["bash", "-euo", "pipefail", "-c", step["run"]], env=environment, cwd=tmp_path, check=True)
    words = said.read_text().splitlines()
    assert words[0].endswith("setup.sh")
    assert words[2:6] == ["check", "some where", "--base", "$(touch no)"]
    assert words[-2:] == ["--mode", "decode"]
    assert (tmp_path / "output").read_text() == "report=out\n"
    assert not (tmp_path / "no").exists()

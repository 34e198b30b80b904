"""The real builders, in their worker processes: every family, nothing unexpected, no stale entry."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from ropecheck.conformance.cli import app as cli
from ropecheck.conformance.families.case import offered
from ropecheck.conformance.families.cases import all_cases
from ropecheck.conformance.known import differences, failures
from ropecheck.conformance.run import baseline, phases
from ropecheck.spec.families import FAMILIES

pytestmark = pytest.mark.engine


@pytest.mark.parametrize("target", ["transformers", "sglang"])
def test_every_family(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if find_spec(target) is None:
        pytest.skip(f"{target} is not installed")
    monkeypatch.setattr(phases, "FAMILY_COUNT", 5)
    # The baseline counts how often the whole phase shows each entry; this one draws fewer prompts.
    monkeypatch.setattr(baseline, "load", lambda *_: None)
    argv = ["run", "--target", target, "--phase", "families", "--workers", "1", "--out", str(tmp_path)]
    assert cli.execute(argv) == 0, capsys.readouterr().out
    report = json.loads((tmp_path / "report.json").read_text())
    totals = report["totals"]
    assert (totals["failed"], totals["could_not_run"]) == (0, 0)
    assert totals["engine_seconds"] > 0
    version = report["target"]["version"]
    known = failures.applying(failures.load(failures.FOLDER), target, version, "cpu")
    witnesses = {one.witness.id for one in known}
    listed = differences.applying(differences.load(), target, version)
    shown = {differences.witness(entry, target).id for entry in listed}
    assert totals["scenarios"] == len(witnesses | shown | {case.id for case in all_cases(target, 0, 5)})
    assert (totals["forwards"] > 0) == bool(witnesses)
    checked = {mode["id"].removeprefix("prompt_table.") for mode in report["modes"] if "prompt_table" in mode["id"]}
    assert checked == {family for family in FAMILIES if offered(family, target) == "checked"}
    text = capsys.readouterr().out
    for entry in differences.load():
        assert (f"known difference: {entry.id} " in text) == (entry in listed)

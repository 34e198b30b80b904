"""The Python of docs/check.md runs."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from ropecheck.conformance.run import phases
from ropecheck.conformance.run.phases import Phase
from ropecheck.conformance.scenarios.chosen import chosen
from ropecheck.conformance.targets import checkout
from ropecheck.conformance.targets.registry import builtin

ROOT = Path(__file__).parents[2]


def test_the_documented_lines_give_cards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sglang" / "sglang").mkdir(parents=True)
    (tmp_path / "sglang" / "sglang" / "__init__.py").touch()
    monkeypatch.chdir(tmp_path)
    (reference,) = (one for one in builtin() if one.name == "reference")
    faulty = replace(reference, argv=(*reference.argv, "--mutant", "decode delta missing"))
    monkeypatch.setattr(checkout, "target_of", lambda found, name: faulty)
    some = [one for one in chosen() if one.name == "prefix hit just before the last token"]
    phase = Phase(name="some", summary="", drive=lambda driver: driver.check_all(some))
    monkeypatch.setattr(phases, "select", lambda names: (phase,))
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "check.md").read_text(), re.S)
    exec(compile(code, "check.md", "exec"), {})
    out = capsys.readouterr().out
    assert "new table.past_table decode delta missing" in out
    assert out.splitlines()[-1] == "1"

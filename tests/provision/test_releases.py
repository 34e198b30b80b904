"""Two real old releases from the package index: the three changes that started the project, red and green."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from ropecheck.conformance.cli import app as cli
from ropecheck.conformance.matrix import render as matrix_render

pytestmark = pytest.mark.engine

SEEDS = {
    ("table.present", "draft_extend_v2"): "PR 28464: draft extend had no branch of its own",
    ("cost.text_only", "target_verify"): "PR 20864: a copy to the device in text-only verify",
    ("ownership.parent_unchanged", "ownership"): "PR 39145: a session append changed its parent",
}


def test_two_old_releases_show_the_three_seeds(tmp_path: Path) -> None:
    out = tmp_path / "matrix.json"
    command = ["matrix", "--add", "--targets", "sglang==0.5.9,sglang==0.5.20", "--phase", "chosen", "--json", str(out)]
    assert cli.execute(command) == 0
    report = msgspec.json.decode(out.read_bytes(), type=matrix_render.Report)
    assert [column.version for column in report.columns] == ["0.5.9", "0.5.20"]
    fixed = {(step.rule, step.mode) for step in report.steps if (step.last_bad, step.first_good) == ("0.5.9", "0.5.20")}
    for seed, title in SEEDS.items():
        assert seed in fixed, title

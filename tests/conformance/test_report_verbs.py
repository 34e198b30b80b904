"""From one report to another."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from ropecheck.conformance.cli import app as cli
from ropecheck.conformance.report.json_file import Report
from ropecheck.conformance.results.diff import diff
from ropecheck.conformance.results.read import read
from ropecheck.conformance.results.trend import page
from ropecheck.conformance.scenario.operations import Scenario
from tests.conformance import planted_worker as how
from tests.conformance.conftest import Run
from tests.conformance.support import scenario
from tests.conformance.test_known import add

PASSES, FAILS_A, FAILS_B = scenario(how.OK), scenario(how.FAIL_A), scenario(how.FAIL_B)
ALSO_A = scenario(how.OK, how.FAIL_A)

Make = Callable[..., Report]


@pytest.fixture
def report(ropecheck: Run, tmp_path: Path) -> Make:
    def make(name: str, *scenarios: Scenario) -> Report:
        ropecheck(list(scenarios))
        saved = read(tmp_path / "out")
        (tmp_path / f"{name}.json").write_bytes(msgspec.json.encode(saved))
        return saved

    return make


def test_new_gone_changed(report: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = report("before", PASSES, FAILS_A, ALSO_A)
    after = report("after", PASSES, FAILS_A, FAILS_B)
    found = diff(before, after)
    assert [one.signature for one in found.new] == ["B"]
    assert found.gone == ()
    assert [(one.after.signature, one.what) for one in found.changed] == [("A", ("failures 2 -> 1",))]
    assert [one.signature for one in diff(after, before).gone] == ["B"]
    assert diff(before, before).exit_code == 0
    capsys.readouterr()
    assert cli.execute(["report", "diff", str(tmp_path / "before.json"), str(tmp_path / "after.json")]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "1 new, 0 gone, 1 changed"
    assert cli.execute(["report", "diff", str(tmp_path / "after.json"), str(tmp_path / "before.json")]) == 0


def test_a_finding_that_is_no_longer_expected_is_new(report: Make, known_folder: Path) -> None:
    add(known_folder, FAILS_A, signature="A")
    before = report("before", PASSES, FAILS_A)
    for path in known_folder.iterdir():
        path.unlink()
    after = report("after", PASSES, FAILS_A)
    assert [one.signature for one in diff(before, after).new] == ["A"]
    assert [one.what for one in diff(after, before).changed] == [("now expected",)]


def test_what_is_no_longer_reached_and_broken_entries(report: Make, known_folder: Path) -> None:
    before = report("before", PASSES)
    nothing = report("nothing", scenario(how.NOT_OFFERED))
    assert diff(before, nothing).no_longer_checked == ("mode decode", "rule table.past_table")
    add(known_folder, PASSES, signature="A")
    stale = report("stale", FAILS_B)
    assert diff(before, stale).broken


def test_the_trend_page_stands_alone(report: Make, tmp_path: Path) -> None:
    report("one", PASSES)
    report("two", PASSES, FAILS_A)
    out = tmp_path / "trend.html"
    names = [str(tmp_path / "one.json"), str(tmp_path / "two.json")]
    assert cli.execute(["report", "trend", *names, "--out", str(out)]) == 0
    text = out.read_text()
    assert "table.past_table  decode  A" in text
    assert "src=" not in text
    assert 'class="bad">1' in text
    assert page([("x<y", read(tmp_path / "one.json"))]).count("x&lt;y") == 2

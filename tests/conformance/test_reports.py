"""Reports say what the run was."""

from __future__ import annotations

import io
import json
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest
from rich.console import Console

from ropecheck.conformance.cards.card import Card
from ropecheck.conformance.device import report as device_report
from ropecheck.conformance.judge.outcome import Outcome, TableView
from ropecheck.conformance.judge.side_by_side import side_by_side
from ropecheck.conformance.report import json_file as report_json
from ropecheck.conformance.report.terminal import Terminal
from ropecheck.conformance.run.events import PhaseStarted, ScenarioDone
from ropecheck.spec.rules import all_rules
from tests.conformance import planted_worker as how
from tests.conformance.conftest import Run
from tests.conformance.support import RULE, scenario
from tests.conformance.test_known import add

PASSES, FAILS_A, FAILS_B = scenario(how.OK), scenario(how.FAIL_A), scenario(how.FAIL_B)


def test_report_json(ropecheck: Run, tmp_path: Path, known_folder: Path) -> None:
    add(known_folder, FAILS_B, signature="B")
    bad = [FAILS_A, scenario(how.OK, how.FAIL_A), scenario(how.KILLED), scenario(how.NOT_OFFERED)]
    assert ropecheck([PASSES, *bad], "--seed", "7") == 1
    path = tmp_path / "out" / "report.json"
    report = msgspec.json.decode(path.read_bytes(), type=report_json.Report)  # refuses missing and unknown fields
    totals = report.totals
    assert totals.scenarios == 6
    assert (totals.passed, totals.failed, totals.expected) == (1, 2, 1)
    assert (totals.not_offered, totals.could_not_run, totals.workers) == (1, 1, 1)
    assert totals.forwards == 6
    assert totals.engine_seconds == 0.000005
    assert 0 < totals.seconds < 20
    assert (report.seed, report.target.name, report.target.version) == (7, "planted", "1.5.0")
    assert report.rules == (report_json.RuleReport(id=RULE, checked=5, failed=3),)
    assert report.modes == (report_json.ModeReport(id="decode", checked=5, failed=3),)
    found = {finding.signature: finding for finding in report.findings}
    assert (found["A"].count, found["A"].known, found["A"].witness.id) == (2, False, FAILS_A.id)
    assert (found["B"].count, found["B"].known) == (1, True)
    assert (tmp_path / "out" / found["A"].witness.file).is_file()
    first = found["A"].first_difference
    assert first is not None
    assert (first.axis, first.column, first.request, first.expected, first.observed) == ("t", 1, 1, 4, 7)
    assert set(json.loads(path.read_text())) == {
        "schema",
        "suite",
        "target",
        "seed",
        "totals",
        "rules",
        "modes",
        "findings",
        "scope",
        "situations",
        "kernels",
        "warnings",
        "part",
    }


def test_the_smallest_witness_is_kept_whatever_the_order(ropecheck: Run, tmp_path: Path) -> None:
    large = [scenario(*[how.OK] * n, how.FAIL_A) for n in (5, 3, 4)]
    assert ropecheck([*large, FAILS_A, scenario(how.OK, how.FAIL_A)]) == 1
    (finding,) = json.loads((tmp_path / "out" / "report.json").read_text())["findings"]
    assert finding["witness"]["id"] == FAILS_A.id
    assert [path.name for path in (tmp_path / "out" / "failures").iterdir()] == [f"{FAILS_A.id}.json"]


def test_junit(ropecheck: Run, tmp_path: Path, known_folder: Path) -> None:
    add(known_folder, FAILS_B, signature="B")
    add(known_folder, PASSES, signature="C")
    ropecheck([PASSES, FAILS_A, FAILS_B, scenario(how.KILLED)], "--report", "junit,json")
    suite = ElementTree.parse(tmp_path / "out" / "junit.xml").getroot()[0]
    cases = {(case.get("classname"), case.get("name")): case for case in suite.iter("testcase")}
    failing = cases[RULE, "decode: A"].find("failure")
    assert failing is not None
    assert "ropecheck replay" in (failing.text or "")
    skipped = cases[RULE, "decode: B"].find("skipped")
    assert skipped is not None
    assert "index 3 + delta 1 = 4" in (skipped.get("message") or "")
    stale = [case for (rule, name), case in cases.items() if name and name.startswith("known failure")]
    assert len(stale) == 1
    assert stale[0].find("failure") is not None
    dead = cases["ropecheck.run", f"{scenario(how.KILLED).name} {scenario(how.KILLED).id}"].find("error")
    assert dead is not None
    assert dead.get("type") == "run"
    assert {rule for rule, _ in cases} == {*all_rules(), "ropecheck.run"}
    assert (suite.get("failures"), suite.get("errors")) == ("2", "1")
    assert suite.get("tests") == str(len(cases))


def test_html_stands_alone(ropecheck: Run, tmp_path: Path) -> None:
    ropecheck([PASSES, FAILS_A], "--report", "html")
    text = (tmp_path / "out" / "report.html").read_text()
    assert RULE in text
    assert "src=" not in text
    assert "http-equiv" not in text
    assert FAILS_A.id in text


def test_the_terminal_shows_the_tables_and_the_warnings(
    ropecheck: Run, known_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (known_folder / "README.md").write_text("not an entry")
    ropecheck([PASSES, FAILS_A, scenario(how.NOT_OFFERED)], target="planted-unknown-mode")
    text = capsys.readouterr().out
    assert "\x1b" not in text, "no colours where nobody sees them"
    for part in (
        "planted 1.5.0",
        "seed 0",
        "1 workers",
        "known failures: 0 apply",
        "WARNING: UNKNOWN FORWARD MODE BRAND_NEW",
        "forward mode SPLIT: nobody asked",
        "rules never checked",
        "modes never reached (",
        "not offered: decode: too old (1 scenarios)",
        f"NEW {RULE}",
        "*7",
        "at engine/file.py:1 f",
        "1 passed, 1 failed, 1 not offered",
    ):
        assert part in text
    assert len(text.splitlines()) < 45


@pytest.mark.parametrize(("device", "never", "elsewhere"), [("cpu", False, True), ("cuda", True, False)])
def test_a_rule_that_needs_a_gpu_is_set_apart_without_one(
    ropecheck: Run, tmp_path: Path, device: str, never: bool, elsewhere: bool
) -> None:
    ropecheck([PASSES], "--device", device)
    lines = json.loads((tmp_path / "out" / "report.json").read_text())["warnings"]
    (listed,) = (line for line in lines if line.startswith("rules never checked ("))
    assert ("cost.synchronisations" in listed) is never
    assert ("rules that need a GPU (1): cost.synchronisations" in lines) is elsewhere
    cases = ElementTree.parse(tmp_path / "out" / "junit.xml")
    skipped = cases.iterfind(".//testcase[@classname='cost.synchronisations']/skipped")
    assert [one.get("message") for one in skipped] == ["never checked in this run" if never else "seen on cuda only"]


def test_side_by_side_marks_wrong_cells_and_requests() -> None:
    expected = TableView((3, 9), ((3, 5), (3, 5), (3, 5)), (0, 1))
    observed = TableView((3, 9), ((3, 9), (3, 5), (3, 5)), ())
    lines = [line.plain for line in side_by_side(expected, observed)]
    (t,) = (line.split() for line in lines if line.strip().startswith("t "))
    assert t == ["t", "3", "|", "5", "|", "3", "|", "*9"]
    assert "".join(lines).count("*") == 1


def test_side_by_side_shows_the_stretch_with_the_fault_of_a_wide_table() -> None:
    good = tuple(range(1000))
    bad = (*good[:700], 0, *good[701:])
    lines = side_by_side(TableView(good, None, ()), TableView(bad, None, ()))
    assert "columns 698..705 of 1000" in lines[0].plain
    assert max(len(line.plain) for line in lines) < 140


def test_side_by_side_of_missing_tables_and_columns() -> None:
    full = TableView((1, 2, 3), ((1, 2, 3),) * 3, (0, 0, 0))
    short = [line.plain for line in side_by_side(full, TableView((1,), None, ()))]
    assert sum(line.count("*none") for line in short) == 2 + 9
    assert side_by_side(None, None) == []


def test_plain_progress_is_rare(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("ropecheck.conformance.report.terminal.time.monotonic", lambda: clock[0])
    console = Console(force_terminal=False, record=True, width=200, file=io.StringIO())
    terminal = Terminal(console)
    terminal(PhaseStarted("codes", 4000))
    for _ in range(4000):
        clock[0] += 0.005
        terminal(ScenarioDone("codes", PASSES, Outcome(scenario="x", name="x", forwards=2)))
    lines = console.export_text().splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("codes: 1")
    assert "/4000 scenarios" in lines[0]


def test_the_summary_names_the_kernels_of_each_mode(ropecheck: Run, tmp_path: Path) -> None:
    ropecheck([PASSES])
    path = tmp_path / "out" / "report.json"
    report = msgspec.json.decode(path.read_bytes(), type=report_json.Report)
    assert report.kernels == ()
    ran = (("decode", "triton clamp"), ("extend", "sglang.init_new"), ("extend", "triton position"))
    kernels = tuple(report_json.KernelReport(mode=mode, name=name, forwards=3) for mode, name in ran)
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(report, kernels=kernels)))
    assert device_report.main([str(tmp_path)]) == 0
    summary = (tmp_path / "summary.md").read_text()
    assert "| decode | `triton clamp` |\n| extend | `triton position` |" in summary


def test_the_cards_are_a_file_too(ropecheck: Run, tmp_path: Path) -> None:
    ropecheck([PASSES, FAILS_A])
    (card,) = msgspec.json.decode((tmp_path / "out" / "cards.json").read_bytes(), type=tuple[Card, ...])
    assert (card.rule, card.signature, card.state, card.witness) == (RULE, "A", "new", FAILS_A.id)
    assert card.location == ("engine/file.py", 1)
    assert [line.wrong for line in card.operations] == [True]
    assert card.replay.startswith("ropecheck replay ")

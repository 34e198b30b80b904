"""The families as a phase of a run: counts, findings, reports, replay, shards, and what a target does not offer."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from ropecheck.conformance.adopt import Asked, NotOffered, survey
from ropecheck.conformance.cli import app as cli
from ropecheck.conformance.errors import UsageError
from ropecheck.conformance.families.case import Case
from ropecheck.conformance.families.cases import all_cases
from ropecheck.conformance.known.differences import applying, load
from ropecheck.conformance.run import phases
from ropecheck.conformance.targets import registry as targets
from ropecheck.spec.rules import all_rules
from tests.conformance.support import ROOT

WRONG = "qwen2_vl: one image"
Run = Callable[..., tuple[int, dict[str, Any]]]


def planted(version: str = "0", wrong: str = "", lacking: str = "", engine: str = "transformers") -> targets.Target:
    argv = (sys.executable, "-m", "tests.families.planted_worker", engine, version, wrong, lacking)
    return targets.Target(name="planted", argv=argv, env={"PYTHONPATH": str(ROOT)}, offers=("prompt_tables",))


def few(engine: str, seed: int = 0, count: int = 1) -> list[Case]:
    """Every fourth case, one drawn prompt each, and the one that is wrong where a fault is planted."""
    every = [*{case.id: case for case in all_cases(engine, seed, min(count, 1))}.values()]
    return [case for number, case in enumerate(every) if number % 4 == 0 or case.name == WRONG]


@pytest.fixture
def ropecheck(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """`ropecheck run --target planted` with a few cases of each family: the exit code and report.json."""
    monkeypatch.setattr("ropecheck.conformance.families.cases.all_cases", few)

    def run(target: targets.Target, *more: str, out: Path = tmp_path / "out") -> tuple[int, dict[str, Any]]:
        monkeypatch.setattr(targets, "_SOURCES", [lambda: [target]])
        code = cli.execute(["run", "--target", "planted", "--workers", "1", "--out", str(out), *more])
        return code, json.loads((out / "report.json").read_text())

    return run


def test_a_right_target_passes_and_builds_no_forward(
    ropecheck: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With all cases: every rule is checked, every bound crossed."""
    monkeypatch.setattr("ropecheck.conformance.families.cases.all_cases", all_cases)
    monkeypatch.setattr(phases, "FAMILY_COUNT", 2)
    code, report = ropecheck(planted())
    assert code == 0
    totals = report["totals"]
    assert totals["forwards"] == 0
    assert totals["scenarios"] == totals["passed"] == len({case.id for case in all_cases("transformers", 0, 2)})
    assert {rule["id"] for rule in report["rules"]} == {
        rule for rule in all_rules() if rule.startswith("families.") and rule != "families.route_layout"
    }
    assert all(mode["id"].startswith("prompt_table.") for mode in report["modes"])
    assert (report["findings"], report["warnings"]) == ([], [])
    assert "phases families" in capsys.readouterr().out


def test_one_wrong_cell_is_named_stored_and_replayed(
    ropecheck: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, report = ropecheck(planted(wrong=WRONG), "--report", "junit,json,html")
    assert code == 1
    (finding,) = report["findings"]
    assert (finding["rule"], finding["mode"]) == ("families.table", "prompt_table.qwen2_vl")
    assert (finding["signature"], finding["count"], finding["known"]) == ("media in another order", 1, False)
    assert finding["first_difference"] == {"axis": "h", "column": 4, "request": 0, "expected": 4, "observed": 104}
    assert report["totals"]["failed"] == 1
    text = capsys.readouterr().out
    for part in ("NEW families.table", "*104", "expected", "observed", "prompt: 3 text, image 1 x 4 x 6, 2 text"):
        assert part in text
    assert not re.search(r"^ +1d ", text, re.MULTILINE)
    suite = ElementTree.parse(tmp_path / "out" / "junit.xml").getroot()[0]
    (problem,) = suite.iter("failure")
    assert "*104" in (problem.text or "")
    assert "families.table" in (tmp_path / "out" / "report.html").read_text()

    out = tmp_path / "out"
    stored = str(out / finding["witness"]["file"])
    for what in (stored, finding["witness"]["id"], WRONG):
        assert cli.execute(["replay", what, "--target", "planted", "--out", str(out)]) == 1
        assert "NEW families.table" in capsys.readouterr().out
    monkeypatch.setattr(targets, "_SOURCES", [lambda: [planted()]])
    assert cli.execute(["replay", stored, "--out", str(out)]) == 0


def test_known_differences_that_are_gone_fail_the_run(ropecheck: Run, capsys: pytest.CaptureFixture[str]) -> None:
    code, report = ropecheck(planted(version="5.19.0"))
    assert code == 1
    applies = applying(load(), "transformers", "5.19.0")
    assert applies
    for entry in (entry for entry in applies if entry.kind != "unsettled"):  # the paper's answer is one of two
        words = f"known failure {entry.id} is stale: its witness {entry.witness!r} passes"
        assert any(warning.startswith(words) for warning in report["warnings"])
    assert "KNOWN FAILURE STALE grid-left-over" in capsys.readouterr().out


def test_a_known_difference_is_expected_with_its_reason(
    ropecheck: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = tmp_path / "families.toml"
    entries.write_text(
        '[[difference]]\nid = "planted"\nfamilies = ["qwen2_vl"]\ntarget = "transformers"\n'
        'rules = ["families.table"]\nsignatures = ["media in another order"]\nwhen = "always"\nkind = "mistake"\n'
        f'right = "the suite"\nreason = "somebody\\nplanted it"\nwitness = "{WRONG}"\n'
    )
    read = load(entries)
    monkeypatch.setattr("ropecheck.conformance.known.differences.load", lambda path: read)
    code, report = ropecheck(planted(wrong=WRONG), "--report", "junit")
    assert code == 0
    assert [finding["known"] for finding in report["findings"]] == [True]
    assert report["totals"]["expected"] == 1
    text = capsys.readouterr().out
    assert "known difference: planted  qwen2_vl  (1 failures, mistake; right: the suite)" in text
    assert "somebody planted it" in text
    skipped = [one.get("message") or "" for one in ElementTree.parse(tmp_path / "out" / "junit.xml").iter("skipped")]
    assert any("somebody planted it" in message for message in skipped)
    assert ropecheck(planted(), "--phase", "families")[0] == 1


def test_what_is_not_offered_is_named(ropecheck: Run) -> None:
    code, report = ropecheck(planted(lacking="glm_image"), "--phase", "families")
    assert code == 0
    count = report["totals"]["not_offered"]
    assert count == sum(case.family == "glm_image" for case in few("transformers")) > 3
    assert f"not offered: prompt_table.glm_image: it was never written ({count} scenarios)" in report["warnings"]
    assert not [line for line in report["warnings"] if line.startswith("rules never checked")]


def test_shards_split_and_seeds_draw(ropecheck: Run, tmp_path: Path) -> None:
    whole = ropecheck(planted())[1]["totals"]["scenarios"]
    parts = [ropecheck(planted(), "--shard", f"{n}/2", out=tmp_path / str(n))[1]["totals"]["scenarios"] for n in (1, 2)]
    assert sum(parts) == whole
    assert max(parts) < whole
    code, report = ropecheck(planted(), "--seed", "7")
    assert (code, report["seed"]) == (0, 7)


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["run", "--target", "transformers", "--phase", "chosen"], "transformers offers no phase chosen; it offers"),
        (["fuzz", "--target", "transformers"], "transformers offers no phase fuzz; it offers: families"),
        (["run", "--target", "reference", "--phase", "families"], "reference offers no phase families; it offers"),
    ],
)
def test_a_phase_that_the_target_lacks_is_bad_usage(
    argv: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.execute([*argv, "--out", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


def of(family: str, **segment: object) -> str:
    """A case file of one segment."""
    return json.dumps({"name": "x", "family": family, "prompts": [[{"type": "segment", **segment}]]})


def test_default_phases_are_those_that_the_target_offers() -> None:
    known = targets.all_targets()
    everything = {phase.name for phase in phases.select((), known["sglang"])}
    assert [phase.name for phase in phases.select((), known["transformers"])] == ["families"]
    assert {phase.name for phase in phases.select((), known["reference"])} == everything - {
        "families",
        "routes",
        "scheduler",
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"name": "x", "family": "qwen9_vl", "prompts": [[]]}', "unknown family 'qwen9_vl' - at `$.family`"),
        ('{"name": "x", "family": "qwen2_vl", "prompts": []}', "no prompt - at `$.prompts`"),
        ('{"name": "x", "family": "qwen2_vl", "prompts": [[{"type": "segment", "kind": "audio"}]]}', "hears no audio"),
        ('{"name": "", "family": "qwen2_vl", "prompts": [[{"type": "segment", "kind": "text", "tok": 1}]]}', "`tok`"),
        ('{"name": "x", "family": "qwen2_vl", "prompts": [[]], "torn": "grid missing"}', "has none"),
        ('{"name": "x", "family": "qwen2_vl", "prompts": 3}', "$.prompts"),
        (
            of("qwen3_omni", kind="audio", features=10**7),
            "10000000 is not in 0 .. 1048576 - at `$.prompts[0][0].features`",
        ),
        (of("qwen2_vl", kind="text", tokens=2_000_000), "2000000 is not in 0 .. 1048576 - at `$.prompts[0][0].tokens`"),
        (of("qwen2_vl", kind="video", grid=(1 << 20,) * 3), f"1 prompts of {1 << 60} tokens, frames and patches"),
        (of("qwen2_vl", kind="image", grid=(1, -2, 2)), "-2 is not in 0 .. 1048576 - at `$.prompts[0][0].grid[1]`"),
        (of("qwen2_5_vl", kind="video", grid=(2, 2, 2), seconds=1e300), "at `$.prompts[0][0].seconds`"),
        ('{"case": {"name": "x", "family": "qwen2_vl"}, "target": "", "version": "", "device": ""}', "`prompts`"),
    ],
)
def test_a_malformed_case_is_one_line(
    text: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "case.json"
    path.write_text(text)
    assert cli.execute(["replay", str(path), "--target", "transformers", "--out", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert str(path) in error
    assert error.count("\n") == 1


def test_a_case_is_no_witness_of_a_known_failure(
    ropecheck: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, report = ropecheck(planted(wrong=WRONG))
    stored = str(tmp_path / "out" / report["findings"][0]["witness"]["file"])
    assert cli.execute(["known", "add", stored, "--reason", "r", "--link", "l", "--known", str(tmp_path)]) == 2
    assert "a prompt-table case" in capsys.readouterr().err


def test_an_adapter_in_process_has_no_prompt_tables() -> None:
    class Adapter:
        def forward(self, asked: Asked) -> NotOffered:
            return NotOffered("nothing")

    with pytest.raises(UsageError, match="offers no phase families"):
        survey(Adapter(), phases=["families"])

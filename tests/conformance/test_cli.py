"""Exit codes and one-line errors."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from ropecheck.conformance import subject
from ropecheck.conformance.cli import app as cli
from ropecheck.conformance.run import phases
from ropecheck.conformance.scenario.operations import Scenario
from ropecheck.spec.history import OutOfDomain
from ropecheck.spec.rules import all_rules
from tests.conformance import planted_worker as how
from tests.conformance.conftest import Run
from tests.conformance.support import ROOT, RULE, StubPlan, scenario, stub_plan

PASSES, FAILS_A = scenario(how.OK), scenario(how.FAIL_A)

EXHAUSTIVE = phases.all_phases()["exhaustive"]


@pytest.mark.parametrize(
    ("scenarios", "code"),
    [
        ([PASSES], 0),
        ([PASSES, FAILS_A], 1),
        ([PASSES, scenario(how.KILLED)], 3),
        ([scenario(how.KILLED), FAILS_A], 1),
        ([scenario(how.NOT_OFFERED)], 4),
        ([], 4),
        ([PASSES, scenario(how.NOT_OFFERED)], 0),
        ([PASSES, scenario(how.SUITE_BUG)], 3),
    ],
)
def test_exit_codes_of_a_run(scenarios: list[Scenario], code: int, ropecheck: Run) -> None:
    assert ropecheck(scenarios, workers=2) == code


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["run", "--target", "nope"], "unknown target 'nope'; known: planted"),
        (["run", "--target", "planed"], "did you mean planted?"),
        (["run", "--phase", "code"], "did you mean codes?"),
        (["run", "--device", "tpu"], "unknown device 'tpu'; known: cpu, cuda"),
        (["run", "--shard", "3/2"], "--shard '3/2'"),
        (["run", "--shard", "0/2"], "--shard '0/2'"),
        (["run", "--shard", "x"], "--shard 'x'"),
        (["run", "--workers", "-1"], "--workers -1"),
        (["run", "--workers", "two"], "--workers"),
        (["run", "--time-limit", "0"], "--time-limit 0"),
        (["run", "--time-limit", "nan"], "--time-limit nan"),
        (["run", "--report", "pdf"], "'pdf'; known: json, junit, html, github, sarif"),
        (["run", "--frobnicate"], "--frobnicate"),
        (["run", "--known", "/nonexistent"], "/nonexistent"),
        (["run", "--out", "/proc/nope"], "/proc/nope"),
        (["frobnicate"], "frobnicate"),
        (["explain", "table.past"], "table.past_table"),
        (["explain", "zzz"], "ropecheck list rules"),
        (["list", "cats"], "cats"),
        (["replay"], "ID|FILE"),
        (["replay", "/nonexistent/x.json"], "/nonexistent/x.json: No such file"),
        (["doctor", "--target", "nope"], "unknown target"),
        (["fuzz", "--guided", "--scripts"], "--guided follows scenarios"),
        (["score", "--engine", "--shard", "3/2"], "--shard '3/2'"),
        (["known", "check", "--target", "nope"], "unknown target"),
    ],
)
def test_bad_usage_is_one_line_and_exit_2(
    argv: list[str], words: str, stubs: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if argv[0] == "run":
        argv = ["run", "--target", "planted", "--out", str(tmp_path / "out"), *argv[1:]]
    assert cli.execute(argv) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


def test_lost_contexts_are_never_green(ropecheck: Run, tmp_path: Path) -> None:
    """Each scenario breaks the device once and passes alone: what broke it stays unknown, so the run is not well."""
    lost = [scenario(*[how.OK] * n, how.CUDA_AT_FIRST) for n in range(7)]
    assert ropecheck([PASSES, *lost], workers=2) == 3
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["totals"]["could_not_run"] == len(lost)
    assert sum("the device context was lost" in warning for warning in report["warnings"]) == len(lost)


def test_an_offer_that_is_lost_is_never_green(
    ropecheck: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ropecheck([PASSES], target="planted-lost") == 3
    assert "WARNING: LOST: planted 1.5.0 is known to have prepare_for_draft" in capsys.readouterr().out


def test_bad_usage_loses_no_earlier_report(ropecheck: Run, tmp_path: Path) -> None:
    ropecheck([PASSES])
    before = (tmp_path / "out" / "report.json").read_bytes()
    assert ropecheck([PASSES], "--target", "nope") == 2
    assert ropecheck([PASSES], "--phase", "nope") == 2
    assert ropecheck([PASSES], "--known", "/nonexistent") == 2
    assert ropecheck([PASSES], "--report", "pdf") == 2
    assert (tmp_path / "out" / "report.json").read_bytes() == before


def test_a_target_that_does_not_start_is_exit_3(
    ropecheck: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ropecheck([PASSES])
    assert ropecheck([PASSES], target="planted-wrong-protocol") == 3
    error = capsys.readouterr().err
    assert "protocol" in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out" / "report.json").exists(), "an older result must not pass for this one"


def test_an_illegal_scenario_is_exit_2_and_what_was_done_is_reported(
    ropecheck: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    illegal = scenario(0, 0, 0, name="illegal one")

    def plan(one: Scenario, device: str) -> StubPlan:
        if one is illegal:
            raise OutOfDomain("ops[1] (extend): no such request 4")
        return stub_plan(one, device)

    monkeypatch.setattr(subject, "plan", plan)
    fillers = [scenario(*[how.OK] * n) for n in range(4, 14)]
    assert ropecheck([FAILS_A, *fillers, illegal]) == 2
    assert f"scenario illegal one ({illegal.id}) is not legal: ops[1]" in capsys.readouterr().err
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["totals"]["failed"] == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"{", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[]", "a scenario is a JSON object"),
        (b'{"name": "x"}', "missing required field `ops`"),
        (b'{"name": "x", "ops": [{"type": "idle", "pad_batch": "two"}]}', "$.ops[0].buffer_rows"),
        (b'{"name": "x", "ops": [{"type": "idle", "padbatch": 2}]}', "unknown field `padbatch` - at `$.ops[0]`"),
        (b'{"name": "x", "ops": [{"type": "jump"}]}', "jump"),
        (b'{"scenario": {"name": "x", "opps": []}, "target": "", "version": "", "device": ""}', "$.scenario"),
        (
            b'{"name": "x", "ops": [{"type": "submit", "req": 0, "prompt": [{"kind": "text", "token": 3}]}]}',
            "unknown field `token` - at `$.ops[0].prompt[0]`",
        ),
    ],
)
def test_a_malformed_scenario_is_one_line_that_names_file_and_field(
    text: bytes, words: str, stubs: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(text)
    assert cli.execute(["replay", str(path), "--target", "planted", "--out", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert str(path) in error
    assert words in error
    assert error.count("\n") == 1


def test_an_illegal_scenario_is_named_with_its_file(
    stubs: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def plan(one: Scenario, device: str) -> StubPlan:
        raise OutOfDomain("ops[1] (extend): no such request 4")

    path = tmp_path / "mine.json"
    path.write_bytes(msgspec.json.encode(PASSES))
    monkeypatch.setattr(subject, "plan", plan)
    assert cli.execute(["replay", str(path), "--target", "planted", "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err == f"ropecheck: {path}: not legal: ops[1] (extend): no such request 4\n"


def test_replay_by_file_by_id_and_of_what_did_not_run(
    ropecheck: Run, tmp_path: Path, known_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    killed = scenario(how.KILLED)
    assert ropecheck([FAILS_A, PASSES, killed]) == 1
    out = tmp_path / "out"
    assert f"ropecheck replay {out}/failures/{FAILS_A.id}.json --target planted" in capsys.readouterr().out
    more = ["--out", str(out), "--known", str(known_folder)]
    assert cli.execute(["replay", str(out / "failures" / f"{FAILS_A.id}.json"), *more]) == 1
    assert f"replay {out}/replay/failures/{FAILS_A.id}.json" in capsys.readouterr().out
    assert cli.execute(["replay", FAILS_A.id, *more]) == 1
    assert cli.execute(["replay", killed.id, *more]) == 3
    bare = tmp_path / "bare.json"
    bare.write_bytes(msgspec.json.encode(PASSES))
    assert cli.execute(["replay", str(bare), "--target", "planted", *more]) == 0
    assert (out / "failures" / f"{FAILS_A.id}.json").exists(), "replaying does not empty the store"


def test_a_new_run_forgets_the_failures_of_the_last_one(ropecheck: Run, tmp_path: Path) -> None:
    ropecheck([FAILS_A])
    mine = tmp_path / "out" / "failures" / "notes.txt"
    mine.write_text("mine")
    ropecheck([PASSES])
    assert [path.name for path in (tmp_path / "out" / "failures").iterdir()] == ["notes.txt"]


def test_shards_split_and_cover(ropecheck: Run, tmp_path: Path) -> None:
    scenarios = [scenario(*[how.OK] * n) for n in range(1, 13)]
    counts = []
    for shard in ("1/3", "2/3", "3/3"):
        ropecheck(scenarios, "--shard", shard)
        counts.append(json.loads((tmp_path / "out" / "report.json").read_text())["totals"]["scenarios"])
    assert sum(counts) == len(scenarios)
    assert max(counts) < len(scenarios)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_reports_what_was_done_and_is_exit_130(number: signal.Signals, tmp_path: Path) -> None:
    script = f"""
import signal
import sys
from pathlib import Path
from ropecheck.conformance import cli
from ropecheck.conformance.run import phases
from ropecheck.conformance.targets import registry as targets
from tests.conformance import support
support.stub(setattr)
targets._SOURCES[:] = [lambda: [support.planted()]]
scenarios = [support.scenario(0), support.scenario({how.FAIL_A}), support.scenario({how.HANG})]
phases._PHASES.clear()
phases.register(phases.Phase(name="codes", summary="", drive=lambda d: d.check_all(scenarios)))
sys.argv = ["ropecheck", "run", "--target", "planted", "--workers", "1", "--out", {str(tmp_path)!r}]
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background
cli.main()
"""
    process = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    stored = tmp_path / "failures" / f"{FAILS_A.id}.json"
    while not stored.exists():
        assert process.poll() is None, "it ended too early"
        time.sleep(0.02)
    time.sleep(0.2)
    process.send_signal(number)
    output, error = process.communicate()
    assert process.returncode == 130, error.decode()
    assert b"Traceback" not in error
    assert b"interrupted" in output
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["totals"]["scenarios"] == 2
    assert "the run was interrupted" in report["warnings"]


def test_explain_and_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.execute(["explain", RULE]) == 0
    text = capsys.readouterr().out
    rule = all_rules()[RULE]
    for part in (rule.id, rule.must, rule.source, rule.stated):
        assert part in text
    assert cli.execute(["explain", "cost.synchronisations"]) == 0
    assert "devices   seen on cuda only" in capsys.readouterr().out
    for what, name in (
        ("rules", RULE),
        ("rules", "(seen on cuda only)"),
        ("modes", "draft_extend_v2"),
        ("targets", "sglang"),
        ("families", "qwen2_vl"),
    ):
        assert cli.execute(["list", what]) == 0
        assert name in capsys.readouterr().out


def test_doctor(
    stubs: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.execute(["doctor", "--target", "planted-unknown-mode"]) == 0
    text = capsys.readouterr().out
    assert "planted 1.5.0" in text
    assert "BRAND_NEW: UNKNOWN" in text
    assert cli.execute(["doctor", "--target", "planted-wrong-protocol"]) == 3


def test_the_runner_imports_no_engine(tmp_path: Path) -> None:
    engines = {"torch", "sglang", "ropecheck.adapters.sglang"}
    code = f"import ropecheck.conformance.cli.app, sys; sys.exit(bool({engines} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, env={**os.environ}).returncode == 0


@pytest.mark.parametrize(
    ("scenarios", "more", "certified"),
    [
        ([PASSES, FAILS_A], [], True),
        ([PASSES], ["--shard", "1/1"], True),
        ([PASSES], ["--shard", "1/2"], False),
        ([PASSES, scenario(how.KILLED)], [], False),
    ],
)
def test_a_certificate_is_only_for_a_run_that_checked_all(
    scenarios: list[Scenario],
    more: list[str],
    certified: bool,
    ropecheck: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ropecheck.conformance.scenarios.exhaustive.sweep", lambda bound: iter(scenarios))
    monkeypatch.setattr("ropecheck.conformance.scenarios.exhaustive.count", lambda bound: len(scenarios))
    monkeypatch.setattr(phases, "_PHASES", {"exhaustive": EXHAUSTIVE})
    ropecheck(scenarios, "--bound", "small", *more)
    scope = json.loads((tmp_path / "out" / "report.json").read_text())["scope"]
    assert (scope["bound"], scope["canonical"]) == ("small", len(scenarios))
    assert (scope["certificate"] is not None) == certified


def test_a_walk_that_lost_scenarios_has_no_certificate(
    ropecheck: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ropecheck.conformance.scenarios.exhaustive.sweep", lambda bound: iter([PASSES]))
    monkeypatch.setattr("ropecheck.conformance.scenarios.exhaustive.count", lambda bound: 2)
    monkeypatch.setattr(phases, "_PHASES", {"exhaustive": EXHAUSTIVE})
    ropecheck([])
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["scope"]["certificate"] is None
    assert any("walked 1 scenarios, a second count says 2" in warning for warning in report["warnings"])


def test_an_unknown_bound_is_refused_before_anything_starts(
    ropecheck: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(phases, "_PHASES", {"exhaustive": EXHAUSTIVE})
    assert ropecheck([], "--bound", "endless") == 2
    assert "unknown bound 'endless'; known: small" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()

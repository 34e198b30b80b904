"""A whole live run on a server that is no engine: right and wrong answers, and servers that end or do not start."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from ropecheck.adapters import protocol
from ropecheck.conformance.live import run as live_run
from ropecheck.conformance.live import server
from ropecheck.conformance.live.scripts import Group
from ropecheck.conformance.run.events import Summary
from ropecheck.conformance.scripts.script import Arrive, OpenSession, Script
from ropecheck.conformance.targets.registry import find
from ropecheck.spec.history import text

WORD = (text(2),)
SCRIPTS = (
    Script("talk", "overlap", (OpenSession(0), Arrive(0, WORD, session=0), Arrive(1, WORD, session=0, parent=0))),
    Script("words", "overlap", (Arrive(0, WORD, content=3), Arrive(1, WORD, content=4))),
    Script("afresh", "overlap", (OpenSession(0), Arrive(0, WORD, session=0), Arrive(1, WORD, session=0, replace=True))),
    Script("last", "overlap", (Arrive(0, WORD, content=5),)),
)

Run = Callable[..., Summary]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    def done(fault: str, fresh: str = "") -> Summary:
        monkeypatch.setenv("STUB_FAULT", fault)
        hello = msgspec.structs.replace(protocol.unheard("sglang"), version="0.5.23")
        monkeypatch.setattr(server, "SERVE", "tests.live.stub_server")
        monkeypatch.setattr(live_run, "toy", lambda *_: tmp_path)
        monkeypatch.setattr(live_run, "who", lambda _: hello)
        monkeypatch.setattr(
            live_run, "groups", lambda *_: [Group(SCRIPTS[:2]), Group(SCRIPTS[2:3]), Group(SCRIPTS[3:])]
        )
        monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
        settings = live_run.LiveSettings(
            target=find("sglang", "cpu"),
            device="cpu",
            family="qwen2_5_vl",
            names=("overlap",),
            fresh=fresh,
            long=False,
            out=tmp_path / "out",
            known_folder=tmp_path,
            start_seconds=60,
        )
        return live_run.run(settings, [])

    return done


def keys(summary: Summary) -> dict[str, str]:
    return {finding.failure.rule: finding.scenario.name for finding in summary.findings}


def test_right_answers_pass(run: Run) -> None:
    summary = run("")
    assert (summary.totals.passed, summary.totals.scenarios, keys(summary)) == (4, 4, {})
    assert summary.rules["live.same_answer"] == [7, 0]
    assert summary.situations["answer x turn (overlap)"] == 4
    assert summary.exit_code == 0


def test_histories_may_be_asked_afresh_on_another_server(run: Run, tmp_path: Path) -> None:
    summary = run("", "no_prefix_cache")
    assert (summary.totals.passed, summary.rules["live.same_answer"]) == (4, [7, 0])
    names = sorted(path.stem for path in (tmp_path / "out" / "servers").glob("*.log"))
    assert names == ["1-overlap", "2-no_prefix_cache"]
    assert summary.situations["answer x turn (overlap)"] == 4


def test_a_turn_that_forgets_its_history_is_found(run: Run) -> None:
    summary = run("forgets")
    assert keys(summary) == {"live.same_answer": "talk"}
    assert summary.exit_code == 1


def test_a_server_that_ends_is_a_finding_and_the_rest_goes_on(run: Run, tmp_path: Path) -> None:
    summary = run("ends")
    assert keys(summary) == {"schedule.survives": "afresh"}
    assert (summary.totals.passed, summary.totals.failed) == (3, 1)
    assert len(list((tmp_path / "out" / "servers").glob("*.log"))) == 2


def test_a_server_that_does_not_start_could_not_run(run: Run) -> None:
    summary = run("start")
    assert summary.totals.could_not_run == 4
    assert {(why.stage, why.message) for _, why, _ in summary.unrun} == {("start", "OSError: no such device")}
    assert summary.exit_code == 3

"""Devices that cannot be used, contexts that break, and the checks that need no scenario, all without a GPU."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ropecheck.adapters import protocol
from ropecheck.adapters.batch import Batch, BatchPart
from ropecheck.adapters.sglang import device
from ropecheck.conformance.device import limits as device_limits
from ropecheck.conformance.device import report as device_report
from ropecheck.conformance.device.checks import cost_rows, cost_scenarios
from ropecheck.conformance.device.score import FAULTS
from ropecheck.conformance.plan.planner import CostCheck, plan
from ropecheck.conformance.reference_engine import tensor
from ropecheck.conformance.run import smoke
from ropecheck.conformance.run.ask import NoAnswer, StartedWorker
from ropecheck.conformance.run.pool import Pool
from ropecheck.conformance.run.seat import Doubted, RunLimits, poisoned
from ropecheck.conformance.targets.registry import Target
from ropecheck.spec.rules import all_rules
from tests.conformance import planted_worker as how
from tests.conformance.support import StubPlan, planted, scenario, stub_plan

TOO_OLD = "The NVIDIA driver on your system is too old (found version 12040). Please update your GPU driver"


@pytest.mark.parametrize(
    ("said", "line"),
    [
        (
            TOO_OLD,
            "the NVIDIA driver is too old (it offers CUDA 12.4) for this torch, which wants CUDA 13.0: update it",
        ),
        (
            "CUDA out of memory. Tried to allocate 2 MiB",
            "out of GPU memory: something else holds it (CUDA out of memory.",
        ),
        ("Found no NVIDIA driver on your system. Please check", "no NVIDIA GPU can be seen: Found no NVIDIA driver"),
        ("no CUDA-capable device is detected", "no NVIDIA GPU can be seen: no CUDA-capable device"),
        ("No CUDA GPUs are available", "no NVIDIA GPU can be seen: No CUDA GPUs are available"),
        ("something else\nand more", "CUDA cannot be used: something else"),
    ],
)
def test_one_line_for_a_device_that_cannot_be_used(said: str, line: str) -> None:
    found = device.explain(said, "13.0")
    assert found.startswith(line) and "\n" not in found


def test_a_torch_without_cuda() -> None:
    torch = SimpleNamespace(__version__="2.11+cpu", version=SimpleNamespace(cuda=None))
    assert device.problem(torch) == "torch 2.11+cpu is built without CUDA"


# ---------------------------------------------------------------- broken contexts


def pool_run(scenarios: list[Any], tmp_path: Path, target: Target, warnings: list[str]) -> dict[str, Any]:
    limits = RunLimits(scenario=120)
    with Pool[StubPlan](target, device="cpu", workers=1, out=tmp_path, limits=limits, warn=warnings.append) as pool:
        pool.start()
        return {planned.scenario.id: answer for planned, answer in pool.answers(map(stub_plan, scenarios))}


def test_the_culprit_is_run_alone_and_the_rest_is_unharmed(tmp_path: Path) -> None:
    warnings: list[str] = []
    good = [scenario(*[how.OK] * n) for n in range(1, 6)]
    culprit = scenario(how.CUDA_ERROR)
    found = pool_run([*good[:2], culprit, *good[2:]], tmp_path, planted(), warnings)
    assert len(found) == 6 and not warnings
    (result,) = found[culprit.id].results
    assert isinstance(result, protocol.Raised) and "illegal memory access" in result.message
    for one in good:
        assert all(isinstance(result, protocol.Done) for result in found[one.id].results)


def test_a_scenario_that_only_meets_a_broken_context_is_acquitted(tmp_path: Path) -> None:
    """It fails beside others and passes alone: it keeps its right answer, and the loss is told."""
    target = planted(flag=tmp_path / "flag")
    met = scenario(how.CUDA_ONCE)
    found = pool_run([scenario(how.OK), met, scenario(how.OK, how.OK)], tmp_path / "out", target, [])
    assert len(found) == 3
    doubted = found[met.id]
    assert isinstance(doubted, Doubted) and "alone it passes" in doubted.why.message
    assert all(isinstance(result, protocol.Done) for result in doubted.answer.results)


# ---------------------------------------------------------------- costs and limits


def test_every_measured_forward_has_a_budget() -> None:
    names = set()
    for name, batch, measured in cost_scenarios():
        (check,) = (check for check in plan(measured, "cuda").checks if isinstance(check, CostCheck))
        assert check.has_media == (batch != "text") and check.allowed == (0, 1)
        names.add((name, batch))
    assert len(names) == 33


class Counting:
    """A worker whose every forward costs the same."""

    device = "cuda"

    def __init__(self, copies: int, syncs: int) -> None:
        self.result = protocol.Counted(copies, (), method="cuda", syncs=syncs)

    def ask(self, job: protocol.Job) -> tuple[protocol.Result, ...]:
        return tuple(self.result for _ in job.steps)


@pytest.mark.parametrize(
    ("copies", "syncs", "broken"),
    [(0, 0, set()), (4, 0, {"cost.text_only", "cost.media", "cost.host_lengths"}), (0, 2, {"cost.synchronisations"})],
)
def test_rules_decide_what_is_over_its_budget(copies: int, syncs: int, broken: set[str]) -> None:
    rows = list(cost_rows(Counting(copies, syncs)))  # type: ignore[arg-type]
    assert {rule for row in rows for rule in row.broken} == broken
    assert all(row.within for row in rows) is (not broken)


def test_limits_stay_inside_int32_and_their_indices_fit_their_forwards() -> None:
    for what, forward, indices in device_limits.forwards():
        flat = [index for row in indices for index in row]
        assert all(0 <= index < device_limits.LIMIT for index in flat), what
        assert len(indices) == len(forward.reqs)


def test_a_wrong_column_at_the_limit_is_told() -> None:
    want = [[57, 58], [9]]
    positions = np.array([57, 58, 9], dtype=np.int64)
    rows = positions + np.array([-3, -3, 0])
    good = np.stack([rows, rows, rows])
    bad = good.copy()
    bad[2, 2] = 5

    def checked(table: Any) -> tuple[str, str]:
        result = protocol.TablesAnswer((protocol.TablePair("", tensor(positions), tensor(table)),))
        found = device_limits.judged("x", result, forward, want)
        return found.rule, found.problem

    forward = protocol.BuildForward(Batch("extend", (BatchPart((0, 1)),)))
    assert [place.delta for place in device_limits.places()] == [-3, 0, 0]
    assert checked(good) == ("table.index", "")
    assert checked(bad) == ("table.text_only", "w, column 2: 5, must be 9")
    assert checked(good[:, :2]) == ("table.width", "2 columns for 3 tokens (three-row table)")


def test_every_form_of_a_broken_context_is_known() -> None:
    """A blocking launch says it in Triton's words, which an H200 showed."""
    for message in ("CUDA error: an illegal memory access", "Triton Error [CUDA]: an illegal memory access was met"):
        result = protocol.Raised("engine", "RuntimeError", message, "")
        assert poisoned(protocol.JobAnswer("x", (result,), 0, 0))


def test_faults_of_the_score_are_the_adapters() -> None:
    pytest.importorskip("torch")
    faults = pytest.importorskip("ropecheck.adapters.sglang.faults")
    assert set(faults.FAULTS) == set(FAULTS)
    assert all(any(rule.startswith(wanted) for rule in all_rules()) for wanted in FAULTS.values())


def test_a_worker_that_does_not_start_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(NoAnswer, match="no module named engine"):
        StartedWorker(planted("exits"), "cpu", tmp_path / "log")


def asked(code: int, tmp_path: Path) -> str:
    """What is said of a worker that answers so; the next question is answered again."""
    with StartedWorker(planted(flag=tmp_path / "flag"), "cpu", tmp_path / "log") as worker:
        with pytest.raises(NoAnswer) as error:
            worker.ask(stub_plan(scenario(code)).job)
        assert worker.ask(stub_plan(scenario(how.OK)).job) == (protocol.Done(),)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (how.WRONG_ID, "answer for job 'another'"),
        (how.SHORT, "0 results for 1 steps"),
        (how.WRONG_TYPE, "$.results"),
        (how.KILLED, "SIGKILL"),
    ],
)
def test_an_answer_that_is_not_the_questions_is_none(code: int, words: str, tmp_path: Path) -> None:
    assert words in asked(code, tmp_path)


@pytest.mark.parametrize(("way", "words"), [("wrong-protocol", "speaks protocol"), ("garbage-hello", "no hello")])
def test_a_worker_of_another_protocol_is_not_asked(way: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(NoAnswer, match=words):
        StartedWorker(planted(way), "cpu", tmp_path / "log")
    assert words in smoke.check(planted(way), tmp_path / "log").problem


def test_reports_of_a_folder_without_targets(tmp_path: Path) -> None:
    assert device_report.main([str(tmp_path)]) == 4
    assert device_report.main([str(tmp_path / "nowhere")]) == 2

"""What a misbehaving worker costs: its own scenario and a restart, never another one."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from ropecheck.adapters import protocol
from ropecheck.conformance.errors import GaveUp
from ropecheck.conformance.judge.outcome import Unrun
from ropecheck.conformance.run import pool as pool_module
from ropecheck.conformance.run.pool import Pool
from ropecheck.conformance.run.printed import FIRST, LAST
from ropecheck.conformance.run.seat import Doubted, Reply, RunLimits
from ropecheck.conformance.scenario.operations import Scenario
from ropecheck.conformance.store.files import read_any, subject_of
from ropecheck.conformance.targets.registry import Target
from tests.conformance import planted_worker as how
from tests.conformance.support import StubPlan, planted, scenario, stub_plan

GOOD = [scenario(*[how.OK] * n, name=f"good {n}") for n in range(1, 9)]


def run(
    scenarios: list[Scenario],
    out: Path,
    workers: int = 1,
    limit: float = 120.0,
    restarts: int = 5,
    forks: bool = False,
) -> tuple[dict[str, Reply], Pool[StubPlan]]:
    limits = RunLimits(scenario=limit, restarts=restarts)
    target = planted(flag=out / "flag", forks=forks)
    with Pool[StubPlan](target, device="cpu", workers=workers, out=out, limits=limits) as pool:
        pool.start()
        found = {}
        for plan, answer in pool.answers(map(stub_plan, scenarios)):
            assert plan.scenario.id not in found, "answered twice"
            found[plan.scenario.id] = answer
    return found, pool


@pytest.mark.parametrize(
    ("code", "stage", "words"),
    [
        (how.KILLED, "run", "SIGKILL"),
        (how.SEGFAULT, "run", "SIGSEGV; it printed: about to touch null"),
        (how.HANG, "time limit", "no answer within 2 s"),
        (how.SPINS, "time limit", "no answer within 2 s"),
        (how.GARBAGE, "decode", "not a frame: b'Traceback"),
        (how.WRONG_TYPE, "decode", "$.results"),
        (how.SHORT, "decode", "0 results for 1 steps"),
        (how.WRONG_ID, "decode", "answer for job 'another'"),
        (how.CHILD_KEEPS_PIPE, "run", "SIGKILL"),
    ],
)
@pytest.mark.parametrize(("workers", "forks"), [(1, False), (2, True)])
def test_a_bad_scenario_costs_itself_alone(
    code: int, stage: str, words: str, workers: int, forks: bool, tmp_path: Path
) -> None:
    bad = scenario(code)
    limit = 2.0 if code in (how.HANG, how.SPINS) else 120.0
    found, pool = run([*GOOD[:3], bad, *GOOD[3:]], tmp_path, workers, limit, forks=forks)
    assert {id for id, answer in found.items() if isinstance(answer, Unrun)} == {bad.id}
    assert set(found) == {bad.id, *(good.id for good in GOOD)}
    unrun = found[bad.id]
    assert isinstance(unrun, Unrun)
    assert (unrun.stage, words in unrun.message) == (stage, True), unrun
    assert pool.restarts == 1


@pytest.mark.parametrize(("code", "restarts"), [(how.PRINTS, 0), (how.LARGE, 0), (how.EXITS_AFTER, 1), (how.TWICE, 1)])
def test_an_answered_scenario_keeps_its_answer(code: int, restarts: int, tmp_path: Path) -> None:
    good, *rest = GOOD
    found, pool = run([good, scenario(code), *rest[:2]], tmp_path)
    answer = found[scenario(code).id]
    assert isinstance(answer, protocol.JobAnswer)
    assert pool.restarts == restarts
    if code == how.PRINTS:
        assert "engines print" in (tmp_path / "worker-0.log").read_text()


def test_a_worker_that_shares_its_processor_gets_its_time(tmp_path: Path) -> None:
    """The limit is two seconds of work: what takes longer because other things run is no hang."""
    found, pool = run([scenario(how.SHARES)], tmp_path, limit=2.0)
    assert isinstance(found[scenario(how.SHARES).id], protocol.JobAnswer)
    assert pool.restarts == 0


def test_a_broken_cuda_context_is_answered_and_then_replaced(tmp_path: Path) -> None:
    found, pool = run([scenario(how.CUDA_ERROR), *GOOD], tmp_path)
    assert all(isinstance(answer, protocol.JobAnswer) for answer in found.values())
    assert len(found) == len(GOOD) + 1
    assert pool.restarts == 2, "the suspect broke a process of its own as well"


@pytest.mark.parametrize("workers", [2, 3])
def test_a_lost_context_is_told_whichever_worker_loses_it_last(workers: int, tmp_path: Path) -> None:
    """The suspects of every worker run alone, even when nothing else is left to do."""
    lost = [scenario(*[how.OK] * n, how.CUDA_AT_FIRST) for n in range(2 * workers)]
    found, _ = run([GOOD[0], *lost], tmp_path, workers)
    assert set(found) == {GOOD[0].id, *(one.id for one in lost)}
    for one in lost:
        reply = found[one.id]
        assert isinstance(reply, Doubted)
        assert all(isinstance(result, protocol.Done) for result in reply.answer.results)


def test_restarts_in_a_row_are_limited(tmp_path: Path) -> None:
    bad = [scenario(*[how.OK] * n, how.KILLED) for n in range(5)]
    with pytest.raises(GaveUp, match="2 restarts in a row without a success"):
        run([*bad, *GOOD], tmp_path, restarts=2)


def test_a_success_forgives_earlier_restarts(tmp_path: Path) -> None:
    mixed = [s for n in range(4) for s in (scenario(*[how.OK] * n, how.KILLED), GOOD[n])]
    found, pool = run(mixed, tmp_path, restarts=1)
    assert len(found) == 8
    assert pool.restarts == 4


@pytest.mark.parametrize(
    ("way", "words"),
    [
        ("silent", "no hello within 0.7 s"),
        ("exits", "exited with status 1; it printed: no module named engine"),
        ("wrong-protocol", f"protocol {protocol.PROTOCOL + 1}, this suite {protocol.PROTOCOL}"),
        ("garbage-hello", "no hello"),
        ("import-fails", "exited with status 1; it printed: no module named engine"),
    ],
)
def test_a_worker_that_does_not_come_up_ends_the_run(way: str, words: str, tmp_path: Path) -> None:
    limits = RunLimits(start=0.7 if way == "silent" else 120.0)
    target = planted(way, forks=way in ("import-fails", "exits"))
    with Pool[StubPlan](target, device="cpu", workers=2, out=tmp_path, limits=limits) as pool:  # noqa: SIM117
        with pytest.raises(GaveUp, match="no worker of target planted started") as error:
            pool.start()
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_a_command_that_is_not_there_ends_the_run(tmp_path: Path) -> None:
    target = Target(name="gone", argv=("/nonexistent/python",))
    with Pool[StubPlan](target, device="cpu", workers=1, out=tmp_path) as pool:  # noqa: SIM117
        with pytest.raises(GaveUp, match="cannot start"):
            pool.start()


def test_a_worker_that_cannot_be_restarted_is_given_up(tmp_path: Path) -> None:
    base = planted("once")
    target = Target(name="once", argv=base.argv, env={**base.env, "PLANTED_FLAG": str(tmp_path / "flag")})
    warnings: list[str] = []
    with Pool[StubPlan](target, device="cpu", workers=1, out=tmp_path, warn=warnings.append) as pool:
        pool.start()
        answers = pool.answers(map(stub_plan, [scenario(how.KILLED), *GOOD]))
        assert isinstance(next(answers)[1], Unrun)
        with pytest.raises(GaveUp, match=r"5 restarts in a row .*starts only once"):
            list(answers)
    assert len(warnings) == 1


def test_the_time_limit_counts_from_when_a_scenario_is_at_the_head(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(pool_module, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    slow = [scenario(*[how.OK] * n, how.SLOW) for n in range(4)]
    limits = RunLimits(scenario=60.0)
    with Pool[StubPlan](planted(), device="cpu", workers=1, out=tmp_path, limits=limits) as pool:
        pool.start()
        for _, answer in pool.answers(map(stub_plan, slow)):
            assert isinstance(answer, protocol.JobAnswer)
            clock[0] += 45  # what each scenario takes: together, and with the wait behind another, more than the limit
    assert pool.restarts == 0


def test_what_waits_for_nothing_is_an_error_and_no_hang(tmp_path: Path) -> None:
    with Pool[StubPlan](planted(), device="cpu", workers=1, out=tmp_path) as pool:
        pool.start()
        with pytest.raises(RuntimeError, match="would wait for ever"):
            pool._wait()


def test_an_engine_that_prints_without_end_is_answered(tmp_path: Path) -> None:
    found, pool = run([scenario(how.FLOOD), *GOOD[:2]], tmp_path)
    assert all(isinstance(answer, protocol.JobAnswer) for answer in found.values())
    assert pool.restarts == 0
    log = (tmp_path / "worker-0.log").read_text()
    assert len(log) < FIRST + LAST + 100
    assert "the last line" in log


def test_a_killed_run_keeps_what_it_had_in_flight(tmp_path: Path) -> None:
    (tmp_path / "in-flight").mkdir()
    (tmp_path / "in-flight" / "worker-0.a.json").write_bytes(msgspec.json.encode(GOOD[3]))
    warnings: list[str] = []
    with Pool[StubPlan](planted(), device="cpu", workers=1, out=tmp_path, warn=warnings.append) as pool:
        pool.start()
        list(pool.answers(map(stub_plan, GOOD)))
    kept = tmp_path / "unfinished" / f"{GOOD[3].id}.json"
    assert subject_of(read_any(kept)) == GOOD[3]
    assert len(warnings) == 1 and str(kept) in warnings[0]


def test_scenarios_are_on_disk_while_they_run_and_gone_afterwards(tmp_path: Path) -> None:
    hang = scenario(how.HANG)
    limits = RunLimits(scenario=120.0)
    with Pool[StubPlan](planted(), device="cpu", workers=1, out=tmp_path, limits=limits) as pool:
        pool.start()
        list(pool.answers(map(stub_plan, [scenario(*[how.OK] * 900)])))  # a longer one leaves no rest behind
        process = pool._seats[0].process
        assert process is not None
        killer = _kill_soon(process.pid)
        list(pool.answers(map(stub_plan, [hang])))
        os.waitpid(killer, 0)
        files = sorted((tmp_path / "in-flight").iterdir())
        written = [msgspec.json.decode(file.read_bytes(), type=Scenario) for file in files]
        assert hang.id in {one.id for one in written}
    assert not (tmp_path / "in-flight").exists()


def _kill_soon(pid: int) -> int:
    child = os.fork()
    if child == 0:
        time.sleep(0.3)
        os.kill(pid, signal.SIGKILL)
        os._exit(0)
    return child


def test_answers_that_nobody_waits_for_do_not_reach_the_next_caller(tmp_path: Path) -> None:
    with Pool[StubPlan](planted(), device="cpu", workers=1, out=tmp_path) as pool:
        pool.start()
        first = pool.answers(map(stub_plan, GOOD))
        next(first)
        first.close()
        found = [plan.scenario.id for plan, _ in pool.answers(map(stub_plan, [GOOD[7]]))]
    assert found == [GOOD[7].id]


def test_nothing_is_left_running(tmp_path: Path) -> None:
    with Pool[StubPlan](planted(), device="cpu", workers=2, out=tmp_path) as pool:
        pool.start()
        pids = [seat.process.pid for seat in pool._seats if seat.process is not None]
        answers = pool.answers(map(stub_plan, [scenario(how.HANG), *GOOD[:3]]))
        next(answers)
    assert len(pids) == 2
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)

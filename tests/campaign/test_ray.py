"""Real raylets on this machine: one is killed in the middle, and a driver; nothing is lost."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ropecheck.conformance.campaign.blocks import CampaignPlan
from ropecheck.conformance.campaign.driver import CampaignDriver
from ropecheck.conformance.campaign.ledger import CampaignState, Ledger
from ropecheck.conformance.campaign.ray_crew import RayCrew
from ropecheck.conformance.campaign.station import BlockDone, identity
from ropecheck.conformance.cli import app as cli
from ropecheck.conformance.known import failures as known_list
from ropecheck.conformance.report.json_file import Report
from tests.campaign.planted import FAULTY, FEW, VARIABLE
from tests.campaign.support import LONG, merged, run_here, timeless

pytestmark = pytest.mark.xdist_group("campaign")  # what is slow to make is made once

ROOT = Path(__file__).parents[2]


@pytest.fixture
def whole(long: tuple[Report, dict[int, BlockDone]]) -> Report:
    """What the blocks come to in one process."""
    return long[0]


@pytest.fixture(autouse=True)
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One cluster at a time, whatever other test processes do."""
    with (tmp_path_factory.getbasetemp().parent / "ray.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture
def cluster(alone: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A head with one core, and a second node with one."""
    from ray.cluster_utils import Cluster

    monkeypatch.setenv(VARIABLE, str(FEW))
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    limits = {"object_store_memory": 80 << 20, "include_dashboard": False}
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, **limits})
    yield made
    made.shutdown()


def test_a_node_is_killed(cluster: Any, whole: Report, tmp_path: Path) -> None:
    doomed = cluster.add_node(num_cpus=1, object_store_memory=80 << 20)
    known = known_list.FOLDER
    crew = RayCrew(
        cluster.address, device="cpu", most=0, known=known, time_limit=20, modules=("tests.campaign.planted",)
    )
    ledger = Ledger(tmp_path, LONG, identity())
    two = killed = False

    def watch(driver: CampaignDriver) -> None:
        nonlocal two, killed
        two = two or len(driver.crew.places()) == 2
        if two and not killed and driver.ledger.state.curve and driver.ledger.state.curve[-1].blocks >= 2:
            killed = True
            cluster.remove_node(doomed, allow_graceful=False)

    driver = CampaignDriver(plan=LONG, ledger=ledger, crew=crew, seconds=600, tell=watch)
    try:
        driver.run()
    finally:
        ledger.close()
        crew.close()
    assert killed
    assert driver.lost >= 1, "the node had blocks"
    assert timeless(merged(tmp_path)) == timeless(whole)


def test_a_driver_is_killed_and_resumed(cluster: Any, whole: Report, tmp_path: Path) -> None:
    cluster.add_node(num_cpus=1, object_store_memory=80 << 20)
    command = [sys.executable, "-m", "ropecheck", "campaign", "--ray", cluster.address, "--targets", FAULTY]
    command += [
        "--import",
        "tests.campaign.planted",
        "--out",
        str(tmp_path),
        "--hours",
        "0.2",
        "--seed",
        str(LONG.seed),
    ]
    command += ["--phase", "stateful", "--shards", str(LONG.shards), "--rounds", str(LONG.rounds), "--no-shrink"]
    first = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 240
    while _taken_in(tmp_path) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(first.pid, signal.SIGKILL)
    assert first.wait() == -signal.SIGKILL, "it was still at work"
    again = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert again.returncode == 1, again.stderr  # the planted fault
    assert "resumed" in again.stdout
    assert timeless(merged(tmp_path)) == timeless(whole)
    assert "new" in (tmp_path / "index.html").read_text()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_the_report_of_what_was_done(number: signal.Signals, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ropecheck", "campaign", "--targets", "reference", "--phase", "stateful"]
    command += ["--shards", "8", "--workers", "1", "--out", str(tmp_path)]
    driver = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 240
    while _taken_in(tmp_path) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    driver.send_signal(number)
    assert driver.wait(timeout=120) == 130
    assert merged(tmp_path, "reference").totals.scenarios > 0


def _taken_in(out: Path) -> int:
    """Blocks that the driver has on disk."""
    try:
        state = msgspec.json.decode((out / "state.json").read_bytes(), type=CampaignState)
        return len(state.curve) + (out / "journal.jsonl").read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0


def test_by_default_this_machine_is_the_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = CampaignPlan(targets=("reference",), phases=("hypothesis",), shards=2, rounds=1)
    argv = ["campaign", "--targets", "reference", "--phase", "hypothesis", "--shards", "2", "--rounds", "1"]
    assert cli.execute([*argv, "--out", str(tmp_path / "ray")]) == 0
    assert timeless(merged(tmp_path / "ray", "reference")) == timeless(run_here(tmp_path / "here", plan))
    assert "240 scenarios" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (["--ray", "127.0.0.1:1"], "--ray 127.0.0.1:1"),
        (["--hours", "0"], "--hours 0"),
        (["--targets", "nosuch"], "unknown target 'nosuch'"),
        (["--targets", "reference,reference"], "one is there twice"),
        (["--phase", "nosuch"], "unknown phase"),
        (["--shards", "0"], "--shards 0"),
        (["--import", "no.such.module"], "--import no.such.module"),
    ],
)
def test_bad_input_is_one_line(
    argv: list[str], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli.execute(["campaign", "--targets", "reference", "--out", str(tmp_path), *argv]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert why in line

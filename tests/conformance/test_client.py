"""The process and its pipes, and the files that hold what is in flight."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest

from ropecheck.adapters import protocol
from ropecheck.conformance.run import printed
from ropecheck.conformance.run.client import Process
from ropecheck.conformance.run.inflight import Slot, rescue
from ropecheck.conformance.run.printed import FIRST, LARGEST, LAST
from ropecheck.conformance.scenario.operations import Scenario
from ropecheck.conformance.store.files import read_any, subject_of
from ropecheck.conformance.targets.registry import Target
from tests.conformance.support import ROOT, scenario

ANSWERS_AND_LEAVES = """
import os, sys
from ropecheck.adapters import protocol
arguments = dict(zip(sys.argv[1::2], sys.argv[2::2]))
out = os.fdopen(int(arguments["--out-fd"]), "wb")
protocol.send(out, protocol.JobAnswer("first", (), 0, 0))
"""


def test_an_answer_of_a_worker_that_has_gone_is_still_read(tmp_path: Path) -> None:
    target = Target(name="t", argv=(sys.executable, "-c", ANSWERS_AND_LEAVES), env={"PYTHONPATH": str(ROOT)})
    process = Process(target, "cpu", tmp_path / "log")
    try:
        assert process.how_it_ended(patience=20) == "exited with status 0"
        process.send(protocol.Job("second", ()))  # nobody reads this pipe any more
        assert not process.writing
        process.read(all_of_it=True)
        body = process.frame()
        assert body is not None
        assert msgspec.msgpack.decode(body, type=protocol.JobAnswer).id == "first"
        assert process.frame() is None
        assert process.ended
    finally:
        process.stop()


def test_a_large_job_waits_for_room_without_blocking(tmp_path: Path) -> None:
    target = Target(name="t", argv=(sys.executable, "-c", "import time; time.sleep(60)"))
    process = Process(target, "cpu", tmp_path / "log")
    try:
        process.send(protocol.Job("x" * (8 << 20), ()))
        assert process.writing
    finally:
        process.stop()


def test_last_words_are_of_this_process(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("from an earlier worker\n")
    process = Process(Target(name="t", argv=(sys.executable, "-c", "print('from this one')")), "cpu", log)
    process.how_it_ended(patience=20)
    assert process.last_words() == "from this one"
    process.stop()


def test_a_slot_holds_the_last_scenario_whatever_was_there_before(tmp_path: Path) -> None:
    path = tmp_path / "in-flight" / "slot.json"
    slot = Slot(path)
    for length in (3, 900, 1, 2, 5000, 7):
        one = scenario(*[0] * length)
        slot.write(one)
        assert msgspec.json.decode(path.read_bytes(), type=Scenario) == one
    slot.remove()
    assert not path.exists()


FLOOD = """
for n in range(60_000):
    print("line", n, "x" * 60)
print("the last line")
"""


def test_a_worker_that_prints_without_end_fills_no_disk(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = Process(Target(name="t", argv=(sys.executable, "-c", FLOOD)), "cpu", log)
    assert process.how_it_ended(patience=60) == "exited with status 0", "nobody may wait for room in the pipe"
    process.stop()
    text = log.read_text()
    assert text.startswith("line 0 x")
    assert text.endswith("the last line\n")
    assert "bytes left out]" in text
    assert len(text) < FIRST + LAST + 100


def test_logs_of_many_workers_are_put_aside_once_they_are_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    largest = 2 * FIRST
    assert largest < LARGEST
    monkeypatch.setattr(printed, "LARGEST", largest)
    log = tmp_path / "log"
    for number in range(5):
        process = Process(Target(name="t", argv=(sys.executable, "-c", FLOOD + f"print({number})")), "cpu", log)
        process.how_it_ended(patience=60)
        process.stop()
    assert log.read_text().endswith("the last line\n4\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "log.1"]
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 2 * (largest + FIRST + LAST + 100)


def test_an_engine_on_a_full_disk_goes_on(tmp_path: Path) -> None:
    """Its output goes through a pipe: that the log cannot be written is no error of the engine's."""
    printing = Target(name="t", argv=(sys.executable, "-c", "print('still here', flush=True)"))
    process = Process(printing, "cpu", Path("/dev/full"))
    assert process.how_it_ended(patience=60) == "exited with status 0"
    assert process.last_words() == "still here"
    process.stop()


def test_what_a_killed_run_had_in_flight_is_kept(tmp_path: Path) -> None:
    slots = [Slot(tmp_path / "in-flight" / f"worker-0.{letter}.json") for letter in "ab"]
    slots[0].write(scenario(1, 2))
    torn = tmp_path / "in-flight" / "worker-1.a.json"
    torn.write_bytes(b'{"name": "half')
    kept = rescue(tmp_path)
    assert len(kept) == 2
    assert kept[0] == tmp_path / "unfinished" / f"{scenario(1, 2).id}.json"
    assert subject_of(read_any(kept[0])) == scenario(1, 2)
    assert kept[1].read_bytes() == b'{"name": "half'
    torn.write_bytes(b'{"name": "another half')
    assert len(rescue(tmp_path)) == 1
    assert len(list((tmp_path / "unfinished").iterdir())) == 3, "nothing that was kept is overwritten"

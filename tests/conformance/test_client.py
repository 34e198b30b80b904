"""The process and its pipes, and the files that hold what is in flight."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import msgspec

from ropecheck.adapters import protocol
from ropecheck.conformance.run.client import Process
from ropecheck.conformance.run.inflight import Slot
from ropecheck.conformance.scenario.operations import Scenario
from ropecheck.conformance.targets.registry import Target
from tests.conformance.support import ROOT, scenario

ANSWERS_AND_LEAVES = """
import os, sys
from adapters import protocol
arguments = dict(zip(sys.argv[1::2], sys.argv[2::2]))
out = os.fdopen(int(arguments["--out-fd"]), "wb")
protocol.send(out, protocol.Answer("first", (), 0, 0))
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
        assert msgspec.msgpack.decode(body, type=protocol.Answer).id == "first"
        assert process.frame() is None
        assert process.ended
    finally:
        process.stop()


def test_a_large_job_waits_for_room_without_blocking(tmp_path: Path) -> None:
    target = Target(name="t", argv=(sys.executable, "-c", "import time; time.sleep(60)"))
    process = Process(target, "cpu", tmp_path / "log")
    try:
        started = time.monotonic()
        process.send(protocol.Job("x" * (8 << 20), ()))
        assert process.writing
        assert time.monotonic() - started < 5
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

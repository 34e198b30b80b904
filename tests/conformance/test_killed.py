"""A run that is killed, interrupted while it starts, or out of disk: nothing stays behind, nothing is lost."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ropecheck.conformance.cli import app as cli
from ropecheck.conformance.cli.options import console
from ropecheck.conformance.scenario.operations import Scenario
from ropecheck.conformance.store import files
from tests.conformance import planted_worker as how
from tests.conformance.conftest import Run
from tests.conformance.support import ROOT, scenario

PASSES, FAILS_A = scenario(how.OK), scenario(how.FAIL_A)

SCRIPT = """
import signal
import sys
from pathlib import Path
from ropecheck.conformance import cli
from ropecheck.conformance.run import phases
from ropecheck.conformance.targets import registry as targets
from tests.conformance import support
support.stub(setattr)
targets._SOURCES[:] = [lambda: [support.planted({hello!r}, Path({flag!r}))]]
scenarios = [support.scenario(*codes) for codes in {codes!r}]
phases._PHASES.clear()
phases.register(phases.Phase(name="codes", summary="", drive=lambda d: d.check_all(scenarios)))
sys.argv = ["ropecheck", "run", "--target", "planted", "--workers", "1", "--known", {known!r}, "--out", {out!r}]
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background
cli.main()
"""


def start(tmp_path: Path, *codes: tuple[int, ...], hello: str = "well") -> subprocess.Popen[bytes]:
    """A run of its own over the planted worker."""
    (tmp_path / "known").mkdir()
    names = {"flag": "flag", "known": "known", "out": "out"}
    script = SCRIPT.format(hello=hello, codes=codes, **{name: str(tmp_path / path) for name, path in names.items()})
    (tmp_path / "temporary").mkdir()
    env = os.environ | {"TMPDIR": str(tmp_path / "temporary")}
    return subprocess.Popen(
        [sys.executable, "-c", script], cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def wait_for(what: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    """Until it is so; a machine that is busy takes its time, but a run that ended comes to nothing more."""
    while not what():
        if process.poll() is not None and not what():
            pytest.fail(f"the run ended with {process.returncode}: {process.communicate()[0].decode()}")
        time.sleep(0.02)


def alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def test_workers_that_hang_end_with_a_runner_that_is_killed(tmp_path: Path) -> None:
    """SIGKILL leaves the runner no time to end them; what they started ends as well, the scenario is kept, and the
    folder of temporary files goes."""
    process = start(tmp_path, (how.CHILD_HANGS,))
    flag = tmp_path / "flag"
    wait_for(lambda: flag.exists() and len(flag.read_text().split()) == 2, process)
    pids = [int(word) for word in flag.read_text().split()]
    assert all(map(alive, pids))
    (scratch,) = (tmp_path / "temporary").iterdir()
    assert f"TMPDIR={scratch}".encode() in Path(f"/proc/{pids[0]}/environ").read_bytes().split(b"\0")
    process.kill()
    process.communicate()
    while any(map(alive, pids)) or scratch.exists():
        time.sleep(0.02)
    left = [path for path in (tmp_path / "out" / "in-flight").iterdir() if path.read_bytes().strip()]
    assert files.subject_of(files.read_any(left[0])).id == scenario(how.CHILD_HANGS).id


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_while_workers_start_leaves_a_report(number: signal.Signals, tmp_path: Path) -> None:
    process = start(tmp_path, (how.OK,), hello="silent")
    wait_for((tmp_path / "out" / "in-flight").exists, process)
    wait_for((tmp_path / "out" / ".reserve").exists, process)
    time.sleep(0.3)
    process.send_signal(number)
    output, error = process.communicate()
    assert process.returncode == 130, error.decode()
    assert b"Traceback" not in error
    assert b"interrupted" in output
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["totals"]["scenarios"] == 0
    assert "the run was interrupted" in report["warnings"]
    while any((tmp_path / "temporary").iterdir()):
        time.sleep(0.02)


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """A disk on which nothing can be written while the room for the reports is taken."""
    write = Path.write_bytes

    def plant(out: Path) -> None:
        def write_bytes(path: Path, data: bytes) -> int:
            if out in path.parents and (out / ".reserve").exists():
                raise OSError(28, "No space left on device")
            return write(path, data)

        monkeypatch.setattr(Path, "write_bytes", write_bytes)

    return plant


def test_a_full_disk_ends_the_run_with_a_report_that_names_the_file(
    ropecheck: Run, tmp_path: Path, full_disk: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    full_disk(out)
    scenarios: list[Scenario] = [PASSES, scenario(how.NOT_OFFERED), scenario(how.KILLED)]
    assert ropecheck(scenarios) == 3
    report = json.loads((out / "report.json").read_text())
    stored = out / "failures" / f"{scenario(how.KILLED).id}.json"
    assert f"the run ended early: {stored}: disk full" in report["warnings"]
    totals = report["totals"]
    states = ("passed", "failed", "expected", "not_offered", "could_not_run")
    assert totals["scenarios"] == sum(totals[state] for state in states) == 3
    assert (out / "junit.xml").exists()
    assert not (out / ".reserve").exists()
    assert f"ended early: {stored}: disk full" in capsys.readouterr().out


def test_a_report_that_cannot_be_written_is_told_after_the_others(
    ropecheck: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write = Path.write_bytes

    def write_bytes(path: Path, data: bytes) -> int:
        if "report.json" in path.name:
            raise OSError(28, "No space left on device")
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", write_bytes)
    assert ropecheck([FAILS_A]) == 3
    said = capsys.readouterr()
    assert said.err == f"ropecheck: not written: {tmp_path / 'out' / 'report.json'}: disk full\n"
    assert "0 passed, 1 failed" in said.out, "the other listeners had their turn"
    assert (tmp_path / "out" / "junit.xml").exists()


def test_what_an_engine_says_does_not_steer_the_terminal(
    ropecheck: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ropecheck([PASSES, scenario(how.COLOURS)]) == 3
    out = capsys.readouterr().out
    assert "\\x1b[31mred\\x1b]0;a title" in out
    assert not set(out) & {"\x1b", "\x07", "\x9b"}
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert any("\x1b[31mred" in warning for warning in report["warnings"]), "a file holds what was said"


def test_a_table_on_the_terminal_is_text_too(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.table import Table

    table = Table("a name that leaves room")
    table.add_row("\x1b[2J\u202etxet")
    console().print(table)
    out = capsys.readouterr().out
    assert "\\x1b[2J\\u202etxet" in out
    assert "\x1b" not in out


def test_an_error_line_is_text_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.execute(["run", "--target", "\x1b[31mred"]) == 2
    assert "\x1b" not in capsys.readouterr().err

"""Record an engine at work: `ropecheck record -- CMD`, `pytest -p ropecheck.record`, or ROPECHECK_RECORD=DIR with
`python -m ropecheck.record` first on PYTHONPATH.

Every process that builds forwards for clients writes events (`ropecheck.adapters.events`) into files of the folder.
This module joins what may not know each other: the engine's watcher and the judge.

| variable | means |
| --- | --- |
| ROPECHECK_RECORD | the folder; unset or empty: off, and nothing is imported |
| ROPECHECK_RECORD_MODE | `log`: files, judged later. `raise`: judged at once; the first failure stops the engine. |
| | `monitor`: rows compared on the device, a line in the log when one is wrong, a count at the end |
| ROPECHECK_RECORD_LIMIT | megabytes of one stream's files in all (512) |
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import ModuleType

    from ropecheck.adapters import events

FOLDER, MODE, LIMIT = "ROPECHECK_RECORD", "ROPECHECK_RECORD_MODE", "ROPECHECK_RECORD_LIMIT"
MODES = ("log", "raise", "monitor")


def start() -> None:
    """Watch the engine in this process once it is imported."""
    from ropecheck.adapters.sglang.recorder import hook

    hook.install(_imported)


def environment(folder: Path, mode: str = "log", path: str | None = None) -> dict[str, str]:
    """What a child is given so that it and its children record. path: its PYTHONPATH; None: this process's."""
    import ropecheck.adapters

    root = Path(__file__).resolve().parents[1]
    site = Path(ropecheck.adapters.__path__[0]) / "sglang" / "recorder" / "site"
    given = os.environ.get("PYTHONPATH", "") if path is None else path
    parts = [str(site), *filter(None, given.split(os.pathsep)), str(root)]
    return {FOLDER: str(folder.resolve()), MODE: mode, "PYTHONPATH": os.pathsep.join(dict.fromkeys(parts))}


def _imported(module: ModuleType) -> None:
    from ropecheck.adapters.sglang import mends
    from ropecheck.adapters.sglang.recorder import watch
    from ropecheck.adapters.sglang.scheduler import faults

    faults.install()  # of the environment's choice; usually none
    mends.install()
    watch.install(module, _open)


def _open(header: events.TraceHeader) -> Any:
    from ropecheck.adapters.recording import KEEP, LARGEST
    from ropecheck.adapters.sglang.recorder.sink import Files

    limit = float(os.environ.get(LIMIT, "0")) * 1e6 or float(LARGEST * KEEP)
    judge = _judge() if os.environ.get(MODE, "log") == "raise" else None
    folder = Path(os.environ[FOLDER])
    if os.environ.get(MODE) == "monitor":
        return _monitor(header, folder)
    return Files(folder, header, f"scheduler-{os.getpid()}", largest=int(limit / KEEP), judge=judge)


def _monitor(header: events.TraceHeader, folder: Path) -> Any:
    """Compares where the tables are."""
    import logging

    from ropecheck.adapters.sglang.recorder.monitor import Monitor
    from ropecheck.conformance.trace.follow import TraceFollower

    follower = TraceFollower(header.family)
    file = folder / f"monitor-{os.getpid()}.json"
    return Monitor(follower.feed, follower.place, file, logging.getLogger("ropecheck").error)


def _judge() -> Any:
    """What says of an event what is wrong with it, "" for nothing."""
    from ropecheck.conformance.trace.judge import Judge

    judge = Judge()

    def wrong(event: events.Event) -> str:
        for failure in judge.feed(event):
            return f"{failure.rule}: {failure.signature}: {failure.message}"
        return ""

    return wrong


# ---------------------------------------------------------------- pytest -p ropecheck.record


def pytest_configure(config: Any) -> None:
    """Record this process and all that its tests start."""
    folder = Path(os.environ.get(FOLDER) or f".ropecheck/record/pytest-{os.getpid()}")
    os.environ.update(environment(folder, os.environ.get(MODE, "log")))
    start()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Judge what was recorded."""
    from ropecheck.conformance.trace.folder import summary

    terminalreporter.section("ropecheck")
    made = summary(Path(os.environ[FOLDER]))
    for line in made.lines or ["no engine was recorded"]:
        terminalreporter.write_line(line)


def pytest_sessionfinish(session: Any) -> None:
    """A wrong table fails the session."""
    from ropecheck.conformance.trace.folder import summary

    worker = hasattr(session.config, "workerinput")  # of xdist: others may still write
    if not worker and session.exitstatus == 0 and summary(Path(os.environ[FOLDER])).failures:
        session.exitstatus = 1


if __name__ == "__main__":
    print(environment(Path())["PYTHONPATH"].split(os.pathsep)[0])
    sys.exit(0)

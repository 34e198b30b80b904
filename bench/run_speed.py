"""How fast a default run is, and where its time goes: `python -m bench.run_speed [ropecheck run options]`.

Prints forwards per second, wall time x workers beside the time inside the engine's own constructors and functions, the
runner's peak memory, and the runner's own cost per scenario by stage (measured without an engine, in CPU time).
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from itertools import islice, pairwise
from pathlib import Path

import msgspec

from ropecheck.adapters import protocol
from ropecheck.conformance.judge.verdict import judge
from ropecheck.conformance.plan.planner import plan
from ropecheck.conformance.reference_engine import ReferenceEngine, answer
from ropecheck.conformance.scenarios.exhaustive import sweep

POLL_SECONDS = 0.5


def peak_kib(pid: int) -> int:
    """The largest resident set of a process so far, KiB; 0 when it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), 0)


def run(options: list[str]) -> None:
    """A run in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "ropecheck.conformance.cli", "run", "--out", folder, *options]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        peak = 0
        while process.poll() is None:
            peak = max(peak, peak_kib(process.pid))
            time.sleep(POLL_SECONDS)
        report = json.loads((Path(folder) / "report.json").read_text())
    totals = report["totals"]
    wall = totals["seconds"] * totals["workers"]
    print(f"exit code                      {process.returncode}")
    print(
        f"forwards                       {totals['forwards']} in {totals['seconds']:.1f} s, "
        f"{totals['workers']} workers: {totals['forwards'] / totals['seconds']:.0f}/s"
    )
    print(
        f"wall x workers / engine        {wall:.1f} s / {totals['engine_seconds']:.1f} s = "
        f"{wall / totals['engine_seconds']:.2f}"
    )
    print(f"runner's peak resident set     {peak / 1024:.0f} MiB")


def stages(count: int = 4000) -> None:
    """CPU microseconds per scenario of the exhaustive phase, stage by stage."""
    encoder, decoder = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(protocol.Response)
    spent = dict.fromkeys(("generate", "plan", "encode", "decode", "judge"), 0)
    scenarios = islice(sweep(), count)
    forwards = done = 0
    while True:
        marks = [time.process_time_ns()]
        scenario = next(scenarios, None)
        if scenario is None:
            break
        marks.append(time.process_time_ns())
        planned = plan(scenario)
        marks.append(time.process_time_ns())
        encoder.encode(planned.job)
        marks.append(time.process_time_ns())
        body = encoder.encode(answer(planned.job, ReferenceEngine()))
        start = time.process_time_ns()
        found = decoder.decode(body)
        decoded = time.process_time_ns()
        assert isinstance(found, protocol.JobAnswer)
        forwards += judge(planned, found).forwards
        judged = time.process_time_ns()
        parts = (*(b - a for a, b in pairwise(marks)), decoded - start, judged - decoded)
        for name, part in zip(spent, parts, strict=True):
            spent[name] += part
        done += 1
    print(
        f"runner, {forwards / done:.1f} forwards a scenario, CPU us a scenario: "
        + ", ".join(f"{name} {value / done / 1000:.0f}" for name, value in spent.items())
    )


if __name__ == "__main__":
    stages()
    run(sys.argv[1:])

"""Faults planted in a target's GPU paths: each must make the chosen scenarios fail. Writes DIR/faults.json.

python -m ropecheck.conformance.device.score --target T --device D --out DIR
"""

import argparse
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from ropecheck.conformance.device.checks import DeviceReport
from ropecheck.conformance.errors import UsageError
from ropecheck.conformance.report.json_file import Report
from ropecheck.conformance.store.files import pretty, write_atomic
from ropecheck.conformance.targets.registry import DEFAULT, find

VARIABLE = "ROPECHECK_FAULT"

FAULTS = {
    "wrong_row": "",
    "one_column_short": "",
    "hidden_copy": "cost.",
    "hidden_wait": "cost.synchronisations",
    "wrong_stride": "",
    "transposed_layout": "",
    "ignored_stride": "table.index",
    "other_graph": "padding.width",
    "no_clamp": "",
    "out_of_bounds": "table.present",
}
"""Fault of the adapter's worker -> what the rule that it breaks must begin with."""

FUNCTION_LEVEL = ("ignored_stride",)
"""No request leads to these: `ropecheck.conformance.device.checks` must see them."""


class FaultScore(msgspec.Struct, frozen=True, kw_only=True):
    """What one fault led to."""

    fault: str
    caught: bool
    exit_code: int
    rule: str = ""
    """Of the first new finding."""
    signature: str = ""
    witness: str = ""
    failed: int = 0
    passed: int = 0
    could_not_run: int = 0
    warnings: tuple[str, ...] = ()


def score(fault: str, target: str, device: str, out: Path, workers: int) -> FaultScore:
    """Run the chosen scenarios, or the checks at function level, with the fault planted."""
    folder = out / f"fault-{fault}"
    if fault in FUNCTION_LEVEL:
        return by_checks(fault, target, device, folder)
    command = [sys.executable, "-m", "ropecheck.conformance.cli", "run", "--target", target, "--device", device]
    command += ["--phase", "chosen", "--out", str(folder), "--workers", str(workers), "--time-limit", "60"]
    report = folder / "report.json"
    report.unlink(missing_ok=True)  # an earlier run's must not pass for this one's
    done = planted(fault, command)
    if not report.is_file():
        return FaultScore(fault=fault, caught=False, exit_code=done.returncode, warnings=(last_words(done),))
    found = msgspec.json.decode(report.read_bytes(), type=Report)
    new = [finding for finding in found.findings if not finding.known]
    mine = [finding for finding in new if finding.rule.startswith(FAULTS.get(fault, ""))]
    first = mine[0] if mine else (new[0] if new else None)
    return FaultScore(
        fault=fault,
        caught=bool(mine) and done.returncode == 1,
        exit_code=done.returncode,
        rule=first.rule if first else "",
        signature=first.signature if first else "",
        witness=first.witness.id if first else "",
        failed=found.totals.failed,
        passed=found.totals.passed,
        could_not_run=found.totals.could_not_run,
        warnings=tuple(line for line in found.warnings if "device context" in line or "worker restarts" in line),
    )


def by_checks(fault: str, target: str, device: str, folder: Path) -> FaultScore:
    """Run the checks at function level with the fault planted."""
    command = [sys.executable, "-m", "ropecheck.conformance.device.checks", "--target", target, "--device", device]
    file = folder / "device.json"
    file.unlink(missing_ok=True)
    done = planted(fault, [*command, "--out", str(folder)])
    if not file.is_file():
        return FaultScore(fault=fault, caught=False, exit_code=done.returncode, warnings=(last_words(done),))
    report = msgspec.json.decode(file.read_bytes(), type=DeviceReport)
    wrong = [check for check in report.checks if check.problem]
    mine = next((check for check in wrong if check.rule.startswith(FAULTS[fault])), None)
    return FaultScore(
        fault=fault,
        caught=mine is not None and done.returncode == 1,
        exit_code=done.returncode,
        rule=mine.rule if mine else "",
        signature=mine.what if mine else "",
        failed=len(wrong),
        passed=sum(not (check.problem or check.note or check.unrun) for check in report.checks),
        could_not_run=sum(bool(check.unrun) for check in report.checks),
    )


def planted(fault: str, command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a command whose workers plant the fault."""
    return subprocess.run(command, env=os.environ | {VARIABLE: fault}, capture_output=True, text=True, check=False)


def last_words(done: subprocess.CompletedProcess[str]) -> str:
    """Why a command wrote no report."""
    return (done.stderr.strip().splitlines() or ["it gave no reason"])[-1]


def at_least_one(text: str) -> int:
    """A count, for argparse. Raises ValueError."""
    if int(text) < 1:
        raise ValueError(text)
    return int(text)


def main(arguments: list[str] | None = None) -> int:
    """Entry point: 0 when every fault is caught, 1 when one is not."""
    parser = argparse.ArgumentParser(
        prog="ropecheck.conformance.device.score", description="Planted faults on a device."
    )
    parser.add_argument("--target", default=DEFAULT)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--fault", action="append", default=[], choices=sorted(FAULTS))
    parser.add_argument("--workers", type=at_least_one, default=2, help="for each fault")
    parser.add_argument("--at-once", type=at_least_one, default=4, help="faults at a time")
    options = parser.parse_args(arguments)
    try:
        find(options.target, options.device)
        options.out.mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor(options.at_once) as pool:
            scores = tuple(
                pool.map(
                    lambda fault: score(fault, options.target, options.device, options.out, options.workers),
                    options.fault or FAULTS,
                )
            )
        write_atomic(options.out / "faults.json", pretty(scores))
    except (UsageError, OSError) as error:
        print(f"device_score: {error}", file=sys.stderr)
        return 2
    for one in scores:
        state = "caught" if one.caught else "NOT CAUGHT"
        print(
            f"{state}: {one.fault}: {one.rule} {one.signature} ({one.failed} failed, {one.passed} passed, "
            f"{one.could_not_run} could not run, exit {one.exit_code}) {'; '.join(one.warnings)}"
        )
    print(f"{sum(one.caught for one in scores)} of {len(scores)} faults caught")
    return 0 if all(one.caught for one in scores) else 1


if __name__ == "__main__":
    sys.exit(main())

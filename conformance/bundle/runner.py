#!/usr/bin/env python3
"""Runs an unpacked bundle: `python3 run.py [--out DIR]`. Needs this host's Python and torch, and no network.

Per target: report.json, junit.xml and the witnesses of what failed; over all of them summary.json, and costs.md with
what each forward costs on the device. Exit codes as ropecheck's: the worst of the targets, 3 when the device cannot
be used.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = "ropecheck-bundle"
MANIFEST = "bundle.json"

PROBE = """
import json, platform, sys
try:
    import torch
except Exception as error:
    print(json.dumps({"problem": f"this Python has no usable torch: {error}", "fatal": True}))
    sys.exit()
from ropecheck.adapters.sglang import device
problem = device.problem(torch)
about = {} if problem else device.describe(torch)
print(json.dumps({"problem": problem, "torch": str(torch.__version__), **about}))
"""


@dataclass(frozen=True, kw_only=True)
class TargetEntry:
    """A target of the bundle."""

    name: str
    kernel: str = ""
    """Its compiled kernel package; "": a stand-in whose use raises."""
    stand_ins: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """bundle.json."""

    suite: str
    python: str
    torch: str = ""
    arch: str = ""
    targets: tuple[TargetEntry, ...] = ()
    packages: dict[str, str] = field(default_factory=dict)
    host_has: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


class Unusable(Exception):
    """The host cannot run the bundle; one line."""


def main(arguments: list[str] | None = None) -> int:
    """Run every target. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="run.py", description="Run every target of this bundle.")
    parser.add_argument("--out", type=Path, default=Path("ropecheck-out"), help="folder for the reports")
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto", help="auto: cuda, else cpu")
    parser.add_argument("--target", action="append", default=[], help="only this target; may be repeated")
    parser.add_argument("--workers", type=int, default=0, help="worker processes; 0: at most 8, one per core")
    parser.add_argument("--time-limit", type=float, default=120.0, help="seconds for one scenario")
    parser.add_argument("--max-time", type=float, default=0.0, help="start no further target after so many seconds")
    parser.add_argument("--phase", action="append", default=[], help="phase to run; may be repeated")
    parser.add_argument("--bound", default="small", help="size of the exhaustive scope")
    parser.add_argument("--fuzz", nargs=2, metavar=("SEED", "SEEDS"), help="only draw so many seeds, from this one on")
    parser.add_argument("--live", choices=("short", "long"), help="only start a server of each target and play clients")
    parser.add_argument("--via", choices=("engine", "http"), default="engine", help="how a live server is started")
    options = parser.parse_args(arguments)
    here = Path(__file__).resolve().parent
    try:
        manifest = read_manifest(here / MANIFEST)
        check_python(manifest)
        host = probe(here)
        device = chosen_device(options.device, host)
        targets = chosen_targets(options.target, manifest)
    except Unusable as error:
        print(f"run.py: {error}", file=sys.stderr)
        return 3
    today = time.strftime("%Y-%m-%d", time.gmtime())
    host |= {"device": device, "python": platform.python_version(), "suite": manifest.suite, "date": today}
    print(f"run.py: {manifest.suite} on {host.get('name') or 'the CPU'}, torch {host['torch']}", flush=True)
    return run_all(here, targets, options, host)


def run_all(here: Path, targets: tuple[TargetEntry, ...], options: argparse.Namespace, host: dict[str, Any]) -> int:
    """Run the targets one after another, then write what they have in common."""
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    codes: dict[str, int] = {}
    began = time.monotonic()
    for target in targets:
        if options.max_time and codes and time.monotonic() - began > options.max_time:
            print(f"run.py: {target.name}: not started, the time is up", flush=True)
            codes[target.name] = 3
            continue
        codes[target.name] = run_one(here, target, options, str(host["device"]), out / folder_name(target.name))
    (out / "host.json").write_text(json.dumps(host | {"exit_codes": codes}, indent=2) + "\n", encoding="utf-8")
    command = [sys.executable, "-m", "ropecheck.conformance.device.report", str(out)]
    subprocess.run(command, env=environment(here), cwd=here / "suite", check=False)
    return worst(codes.values())


def run_one(here: Path, target: TargetEntry, options: argparse.Namespace, device: str, out: Path) -> int:
    """One target in a process of its own. Returns ropecheck's exit code."""
    if options.live:
        return run_live(here, target, options, device, out)
    workers = options.workers or min(8, len(os.sched_getaffinity(0)))
    command = [sys.executable, "-m", "ropecheck.conformance.cli", "fuzz" if options.fuzz else "run"]
    command += ["--target", target.name, "--device", device, "--out", str(out), "--workers", str(workers)]
    command += ["--time-limit", str(options.time_limit), "--report", "junit,json"]
    if options.fuzz:
        command += ["--seed", options.fuzz[0], "--seeds", options.fuzz[1]]
    else:
        command += ["--bound", options.bound]
    for phase in options.phase:
        command += ["--phase", phase]
    print(f"run.py: {target.name} ({target.kernel or 'kernel package: a stand-in'})", flush=True)
    ran = environment(here, target.stand_ins)
    done = subprocess.run(command, env=ran, cwd=here / "suite", check=False)
    if options.phase or options.fuzz:
        return done.returncode
    command = [sys.executable, "-m", "ropecheck.conformance.device.checks", "--target", target.name, "--device", device]
    checked = subprocess.run([*command, "--out", str(out)], env=ran, cwd=here / "suite", check=False)
    return worst((done.returncode, checked.returncode))


def run_live(here: Path, target: TargetEntry, options: argparse.Namespace, device: str, out: Path) -> int:
    """A server of one target with a toy model. Returns ropecheck's exit code."""
    command = [sys.executable, "-m", "ropecheck.conformance.cli", "live", "--target", target.name, "--device", device]
    command += ["--out", str(out), "--via", options.via, *(["--long"] if options.live == "long" else [])]
    print(f"run.py: {target.name}, live ({target.kernel or 'kernel package: a stand-in'})", flush=True)
    return subprocess.run(command, env=environment(here, target.stand_ins), cwd=here / "suite", check=False).returncode


def environment(here: Path, stand_ins: tuple[str, ...] = ()) -> dict[str, str]:
    """This process's environment with the bundle's packages before the host's."""
    path = [str(here / "site"), str(here / "suite"), *filter(None, [os.environ.get("PYTHONPATH")])]
    added = {"PYTHONPATH": os.pathsep.join(path), "PYTHONDONTWRITEBYTECODE": ""}
    if stand_ins:
        added["ROPECHECK_STAND_INS"] = ",".join(stand_ins)
    return os.environ | added


def read_manifest(path: Path) -> Manifest:
    """The manifest beside this script. Raises Unusable."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        entries = [TargetEntry(**{**e, "stand_ins": tuple(e.get("stand_ins", ()))}) for e in raw.pop("targets")]
        lists = {name: tuple(value) for name, value in raw.items() if isinstance(value, list)}
        return Manifest(**{**raw, **lists, "targets": tuple(entries)})
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise Unusable(f"{path}: no readable manifest ({error}): unpack the whole archive") from error


def check_python(manifest: Manifest) -> None:
    """Raises Unusable when the packed wheels are for another Python."""
    found = "{}.{}".format(*sys.version_info[:2])
    if found != manifest.python:
        raise Unusable(f"this bundle is for Python {manifest.python}, not {found}: make it with --python {found}")


def probe(here: Path) -> dict[str, Any]:
    """What torch finds here, asked in a process of its own. Raises Unusable without torch."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE], env=environment(here), capture_output=True, text=True, check=False
    )
    try:
        found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise Unusable(f"torch could not be asked for its devices: {last}") from None
    if found.pop("fatal", False):
        raise Unusable(found["problem"])
    return found


def chosen_device(wanted: str, host: dict[str, Any]) -> str:
    """ "cuda" or "cpu". Raises Unusable when cuda is insisted on and cannot be used."""
    why = host.pop("problem", "")
    if wanted == "cpu" or not why:
        return "cpu" if wanted == "cpu" else "cuda"
    if wanted == "cuda":
        raise Unusable(why)
    print(f"run.py: {why}; running on the CPU instead (--device cuda insists)", file=sys.stderr, flush=True)
    return "cpu"


def chosen_targets(names: list[str], manifest: Manifest) -> tuple[TargetEntry, ...]:
    """The targets asked for, all by default. Raises Unusable."""
    known = {target.name: target for target in manifest.targets}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise Unusable(f"no target {unknown[0]!r} in this bundle; it has: {', '.join(known)}")
    return tuple(known[name] for name in names) if names else manifest.targets


def folder_name(target: str) -> str:
    """The folder of a target's reports."""
    return target.replace("==", "-")


def worst(codes: Any) -> int:
    """The exit code of several runs: a failure before what could not run, before nothing checked."""
    for code in (130, 1, 2, 3, 4):
        if code in codes:
            return code
    return next((code for code in codes if code), 0)


if __name__ == "__main__":
    sys.exit(main())

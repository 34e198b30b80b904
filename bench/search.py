"""What a guided search gains over a blind one in equal CPU time: `python -m bench.search --minutes 1,10`.

Three arms on one worker each, side by side in turn: blind; guided by what outcomes show (situations, engine functions,
failures); guided by lines of the engine's position code as well, which slows the worker. All start with nothing. Time
is that of the processors, runner and worker together, so that other work on the machine does not count.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import msgspec

from ropecheck.conformance.corpus.features import features
from ropecheck.conformance.corpus.guided import Guided
from ropecheck.conformance.run.phases import Driver, Follower, Phase
from ropecheck.conformance.run.processor_time import cpu_seconds
from ropecheck.conformance.run.session import Settings, run
from ropecheck.conformance.targets import registry

ARMS = ("blind", "guided", "guided by lines")

COLUMNS = ("scenarios", "situations", "functions", "lines", "findings", "new")


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    arm: str
    seed: int
    seconds: float
    scenarios: int
    situations: int
    functions: int
    lines: int
    findings: int
    """Failures by (rule, mode, signature)."""
    new: int
    """Of those, such that a run would report as new; counted at the end of a search."""


def search(arm: str, seed: int, marks: list[float], target: str) -> list[Sample]:
    """One search; a sample at each mark."""
    samples: list[Sample] = []
    seen: set[str] = set()
    done = 0

    def drive(driver: Driver) -> None:
        nonlocal done
        assert isinstance(driver, Follower)
        made = Guided(seed)
        started = cpu_seconds()
        left = list(marks)
        while left:
            reached = driver.check_batch(made.generation())
            done += len(reached)
            for one in reached:
                seen.update(features(one.outcome, one.lines))
            if arm != "blind":
                made.learn((one.scenario, features(one.outcome, one.lines)) for one in reached)
            while left and cpu_seconds() - started >= left[0]:
                samples.append(_sample(arm, seed, left.pop(0), done, seen))

    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(
            target=registry.find(target, "cpu"),
            out=Path(folder),
            phases=(Phase(name="search", summary="", drive=drive),),
            witnesses=False,
            shrink_seconds=0,
            trace=False,
            complete=False,
            cover=arm == "guided by lines",
        )
        summary = run(settings, ())
        samples[-1] = msgspec.structs.replace(samples[-1], new=len(summary.new))
    return samples


def _sample(arm: str, seed: int, seconds: float, done: int, seen: set[str]) -> Sample:
    kinds = {
        kind: sum(name.startswith(f"{kind} ") for name in seen) for kind in ("situation", "ran", "line", "failure")
    }
    return Sample(
        arm=arm,
        seed=seed,
        seconds=seconds,
        scenarios=done,
        situations=kinds["situation"],
        functions=kinds["ran"],
        lines=kinds["line"],
        findings=kinds["failure"],
        new=0,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", default="1", help="moments to look at, by commas; the last one ends a search")
    parser.add_argument("--seeds", default="1", help="by commas")
    parser.add_argument("--arms", default=",".join(ARMS), help="by commas")
    parser.add_argument("--target", default="sglang")
    parser.add_argument("--json", type=Path, default=None)
    arguments = parser.parse_args()
    marks = [60.0 * float(minutes) for minutes in arguments.minutes.split(",")]
    found: list[Sample] = []
    print(f"{'arm':16} seed  minutes " + " ".join(f"{name:>10}" for name in COLUMNS))
    for seed in map(int, arguments.seeds.split(",")):
        for arm in arguments.arms.split(","):
            for one in search(arm, seed, marks, arguments.target):
                found.append(one)
                figures = " ".join(f"{getattr(one, name):10}" for name in COLUMNS)
                print(f"{one.arm:16} {one.seed:4} {one.seconds / 60:8g} {figures}", flush=True)
    if arguments.json is not None:
        arguments.json.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")


if __name__ == "__main__":
    main()

"""Throughput by cores: `python -m bench.curve --counts 1,2,4,8,16 [--by control,places,workers,campaign] [--json ..]`.

Ways to use many cores. "workers": one runner (`ropecheck run --workers N`), which plans and judges for all of them.
"places": N processes of a runner and one worker each, as shards are. "campaign": the blocks of a campaign on an
embedded Ray of N places. "control": N processes that only count, which is what the machine itself gives. Everything
of a measurement, runners too, is confined to N cores, so that a straight line is N times the first figure. The engines'
start is not in it; every run pays it once.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any, Protocol

import msgspec

from ropecheck.conformance.campaign.blocks import CampaignPlan
from ropecheck.conformance.campaign.driver import CampaignDriver, Crew
from ropecheck.conformance.campaign.ledger import Ledger, Point, now
from ropecheck.conformance.campaign.ray_crew import RayCrew
from ropecheck.conformance.campaign.station import identity
from ropecheck.conformance.cli import targets as provisioned
from ropecheck.conformance.cli.options import target_for
from ropecheck.conformance.judge.outcome import Unrun
from ropecheck.conformance.known import failures as known_list
from ropecheck.conformance.plan.planner import Plan, plan
from ropecheck.conformance.run.pool import Pool
from ropecheck.conformance.run.session import verdict_of
from ropecheck.conformance.scenario.operations import Scenario
from ropecheck.conformance.scenarios.exhaustive import sweep

WARM_UP = 50
"""Scenarios of each worker before the clock starts."""


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement."""

    by: str
    count: int
    """Workers, or places; and the cores that everything is confined to."""
    scenarios: int
    forwards: int
    seconds: float
    start_seconds: float
    """Until all workers had imported the engine."""
    runner_share: float
    """CPU seconds of the busiest runner, or of the campaign's driver, per second: near 1, it holds the others up."""

    @property
    def rate(self) -> float:
        return self.forwards / self.seconds


def scenarios(count: int, after: int = 0) -> list[Scenario]:
    """So many small scenarios of every kind, in an order that mixes them, after the first `after`. When there are no
    more, the first ones again."""
    found = list(sweep("small"))
    random.Random(0).shuffle(found)
    return list(islice(cycle(found), after, after + count))


def drive(pool: Pool[Plan], some: Sequence[Scenario]) -> tuple[int, float, float]:
    """(forwards, seconds, CPU seconds here) of these scenarios, planned and judged. Raises SystemExit when one could
    not run: a rate of what did not run is none."""
    began, cpu, forwards = time.monotonic(), time.process_time(), 0
    for planned, answer in pool.answers(map(plan, some)):
        if isinstance(answer, Unrun):
            raise SystemExit(f"{planned.scenario.name}: {answer.stage}: {answer.message}")
        forwards += verdict_of(planned, answer).forwards
    return forwards, time.monotonic() - began, time.process_time() - cpu


ALL = sorted(os.sched_getaffinity(0))


def confine(cores: int) -> None:
    """This process and everything that it has started get so many cores."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    for pid in parents:
        ancestor = pid
        while ancestor not in (os.getpid(), 0):
            ancestor = parents.get(ancestor, 0)
        if ancestor:
            for task in Path(f"/proc/{pid}/task").glob("*"):
                with contextlib.suppress(OSError):
                    os.sched_setaffinity(int(task.name), ALL[:cores])


def with_workers(target: str, device: str, counts: Sequence[int], each: int) -> Iterator[Measurement]:
    """One runner, `count` workers."""
    for count in counts:
        began = time.monotonic()
        with (
            tempfile.TemporaryDirectory() as folder,
            Pool[Plan](target_for(target, device), device=device, workers=count, out=Path(folder)) as pool,
        ):
            pool.start()
            ready = time.monotonic() - began
            confine(count)
            drive(pool, scenarios(WARM_UP * count))  # first calls compile and fill caches
            forwards, seconds, cpu = drive(pool, scenarios(each * count, WARM_UP * count))
        confine(len(ALL))
        yield Measurement(
            by="workers",
            count=count,
            scenarios=each * count,
            forwards=forwards,
            seconds=round(seconds, 2),
            start_seconds=round(ready, 1),
            runner_share=round(cpu / seconds, 2),
        )


assert provisioned, "importing it makes provisioned releases known, in every place too"

PATIENCE = 300.0
"""Seconds for all places to be ready; one that fails to start must not hold the others for ever."""

Told = tuple[int, float, float, float]


class Work(Protocol):
    """What a place does again and again."""

    def __call__(self, number: int, begin: Callable[[], bool], tell: Callable[[Told], None]) -> None:
        """Get ready; do it once whenever `begin` returns True, until it raises BrokenBarrierError."""


def place(work: Work, number: int, counts: Sequence[int], ready: Barrier, told: multiprocessing.Queue[Told]) -> None:
    """A process of `together`."""
    rounds = iter(counts)

    def begin() -> bool:
        count = next(rounds, 0)
        ready.wait(PATIENCE)  # everybody waits for every round, whoever works in it
        return number < count

    work(number, begin, told.put)


def together(by: str, work: Work, counts: Sequence[int], scenarios: int) -> Iterator[Measurement]:
    """Processes that do the same, started once: in each round the first so many of them. scenarios: of each."""
    context = multiprocessing.get_context("spawn")
    most = max(counts)
    ready, told = context.Barrier(most + 1), context.Queue()
    began = time.monotonic()
    places = [context.Process(target=place, args=(work, number, tuple(counts), ready, told)) for number in range(most)]
    for one in places:
        one.start()
    try:
        for count in counts:
            while ready.n_waiting < most and time.monotonic() - began < PATIENCE:
                time.sleep(0.1)
            confine(count)
            ready.wait(PATIENCE)
            start = time.monotonic()
            found = [told.get(timeout=PATIENCE) for _ in range(count)]
            yield Measurement(
                by=by,
                count=count,
                scenarios=scenarios * count,
                forwards=sum(forwards for forwards, _, _, _ in found),
                seconds=round(max(end for _, end, _, _ in found) - start, 2),
                start_seconds=round(start - began, 1),
                runner_share=round(max(cpu / seconds for _, _, seconds, cpu in found), 2),
            )
            confine(len(ALL))
    finally:
        for one in places:
            one.terminate()
            one.join()


@dataclass(frozen=True)
class Place:
    """A runner with one worker."""

    target: str
    device: str
    each: int

    def __call__(self, number: int, begin: Callable[[], bool], tell: Callable[[Told], None]) -> None:
        """Scenarios of its own in every round."""
        with (
            tempfile.TemporaryDirectory() as folder,
            Pool[Plan](target_for(self.target, self.device), device=self.device, workers=1, out=Path(folder)) as pool,
        ):
            pool.start()
            some = scenarios(self.each, number * self.each)
            drive(pool, some)  # all rounds find what is kept of their scenarios, the first too
            while True:
                if begin():
                    forwards, seconds, cpu = drive(pool, some)
                    tell((forwards, time.monotonic(), seconds, cpu))


@dataclass(frozen=True)
class Control:
    """A process that only counts; a thousand steps stand for a forward."""

    each: int

    def __call__(self, number: int, begin: Callable[[], bool], tell: Callable[[Told], None]) -> None:
        """The same sum in every round."""
        while True:
            if begin():
                began, cpu, steps = time.monotonic(), time.process_time(), self.each * 20_000
                sum(step & number for step in range(steps))
                now = time.monotonic()
                tell((steps // 1000, now, now - began, time.process_time() - cpu))


def with_places(target: str, device: str, counts: Sequence[int], each: int) -> Iterator[Measurement]:
    """`count` runners with one worker each."""
    return together("places", Place(target, device, each), counts, each)


def with_control(target: str, device: str, counts: Sequence[int], each: int) -> Iterator[Measurement]:
    """`count` processes that only count."""
    return together("control", Control(each), counts, 0)


WINDOW = 20.0
"""Seconds of a campaign that are measured, from a block's end to another's."""


@dataclass
class FirstPlaces:
    """The first so many places of a crew."""

    crew: Crew
    count: int

    def places(self) -> list[int]:
        """Theirs."""
        return self.crew.places()[: self.count]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.crew, name)


def with_campaign(target: str, device: str, counts: Sequence[int], each: int) -> Iterator[Measurement]:
    """A campaign on so many places for a while, while all of them are busy; a first one, not counted, warms them up."""
    started = time.monotonic()
    most = max(counts)
    crew = RayCrew("", device=device, most=most, known=known_list.FOLDER, time_limit=60.0)
    try:
        while len(crew.places()) < most and time.monotonic() - started < PATIENCE:
            crew.wait(1.0)
        began = time.monotonic()
        for turn, count in enumerate((most, *counts)):
            confine(count)
            drawn = ("hypothesis", "stateful")
            plan = CampaignPlan(targets=(target,), device=device, phases=drawn, shards=1, seed=1000)
            marks: list[tuple[float, float, Point]] = []

            def tell(driver: CampaignDriver, marks: list[tuple[float, float, Point]] = marks) -> None:
                here = now(driver.ledger.state)
                if driver.spent < WINDOW + 5 and here.blocks and (not marks or here.blocks > marks[-1][2].blocks):
                    marks.append((time.monotonic(), time.process_time(), here))

            with tempfile.TemporaryDirectory() as folder:
                ledger = Ledger(Path(folder), plan, identity())
                try:
                    first = FirstPlaces(crew, count)
                    seconds = WINDOW + 5 if turn else 5.0
                    CampaignDriver(plan=plan, ledger=ledger, crew=first, seconds=seconds, tell=tell).run()
                finally:
                    ledger.close()
            confine(len(ALL))
            if turn and len(marks) > 1:
                (at, cpu, before), (last, cpu_then, after) = marks[0], marks[-1]
                yield Measurement(
                    by="campaign",
                    count=count,
                    scenarios=after.scenarios - before.scenarios,
                    forwards=after.forwards - before.forwards,
                    seconds=round(last - at, 2),
                    start_seconds=round(began - started, 1),
                    runner_share=round((cpu_then - cpu) / (last - at), 2),
                )
    finally:
        crew.close()


WAYS = {"workers": with_workers, "places": with_places, "campaign": with_campaign, "control": with_control}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--counts", default="1,2", help="numbers of cores, by commas")
    parser.add_argument("--by", default="control,places")
    parser.add_argument("--target", default="sglang")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--each", type=int, default=1000, help="scenarios of each worker")
    parser.add_argument("--json", type=Path, default=None)
    arguments = parser.parse_args()
    points: list[Measurement] = []
    print(f"{len(os.sched_getaffinity(0))} cores, target {arguments.target} on {arguments.device}")
    print("by       cores  scenarios  forwards  start s  seconds  forwards/s  of linear  runner")
    for by in arguments.by.split(","):
        first: Measurement | None = None
        counts = tuple(map(int, arguments.counts.split(",")))
        for point in WAYS[by](arguments.target, arguments.device, counts, arguments.each):
            first = first or point
            points.append(point)
            linear = point.rate / (first.rate * point.count / first.count)
            print(
                f"{by:8} {point.count:5} {point.scenarios:10} {point.forwards:9} {point.start_seconds:8} "
                f"{point.seconds:8} {point.rate:11.0f} {linear:10.2f} {point.runner_share:7}",
                flush=True,
            )
            if arguments.json is not None:
                arguments.json.write_bytes(msgspec.json.format(msgspec.json.encode(points), indent=2) + b"\n")


if __name__ == "__main__":
    main()

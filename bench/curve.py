"""Throughput by number of workers: `python -m bench.curve --counts 1,2,4,8,16 [--by workers,places] [--json FILE]`.

Three ways to use many cores. "workers": one runner (`ropecheck run --workers N`), which plans and judges for all of
them. "places": N processes of a runner and one worker each, as shards are. "campaign", where it is named: the blocks of
a campaign on an embedded Ray of N places. Each worker gets as many scenarios, or blocks, as any other, so that a
straight line is N times the first figure. The engines' start is not in it; every run pays it once.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import tempfile
import time
from collections.abc import Sequence
from itertools import cycle, islice
from multiprocessing.synchronize import Barrier
from pathlib import Path

import msgspec

from ropecheck.conformance.campaign.blocks import CampaignPlan
from ropecheck.conformance.campaign.driver import CampaignDriver
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
    """Workers."""
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


def with_workers(target: str, device: str, count: int, each: int) -> Measurement:
    """One runner, `count` workers."""
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory() as folder,
        Pool[Plan](target_for(target, device), device=device, workers=count, out=Path(folder)) as pool,
    ):
        pool.start()
        ready = time.monotonic() - began
        drive(pool, scenarios(WARM_UP * count))  # first calls compile and fill caches
        forwards, seconds, cpu = drive(pool, scenarios(each * count, WARM_UP * count))
    return Measurement(
        by="workers",
        count=count,
        scenarios=each * count,
        forwards=forwards,
        seconds=round(seconds, 2),
        start_seconds=round(ready, 1),
        runner_share=round(cpu / seconds, 2),
    )


assert provisioned, "importing it makes provisioned releases known, in every place too"

BLOCK = 100
"""Scenarios of a campaign's block, roughly."""

PATIENCE = 300.0
"""Seconds for all places to be ready; one that fails to start must not hold the others for ever."""

Told = tuple[int, float, float, float]


def place(target: str, device: str, number: int, each: int, ready: Barrier, told: multiprocessing.Queue[Told]) -> None:
    """A runner with one worker, in a process of its own."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Pool[Plan](target_for(target, device), device=device, workers=1, out=Path(folder)) as pool,
    ):
        pool.start()
        drive(pool, scenarios(WARM_UP))
        some = scenarios(each, WARM_UP + number * each)
        ready.wait(PATIENCE)
        forwards, seconds, cpu = drive(pool, some)
        told.put((forwards, time.monotonic(), seconds, cpu))


def with_places(target: str, device: str, count: int, each: int) -> Measurement:
    """`count` runners with one worker each."""
    context = multiprocessing.get_context("spawn")
    ready, told = context.Barrier(count + 1), context.Queue()
    began = time.monotonic()
    places = [
        context.Process(target=place, args=(target, device, number, each, ready, told)) for number in range(count)
    ]
    for one in places:
        one.start()
    ready.wait(PATIENCE)
    start = time.monotonic()
    found = [told.get() for _ in places]
    for one in places:
        one.join()
    return Measurement(
        by="places",
        count=count,
        scenarios=each * count,
        forwards=sum(forwards for forwards, _, _, _ in found),
        seconds=round(max(end for _, end, _, _ in found) - start, 2),
        start_seconds=round(start - began, 1),
        runner_share=round(max(cpu / seconds for _, _, seconds, cpu in found), 2),
    )


def with_campaign(target: str, device: str, count: int, each: int) -> Measurement:
    """A campaign on so many places, of `each` scenarios or so a place. Two blocks a place are run first and not
    counted."""
    warm, blocks = 2 * count, max(each // BLOCK, 1) * count
    drawn = ("hypothesis", "stateful")
    plan = CampaignPlan(targets=(target,), device=device, phases=drawn, shards=1, rounds=warm + blocks - 1, seed=1000)
    marks: list[tuple[float, float, Point]] = []

    def tell(driver: CampaignDriver) -> None:
        here = now(driver.ledger.state)
        if here.blocks >= warm and (not marks or here.blocks > marks[-1][2].blocks):
            marks.append((time.monotonic(), time.process_time(), here))

    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger(Path(folder), plan, identity())
        crew = RayCrew("", device=device, most=count, known=known_list.FOLDER, time_limit=60.0)
        try:
            CampaignDriver(plan=plan, ledger=ledger, crew=crew, seconds=1e6, tell=tell).run()
        finally:
            ledger.close()
            crew.close()
    (first, cpu, before), (last, cpu_then, after) = marks[0], marks[-1]
    return Measurement(
        by="campaign",
        count=count,
        scenarios=after.scenarios - before.scenarios,
        forwards=after.forwards - before.forwards,
        seconds=round(last - first, 2),
        start_seconds=round(first - started, 1),
        runner_share=round((cpu_then - cpu) / (last - first), 2),
    )


WAYS = {"workers": with_workers, "places": with_places, "campaign": with_campaign}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--counts", default="1,2", help="numbers of workers, by commas")
    parser.add_argument("--by", default="workers,places")
    parser.add_argument("--target", default="sglang")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--each", type=int, default=1000, help="scenarios of each worker")
    parser.add_argument("--json", type=Path, default=None)
    arguments = parser.parse_args()
    points: list[Measurement] = []
    print(f"{len(os.sched_getaffinity(0))} cores, target {arguments.target} on {arguments.device}")
    print("by       count  scenarios  forwards  start s  seconds  forwards/s  of linear  runner")
    for by in arguments.by.split(","):
        first: Measurement | None = None
        for count in map(int, arguments.counts.split(",")):
            point = WAYS[by](arguments.target, arguments.device, count, arguments.each)
            first = first or point
            points.append(point)
            linear = point.rate / (first.rate * count / first.count)
            print(
                f"{by:8} {count:5} {point.scenarios:10} {point.forwards:9} {point.start_seconds:8} {point.seconds:8} "
                f"{point.rate:11.0f} {linear:10.2f} {point.runner_share:7}",
                flush=True,
            )
            if arguments.json is not None:
                arguments.json.write_bytes(msgspec.json.format(msgspec.json.encode(points), indent=2) + b"\n")


if __name__ == "__main__":
    main()

"""Throughput of a campaign by number of workers: `python -m bench.campaign_speed --workers 1,2,4,8,16`.

The same blocks on an embedded Ray of 1, 2, .. places: seconds from the first place that is ready to the last block, and
forwards per second. The engines' start is told apart; a campaign of hours pays it once. --json FILE keeps the curve.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

import msgspec

from ropecheck.conformance.campaign.blocks import CampaignPlan
from ropecheck.conformance.campaign.driver import CampaignDriver
from ropecheck.conformance.campaign.ledger import Ledger, now
from ropecheck.conformance.campaign.ray_crew import RayCrew
from ropecheck.conformance.campaign.station import identity
from ropecheck.conformance.known import failures as known_list


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    workers: int
    blocks: int
    scenarios: int
    forwards: int
    start_seconds: float
    """Until the first block was done less what a block takes: Ray, actors, engines."""
    seconds: float
    """From then to the last block."""
    forwards_per_second: float


def measure(target: str, device: str, workers: int, blocks: int) -> Measured:
    """One campaign of so many blocks. Warm-up blocks, two per place, are run first and not counted."""
    warm = 2 * workers
    plan = CampaignPlan(
        targets=(target,),
        device=device,
        phases=("hypothesis", "stateful"),
        shards=1,
        rounds=warm + blocks - 1,
        seed=1000,
    )
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger(Path(folder), plan, identity())
        crew = RayCrew("", device=device, most=workers, known=known_list.FOLDER, time_limit=60.0)
        marks: list[tuple[float, int, int, int]] = []

        def tell(driver: CampaignDriver) -> None:
            here = now(driver.ledger.state)
            if here.blocks >= warm and (not marks or here.blocks > marks[-1][1]):
                marks.append((time.monotonic(), here.blocks, here.scenarios, here.forwards))

        started = time.monotonic()
        try:
            CampaignDriver(plan=plan, ledger=ledger, crew=crew, seconds=1e6, tell=tell).run()
        finally:
            ledger.close()
            crew.close()
    (first, *_), (last, *_) = marks[0], marks[-1]
    done = [b - a for a, b in zip(marks[0][1:], marks[-1][1:], strict=True)]
    return Measured(
        workers=workers,
        blocks=done[0],
        scenarios=done[1],
        forwards=done[2],
        start_seconds=round(first - started, 1),
        seconds=round(last - first, 2),
        forwards_per_second=round(done[2] / (last - first), 1),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", default="1,2", help="numbers of places, by commas")
    parser.add_argument("--target", default="sglang")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--blocks", type=int, default=12, help="measured blocks per place")
    parser.add_argument("--json", type=Path, default=None)
    arguments = parser.parse_args()
    curve = []
    print(f"{os.cpu_count()} cores, target {arguments.target} on {arguments.device}")
    print("workers  blocks  scenarios  forwards  start s  seconds  forwards/s  of linear")
    for workers in map(int, arguments.workers.split(",")):
        one = measure(arguments.target, arguments.device, workers, arguments.blocks * workers)
        curve.append(one)
        linear = one.forwards_per_second / (curve[0].forwards_per_second * workers / curve[0].workers)
        print(
            f"{one.workers:7} {one.blocks:7} {one.scenarios:10} {one.forwards:9} {one.start_seconds:8} "
            f"{one.seconds:8} {one.forwards_per_second:11} {linear:10.2f}",
            flush=True,
        )
    if arguments.json is not None:
        arguments.json.write_bytes(msgspec.json.format(msgspec.json.encode(curve), indent=2) + b"\n")


if __name__ == "__main__":
    main()

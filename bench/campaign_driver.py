"""Time and memory of a campaign's driver for up to 10^6 scenarios: `python -m bench.campaign_driver`.

The workers are simulated: each block answers at once with the report of one real block, under a seed of its own. The
driver, its ledger on disk and the merging are the real ones. One process per size, so that memory is that size's own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections import deque
from pathlib import Path

import msgspec

from bench.run_speed import peak_kib
from ropecheck.conformance.campaign.blocks import Block, CampaignPlan, blocks
from ropecheck.conformance.campaign.driver import CampaignDriver, LostBlock
from ropecheck.conformance.campaign.ledger import Ledger, now
from ropecheck.conformance.campaign.station import BlockDone, Station, identity
from ropecheck.conformance.report.part import Covers

SIZES = (10_000, 100_000, 1_000_000)
"""Scenarios."""
PLACES = 256

TARGET = "reference"


class Simulated:
    """A crew of many places whose blocks all come to what one block came to."""

    def __init__(self, done: BlockDone) -> None:
        self._done = done
        self._queues: dict[int, int] = dict.fromkeys(range(PLACES), 0)
        self._waiting: deque[tuple[int, Block]] = deque()

    def places(self) -> list[int]:
        return list(self._queues)

    def held(self, place: int) -> int:
        return self._queues[place]

    def give(self, place: int, block: Block) -> None:
        self._queues[place] += 1
        self._waiting.append((place, block))

    def wait(self, seconds: float) -> list[BlockDone | LostBlock]:
        if not self._waiting:
            return []
        place, block = self._waiting.popleft()
        self._queues[place] -= 1
        report = self._done.report
        covers = (_of(report.part.covers[0], block),)
        part = msgspec.structs.replace(report.part, covers=covers)
        report = msgspec.structs.replace(report, seed=block.seed, part=part)
        return [BlockDone(target=block.target, number=block.number, report=report, files=self._done.files)]

    def close(self) -> None:
        pass


def _of(covers: Covers, block: Block) -> Covers:
    return msgspec.structs.replace(covers, seeds=str(block.seed))


def drive(scenarios: int) -> None:
    """Print what a campaign of so many scenarios costs its driver."""
    plan = CampaignPlan(targets=(TARGET,), phases=("hypothesis", "stateful"), shards=1, rounds=None)
    station = Station()
    done = station.run(next(blocks(plan, TARGET)))
    station.close()
    each = done.report.totals.scenarios
    plan = msgspec.structs.replace(plan, rounds=scenarios // each)
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger(Path(folder), plan, identity())
        started, cpu = time.monotonic(), time.process_time()
        CampaignDriver(plan=plan, ledger=ledger, crew=Simulated(done), seconds=1e9).run()
        wall, cpu = time.monotonic() - started, time.process_time() - cpu
        ledger.close()
        here = now(ledger.state)
        size = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
    print(
        f"{here.scenarios:9} {here.blocks:7} {wall:7.1f} {cpu:7.1f} {1e6 * cpu / here.scenarios:12.1f} "
        f"{peak_kib(os.getpid()) / 1024:9.0f} {size / 1024:8.0f}",
        flush=True,
    )


def main() -> None:
    if len(sys.argv) > 1:
        drive(int(sys.argv[1]))
        return
    print(
        f"scenarios  blocks  wall s   CPU s  us/scenario  peak MiB  disk KiB   ({PLACES} simulated places)", flush=True
    )
    for size in SIZES:
        subprocess.run([sys.executable, "-m", "bench.campaign_driver", str(size)], check=True)


if __name__ == "__main__":
    main()

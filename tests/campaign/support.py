"""Campaigns in this process, and what to compare them with."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from ropecheck.conformance.campaign.blocks import Block, CampaignPlan
from ropecheck.conformance.campaign.driver import CampaignDriver, LostBlock
from ropecheck.conformance.campaign.ledger import Ledger
from ropecheck.conformance.campaign.station import BlockDone, Station, identity
from ropecheck.conformance.report.json_file import Report
from ropecheck.conformance.results.read import read
from tests.campaign.here import Here
from tests.campaign.planted import FAULTY
from tests.results.support import timeless

__all__ = ["Station", "identity", "timeless"]

PLAN = CampaignPlan(targets=(FAULTY,), phases=("stateful",), seed=4, shards=4, rounds=3)
BLOCKS = 7
LONG = msgspec.structs.replace(PLAN, rounds=5)
"""PLAN and two blocks more."""


@dataclass
class Seen(Here):
    """The crew of this process; what each block came to stays."""

    station: Station
    done: dict[int, BlockDone] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__(self.station)

    def wait(self, seconds: float) -> list[BlockDone | LostBlock]:
        found = super().wait(seconds)
        self.done.update((one.number, one) for one in found if isinstance(one, BlockDone))
        return found


def merged(out: Path, target: str = FAULTY) -> Report:
    """What the campaign in `out` has of a target."""
    return read(out / target)


def run_here(out: Path, plan: CampaignPlan, crew: Here | None = None) -> Report:
    """All blocks of a plan, one after another in this process: what every campaign must come to."""
    crew = crew or Here(Station())
    ledger = Ledger(out, plan, identity())
    try:
        CampaignDriver(plan=plan, ledger=ledger, crew=crew, seconds=600).run()
    finally:
        ledger.close()
        crew.close()
    return merged(out, plan.targets[0])


@dataclass
class Scripted:
    """A crew that answers blocks from a store, out of order, loses places by a script, and dies when it is told to."""

    answers: dict[int, BlockDone]
    size: int = 2
    lose: dict[int, str] = field(default_factory=dict)
    """How many-th wait loses its block: "once" (with its place), "bad" (fatal)."""
    die_at: int = -1
    queues: dict[int, deque[Block]] = field(default_factory=dict)
    waits: int = 0
    most_held: int = 0

    def places(self) -> list[int]:
        for place in range(self.size):
            self.queues.setdefault(place, deque())
        return sorted(self.queues)

    def held(self, place: int) -> int:
        return len(self.queues.get(place, ()))

    def give(self, place: int, block: Block) -> None:
        self.queues[place].append(block)
        self.most_held = max(self.most_held, sum(map(len, self.queues.values())))

    def wait(self, seconds: float) -> list[BlockDone | LostBlock]:
        self.waits += 1
        if self.waits == self.die_at:
            raise KeyboardInterrupt
        busy = [place for place in reversed(self.places()) if self.queues[place]]
        if not busy:
            time.sleep(0.01)
            return []
        block = self.queues[busy[0]].popleft()
        how = self.lose.get(self.waits)
        if how == "bad":
            return [LostBlock(block, "bad input", fatal=True)]
        if how:
            return [LostBlock(block, "the node is gone", gone=True)]
        return [self.answers[block.number]]

    def close(self) -> None:
        pass

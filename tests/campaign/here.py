"""A crew of one place, in this process: blocks one after another, without Ray."""

from __future__ import annotations

from collections import deque

from ropecheck.conformance.campaign.blocks import Block
from ropecheck.conformance.campaign.driver import LostBlock
from ropecheck.conformance.campaign.station import BlockDone, Station
from ropecheck.conformance.errors import GaveUp, UsageError


class Here:
    """The crew; as driver.Crew says."""

    def __init__(self, station: Station) -> None:
        self._station = station
        self._queue: deque[Block] = deque()

    def places(self) -> list[int]:
        return [0]

    def held(self, place: int) -> int:
        return len(self._queue)

    def give(self, place: int, block: Block) -> None:
        self._queue.append(block)

    def wait(self, seconds: float) -> list[BlockDone | LostBlock]:
        if not self._queue:
            return []
        block = self._queue.popleft()
        try:
            return [self._station.run(block)]
        except (GaveUp, UsageError) as error:
            return [LostBlock(block, str(error), fatal=isinstance(error, UsageError))]

    def close(self) -> None:
        self._station.close()

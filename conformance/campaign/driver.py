"""The driver: gives blocks to whoever is free, takes in what they found, and gives lost blocks out again.

It holds no more than two blocks per place at a time and one report per target, however long the campaign is.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from ropecheck.conformance.campaign.blocks import Block, CampaignPlan, blocks, shrinking
from ropecheck.conformance.campaign.ledger import Ledger
from ropecheck.conformance.campaign.station import BlockDone
from ropecheck.conformance.errors import GaveUp

DEPTH = 2
"""Blocks of one place: the one that it runs, and the next."""

TURN = 16
"""Blocks of one target in a row that a place runs before it asks which target has had least: to change costs the
start of an engine."""

TRIES = 3
"""How often a block is tried that cannot be run."""

LOSSES = 12
"""How often a block is tried whose place is lost with it: it may be the block, or machines that come and go."""

CHECKPOINT_SECONDS = 10.0

SHRINK_PATIENCE = 300.0
"""Seconds after which a campaign ends with its witnesses as they were found."""


@dataclass(frozen=True, slots=True)
class LostBlock:
    """A block that no result will come of. fatal: of bad input, which another try cannot help. gone: its place is."""

    block: Block
    why: str
    fatal: bool = False
    gone: bool = False


class Crew(Protocol):
    """Places that run blocks, by number."""

    def places(self) -> list[int]:
        """Those that can be given blocks now."""

    def give(self, place: int, block: Block) -> None: ...

    def wait(self, seconds: float) -> list[BlockDone | LostBlock]:
        """What has ended; returns when something has, or after so many seconds."""

    def held(self, place: int) -> int:
        """Blocks that the place has now."""

    def close(self) -> None: ...


@dataclass(slots=True)
class _Turn:
    target: str = ""
    left: int = 0


@dataclass(slots=True)
class CampaignDriver:
    """One driver's part of a campaign."""

    plan: CampaignPlan
    ledger: Ledger
    crew: Crew
    seconds: float
    """That the whole campaign may take, all drivers together."""
    tell: Callable[["CampaignDriver"], None] = lambda driver: None
    """Called after everything that is taken in, and at least once a second."""
    warn: Callable[[str], None] = lambda message: None
    patience: float = 600.0
    """Seconds without any place before the campaign ends."""
    lost: int = 0
    given: int = 0
    _sources: dict[str, Iterator[Block]] = field(default_factory=dict)
    _again: deque[Block] = field(default_factory=deque)
    _tries: dict[tuple[str, int], int] = field(default_factory=dict)
    _turns: dict[int, _Turn] = field(default_factory=dict)
    _handed: dict[str, int] = field(default_factory=dict)
    _started: float = field(default_factory=time.monotonic)
    _before: float = 0.0

    def run(self) -> None:
        """Until every block is done or the time is up. Raises GaveUp when nobody is left to run blocks."""
        self._before = self.ledger.state.seconds
        self._sources = {target: blocks(self.plan, target) for target in self.plan.targets}
        self._handed = dict.fromkeys(self.plan.targets, 0)
        saved = alone = time.monotonic()
        while True:
            places = self.crew.places()
            for place in places:
                self._fill(place)
            busy = any(self.crew.held(place) for place in places)
            if not busy and not self._again and (self._time_is_up or not self._sources):
                return
            for ended in self.crew.wait(1.0):
                self._take(ended)
            now = time.monotonic()
            alone = now if places else alone
            if now - alone > self.patience:
                raise GaveUp(f"no place ran blocks for {self.patience:.0f} s")
            if now - saved > CHECKPOINT_SECONDS:
                self.ledger.checkpoint(self.spent)
                saved = now
            self.tell(self)

    def shrink(self) -> None:
        """At the end: make the witnesses of new findings smaller."""
        asked = [
            shrinking(self.plan, target, given)
            for target in self.plan.targets
            if (given := self.ledger.unshrunk(target))
        ]
        deadline = time.monotonic() + SHRINK_PATIENCE
        waiting = len(asked)
        while waiting and time.monotonic() < deadline:
            for place in self.crew.places():
                if asked and not self.crew.held(place):
                    self.crew.give(place, asked.pop())
            for ended in self.crew.wait(1.0):
                waiting -= 1
                if isinstance(ended, BlockDone):
                    self.ledger.improve(ended)
                else:
                    self.warn(f"witnesses of {ended.block.target} stay as they were found: {ended.why}")

    @property
    def spent(self) -> float:
        """Seconds of all drivers so far."""
        return self._before + time.monotonic() - self._started

    @property
    def _time_is_up(self) -> bool:
        return self.spent >= self.seconds

    def _fill(self, place: int) -> None:
        while self.crew.held(place) < DEPTH:
            block = self._next(self._turns.setdefault(place, _Turn()))
            if block is None:
                return
            self.given += 1
            if "guided" in block.phases:
                start, seen = self.ledger.start(block.target)
                block = msgspec.structs.replace(block, start=start, seen=seen)
            self.crew.give(place, block)

    def _next(self, turn: _Turn) -> Block | None:
        """A lost block first, of the target that the place serves if there is one; then the next one of its target."""
        if self._again:
            mine = next((block for block in self._again if block.target == turn.target), self._again[0])
            self._again.remove(mine)
            return mine
        while self._sources and not self._time_is_up:
            if turn.left <= 0 or turn.target not in self._sources:
                turn.target = min(self._sources, key=lambda target: self._handed[target])
                turn.left = TURN
            turn.left -= 1
            block = next(self._sources[turn.target], None)
            if block is None:
                del self._sources[turn.target]
            elif not self.ledger.is_done(block.target, block.number):
                self._handed[block.target] += 1
                return block
        return None

    def _take(self, ended: BlockDone | LostBlock) -> None:
        if isinstance(ended, BlockDone):
            self.ledger.record(ended, self.spent)
            self._tries.pop((ended.target, ended.number), None)
            return
        self.lost += 1
        key = (ended.block.target, ended.block.number)
        self._tries[key] = self._tries.get(key, 0) + 1
        if ended.fatal or self._tries[key] >= (LOSSES if ended.gone else TRIES):
            self.warn(f"{ended.block.name} is given up: {ended.why}")
            self.ledger.give_up(*key, ended.why, self.spent)
        else:
            self.warn(f"{ended.block.name} is run again: {ended.why}")
            self._again.append(ended.block)

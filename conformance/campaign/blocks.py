"""A campaign as a sequence of blocks: first a whole run of every target in shards, then one seed after another.

Each block is what one `ropecheck run` does, so that the merged report of the blocks is the report of those runs. The
sequence follows from the plan alone: a campaign that is resumed goes on where it was. What a guided block grows is put
in when it is given out.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ropecheck.conformance.errors import UsageError
from ropecheck.conformance.run import phases
from ropecheck.conformance.targets import registry

GENERATIONS = 8
"""Of a block of guided search."""

SEARCHED = ("hypothesis", "stateful", "families")
"""Phases that another seed makes new scenarios for."""

DRAWN = ("drawn-scripts",)
"""Likewise for `scheduler`, whose chosen and small scripts are the same for every seed: a block of its own, since each
server starts once a block."""


class CampaignPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a campaign is about."""

    targets: tuple[str, ...]
    device: str = "cpu"
    seed: int = 0
    bound: str | None = None
    shards: int = 16
    """Blocks of the first, whole run of each target."""
    phases: tuple[str, ...] = ()
    """Of that run; () for the device's default ones."""
    corpus: str | None = None
    """Folder of kept scenarios that every place can read: the first run has them too, guided searches start there."""
    guided: bool = False
    """Blocks after the first run follow what they reach."""
    cover: bool = False
    """Count the lines of the engine's position code that ran; workers are slower then."""
    rounds: int | None = None
    """Seeds after the first; None: until the time is up."""


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """One task: a shard of a run."""

    target: str
    number: int
    """Of this target, from 0."""
    device: str
    seed: int
    phases: tuple[str, ...] = ()
    bound: str | None = None
    shard: tuple[int, int] = (1, 1)
    witnesses: bool = False
    complete: bool = False
    corpus: str | None = None
    cover: bool = False
    start: tuple[bytes, ...] = ()
    """Scenarios that a guided search starts from, beside those of the corpus: what the campaign kept until now."""
    seen: tuple[str, ...] = ()
    """What the campaign reached until now: a guided search keeps only what reaches more."""
    given: tuple[bytes, ...] = ()
    """Stored scenarios and scripts to make smaller, instead of phases: of the findings that the campaign ends with."""

    @property
    def name(self) -> str:
        return f"{self.target} #{self.number} (seed {self.seed}, shard {self.shard[0]}/{self.shard[1]})"


def shrinking(plan: CampaignPlan, target: str, given: tuple[bytes, ...]) -> Block:
    """What a campaign ends with: its new findings' witnesses made smaller. It counts nothing."""
    return Block(target=target, number=-1, device=plan.device, seed=plan.seed, given=given)


def check(plan: CampaignPlan) -> None:
    """Raises UsageError for a plan that cannot be carried out."""
    if not plan.targets:
        raise UsageError("--targets: name at least one")
    if len(set(plan.targets)) != len(plan.targets):
        raise UsageError("--targets: one is there twice")
    if plan.shards < 1:
        raise UsageError(f"--shards {plan.shards}: must be 1 or more")
    if plan.rounds is not None and plan.rounds < 0:
        raise UsageError(f"--rounds {plan.rounds}: must be 0 or more")
    for name in plan.targets:
        found = phases.select(plan.phases, registry.find(name, plan.device), plan.device)
        for phase in found:
            phase.accepts(phases.Options(seed=plan.seed, bound=plan.bound))
    if plan.corpus is not None:
        (kept,) = phases.select(["corpus"])
        kept.accepts(phases.Options(corpus=Path(plan.corpus)))


def blocks(plan: CampaignPlan, target: str) -> Iterator[Block]:
    """The blocks of one target, in the order in which they are given out."""
    first = phases.select(plan.phases, registry.find(target, plan.device), plan.device)
    names = tuple(phase.name for phase in first)
    for shard in range(1, plan.shards + 1):
        yield Block(
            target=target,
            number=shard - 1,
            device=plan.device,
            phases=("corpus", *names) if plan.corpus else names,
            seed=plan.seed,
            bound=plan.bound,
            shard=(shard, plan.shards),
            witnesses=True,
            complete=not plan.phases,
            corpus=plan.corpus,
            cover=plan.cover,
        )
    searched = tuple(name for name in names if name in SEARCHED)
    if plan.guided and set(searched) & {"hypothesis", "stateful"}:
        searched = ("guided", *(name for name in searched if name == "families"))
    kinds = [kind for kind in (searched, DRAWN if "scheduler" in names else ()) if kind]
    number = plan.shards
    if not kinds:
        return
    for step in itertools.count(1) if plan.rounds is None else range(1, plan.rounds + 1):
        for kind in kinds:
            yield Block(
                target=target,
                number=number,
                device=plan.device,
                seed=plan.seed + step,
                phases=kind,
                corpus=plan.corpus,
                cover=plan.cover,
            )
            number += 1

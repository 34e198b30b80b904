"""What a report needs besides its counts so that reports add up."""

import datetime

import msgspec

from ropecheck.conformance.report import ranges
from ropecheck.conformance.run.baseline import Baseline
from ropecheck.conformance.run.counts import EntryCount, entry_counts
from ropecheck.conformance.run.events import Summary


class Covers(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Scenarios that a report speaks of: some shards of one seed, or the whole of some seeds."""

    phases: tuple[str, ...]
    bound: str | None
    complete: bool
    """Every default phase: what was never reached is worth a warning once all shards are there."""
    seeds: str
    """As report.ranges writes it; one seed unless `of` is 1."""
    shards: str
    of: int
    """`shards` of so many; "1" of 1 is everything."""
    certificate: str | None
    """Of the exhaustive scope, true of the whole once all shards are there that say it."""

    @property
    def whole(self) -> bool:
        return self.of == 1


class KnownState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What became of a known failure's witness: see known.failures.Check."""

    name: str
    state: str
    message: str


class NotOfferedCount(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    mode: str
    reason: str
    scenarios: int


class Unran(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A scenario that could not run; `file` as a witness's."""

    id: str
    name: str
    stage: str
    message: str
    file: str


class RunPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    covers: tuple[Covers, ...]
    ended: str
    """UTC, ISO 8601."""
    interrupted: bool
    gave_up: str
    """Why it ended early; "" when it did not."""
    known: tuple[KnownState, ...]
    differences: dict[str, int]
    """Known difference of prompt tables -> failures that it explains."""
    entries: tuple[EntryCount, ...] = ()
    lines: dict[str, str]
    """Engine file -> lines that ran, as report.ranges writes them; {} where the worker was not asked to tell."""
    not_offered: tuple[NotOfferedCount, ...]
    unrun: tuple[Unran, ...]
    """Some of them; the totals count all."""
    unreached: dict[str, tuple[str, ...]]
    """"rules never checked" and the like -> what a complete run would have reached."""
    lost: tuple[str, ...] = ()
    """Capabilities that this version is known to have and that were not found in it."""
    reach: Baseline | None = None
    """What was reached, phase by phase; None where a baseline does not speak of such a run."""
    below: tuple[str, ...] = ()
    """What the target's baseline reaches and this, where every shard is there, did not."""


def build(summary: Summary) -> RunPart:
    """The part that a run is."""
    header, scope = summary.header, summary.scope
    index, _, of = header.shard.partition("/")
    covers = Covers(
        phases=header.phases,
        bound=scope.bound,
        complete=header.complete,
        seeds=str(header.seed),
        shards=index,
        of=int(of),
        certificate=scope.of_shard,
    )
    return RunPart(
        covers=(covers,),
        ended=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        interrupted=summary.interrupted,
        gave_up=summary.gave_up,
        known=tuple(
            sorted(
                (KnownState(name=one.known.name, state=one.state, message=one.message) for one in summary.known),
                key=lambda known: known.name,
            )
        ),
        differences=dict(sorted(summary.differences.items())),
        entries=entry_counts(summary),
        lines={file: ranges.text_of(lines) for file, lines in sorted(summary.lines.items())},
        not_offered=tuple(
            NotOfferedCount(mode=mode, reason=reason, scenarios=count)
            for (mode, reason), count in sorted(summary.not_offered.items())
        ),
        unrun=tuple(
            Unran(id=scenario.id, name=scenario.name, stage=why.stage, message=why.message, file=file)
            for scenario, why, file in sorted(summary.unrun, key=lambda one: one[0].id)
        ),
        unreached={what: tuple(sorted(names)) for what, names in summary.unreached.items()},
        lost=header.hello.lost,
        reach=summary.reach,
        below=summary.below,
    )

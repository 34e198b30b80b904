"""A place where blocks are run: warm workers of one target, and what a block comes to."""

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import msgspec

from ropecheck.conformance.campaign.blocks import GENERATIONS, Block
from ropecheck.conformance.corpus.store import Corpus
from ropecheck.conformance.errors import GaveUp
from ropecheck.conformance.known import failures as known_list
from ropecheck.conformance.report.json_file import Report, build
from ropecheck.conformance.results.gather import files_of
from ropecheck.conformance.run import phases
from ropecheck.conformance.run.phases import Options
from ropecheck.conformance.run.pool import Pool
from ropecheck.conformance.run.processor_time import cpu_seconds
from ropecheck.conformance.run.reaper import reaper
from ropecheck.conformance.run.seat import RunLimits
from ropecheck.conformance.run.session import Settings, pool_of, run
from ropecheck.conformance.scenario.operations import Scenario
from ropecheck.conformance.store.files import stored_of, subject_of
from ropecheck.conformance.subject import AnyPlan
from ropecheck.conformance.targets import registry
from ropecheck.conformance.version import spec_hash, suite_version

SHRINK_SECONDS = 60.0
"""For the witnesses of a campaign's new findings, at its end."""


class CorpusScenario(msgspec.Struct, frozen=True):
    """A scenario for the corpus, and what it reached of an engine."""

    scenario: Scenario
    engine: str
    names: tuple[str, ...]


class BlockDone(msgspec.Struct, frozen=True, kw_only=True):
    """A block that was run: its report, and the scenario files that the report names."""

    target: str
    number: int
    report: Report
    files: dict[str, bytes]
    kept: tuple[CorpusScenario, ...] = ()
    cpu: float = 0.0
    """Processor seconds that it took, workers included."""


def identity() -> str:
    """The suite and specification of this place; those of a campaign's places are all the same."""
    return f"{suite_version()} spec {spec_hash()}"


def in_order(names: tuple[str, ...]) -> tuple[phases.Phase, ...]:
    """The phases of those names, in that order. Raises UsageError for an unknown one."""
    return tuple(phase for name in names for phase in phases.select([name]))


def _of(given: tuple[bytes, ...]) -> phases.Phase:
    """The stored scenarios and scripts as a phase."""
    subjects = [subject_of(stored_of(body)) for body in given]
    return phases.Phase(name="given", summary="", drive=lambda driver: driver.check_all(subjects))


class Station:
    """Runs one block at a time. The workers of a target stay up from block to block, until another target's come."""

    def __init__(self, known: Path = known_list.FOLDER, time_limit: float = 20.0, workers: int = 1) -> None:
        self._known = known
        self._limits = RunLimits(scenario=time_limit)
        self._workers = workers
        self._folder = Path(tempfile.mkdtemp(prefix="station-", dir=reaper.scratch))
        self._pool: Pool[AnyPlan] | None = None
        self._serves = ("", "", False)

    def run(self, block: Block) -> BlockDone:
        """Run a block. Raises GaveUp when its target cannot be kept running, UsageError for a block that is none."""
        before = cpu_seconds()
        out = self._folder / "block"
        settings = Settings(
            target=registry.find(block.target, block.device),
            device=block.device,
            workers=self._workers,
            out=out,
            phases=(_of(block.given),) if block.given else in_order(block.phases),
            options=Options(
                seed=block.seed,
                bound=block.bound,
                corpus=Path(block.corpus) if block.corpus else None,
                keep=self._folder / "kept",
                generations=GENERATIONS,
                start=tuple(msgspec.json.decode(body, type=Scenario) for body in block.start),
                seen=frozenset(block.seen),
            ),
            shard=block.shard,
            limits=self._limits,
            known_folder=self._known,
            witnesses=block.witnesses,
            shrink_seconds=SHRINK_SECONDS if block.given else 0,  # else every block would shrink the same finding again
            cover=block.cover,
            trace=bool(block.given),
            complete=block.complete,
        )
        try:
            summary = run(settings, (), self._warm(settings))
        except BaseException:
            self.close_pool()
            raise
        if summary.interrupted:
            self.close_pool()
            raise KeyboardInterrupt
        if summary.gave_up:
            self.close_pool()
            raise GaveUp(summary.gave_up)
        report = build(summary)
        files = {name: (out / name).read_bytes() for name in sorted(files_of(report))}
        return BlockDone(
            target=block.target,
            number=block.number,
            report=report,
            files=files,
            kept=self._kept(),
            cpu=cpu_seconds() - before,
        )

    def _kept(self) -> tuple[CorpusScenario, ...]:
        """What the block's search kept; it is forgotten here."""
        corpus = Corpus(self._folder / "kept")
        found = []
        for engine in corpus.engines():
            reached = corpus.reached(engine)
            for one in corpus.subjects():
                if isinstance(one, Scenario) and one.id in reached:
                    found.append(CorpusScenario(one, engine, tuple(sorted(reached[one.id]))))
        shutil.rmtree(corpus.folder, ignore_errors=True)
        return tuple(found)

    def _warm(self, settings: Settings) -> Pool[AnyPlan]:
        """Started workers of this target."""
        serves = (settings.target.name, settings.device, settings.cover)
        if self._pool is None or self._serves != serves:
            self.close_pool()
            self._pool = pool_of(replace(settings, out=self._folder / "pool"))
            self._serves = serves
            self._pool.start()
        return self._pool

    def close_pool(self) -> None:
        """End the workers."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def close(self) -> None:
        """End the workers and forget their logs."""
        self.close_pool()
        shutil.rmtree(self._folder, ignore_errors=True)

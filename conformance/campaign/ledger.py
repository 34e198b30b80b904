"""What a campaign has done, on disk: a driver that is killed loses nothing that it had taken in.

`journal.jsonl` gets one line per block as it comes, synced. `state.json` is the sum of all lines so far and is
replaced as a whole; then the journal starts anew. A line whose block is in the sum already is passed over, so a driver
may be killed between the two. Memory and files are bounded by what reports name, not by how many blocks there were.
"""

import os
from collections import deque
from pathlib import Path
from typing import BinaryIO

import msgspec

from ropecheck.conformance.campaign.blocks import CampaignPlan
from ropecheck.conformance.campaign.station import BlockDone
from ropecheck.conformance.corpus.store import Corpus
from ropecheck.conformance.errors import UsageError
from ropecheck.conformance.report import ranges
from ropecheck.conformance.report.json_file import Report
from ropecheck.conformance.results.gather import files_of
from ropecheck.conformance.results.merge import add, with_witnesses
from ropecheck.conformance.scenario.operations import Scenario
from ropecheck.conformance.store.files import REPORTS, pretty, write_atomic

KEPT_POINTS = 600
"""Points of the curve over time; when there are more, every second one is left out."""

MOST_PARENTS = 256
"""Kept scenarios that guided blocks are given."""

JOURNAL_BYTES = 8 << 20
"""Bytes of journal after which its sum is written."""


class Point(msgspec.Struct, frozen=True):
    """The campaign at one moment. seconds: of all drivers so far; cpu: processor seconds of the blocks."""

    seconds: float
    blocks: int
    scenarios: int
    forwards: int
    reached: int
    findings: int
    new: int
    cpu: float = 0.0
    functions: int = 0
    """Of the engine."""
    lines: int = 0
    """Of its position code, where they are told."""


class Failed(msgspec.Struct, frozen=True, kw_only=True):
    """A block that could not be run, however often it was tried."""

    number: int
    why: str


class TargetProgress(msgspec.Struct, kw_only=True):
    """One target."""

    done: str = ""
    """Numbers of the blocks that are in the report, as report.ranges writes them."""
    failed: tuple[Failed, ...] = ()
    report: Report | None = None


class CampaignState(msgspec.Struct, kw_only=True):
    plan: CampaignPlan
    suite: str
    columns: dict[str, TargetProgress]
    seconds: float = 0.0
    """That drivers have spent."""
    cpu: float = 0.0
    """Processor seconds that blocks took."""
    curve: list[Point] = []


class _Line(msgspec.Struct, frozen=True, kw_only=True):
    """A block in the journal; `report` is None for one that could not be run."""

    target: str
    number: int
    seconds: float
    cpu: float = 0.0
    report: Report | None = None
    why: str = ""


def folder_of(target: str) -> str:
    """A target's folder in a campaign's."""
    return target.replace("/", "_").replace("==", "-")


class Ledger:
    """Opens or continues the campaign in `out`. Raises UsageError when another plan's campaign is there."""

    def __init__(self, out: Path, plan: CampaignPlan, suite: str) -> None:
        self._out = out
        self._journal = out / "journal.jsonl"
        out.mkdir(parents=True, exist_ok=True)
        self.state = self._read(plan, suite)
        self.resumed = bool(self.state.curve or self._journal.exists())
        self._file: BinaryIO = self._recover()
        self._written = 0
        self._seen: dict[str, set[str]] = {}
        found = Corpus(out / "corpus").subjects() if plan.guided else ()
        self._kept = deque((msgspec.json.encode(one) for one in found if isinstance(one, Scenario)), MOST_PARENTS)

    def _read(self, plan: CampaignPlan, suite: str) -> CampaignState:
        path = self._out / "state.json"
        try:
            state = msgspec.json.decode(path.read_bytes(), type=CampaignState)
        except FileNotFoundError:
            state = CampaignState(plan=plan, suite=suite, columns={target: TargetProgress() for target in plan.targets})
            write_atomic(path, msgspec.json.encode(state))
            return state
        except msgspec.DecodeError as error:
            raise UsageError(f"{path}: not a campaign's state: {error}") from error
        if state.plan != plan:
            other = [name for name in plan.__struct_fields__ if getattr(plan, name) != getattr(state.plan, name)]
            raise UsageError(f"{self._out}: a campaign of another plan ({', '.join(other)}); name another --out")
        if state.suite != suite:
            raise UsageError(f"{self._out}: a campaign of suite {state.suite}, this is {suite}; name another --out")
        return state

    def _recover(self) -> BinaryIO:
        """Take in what the last driver wrote after its last sum; a line that it did not finish is cut off."""
        file = self._journal.open("a+b")
        file.seek(0)
        whole = 0
        for raw in file:
            try:
                line = msgspec.json.decode(raw, type=_Line)
            except msgspec.DecodeError:
                break
            if not raw.endswith(b"\n"):
                break
            whole += len(raw)
            self._take(line)
        file.truncate(whole)
        file.seek(0, os.SEEK_END)
        return file

    # ------------------------------------------------------------ what is done

    def is_done(self, target: str, number: int) -> bool:
        """Whether the block is in the sum, or was given up."""
        column = self.state.columns[target]
        return ranges.holds(column.done, number) or any(one.number == number for one in column.failed)

    def record(self, done: BlockDone, seconds: float) -> bool:
        """Take in a block; False when it was there already. It is on disk when this returns."""
        if self.is_done(done.target, done.number):
            return False
        self._write_files(done)
        corpus = Corpus(self._out / "corpus")
        for kept in done.kept:
            if not self._reached(done.target, kept.names):
                corpus.add(kept.scenario, kept.engine, kept.names)
                self._kept.append(msgspec.json.encode(kept.scenario))
        line = _Line(target=done.target, number=done.number, seconds=seconds, cpu=done.cpu, report=done.report)
        self._append(line)
        return True

    def start(self, target: str) -> tuple[tuple[bytes, ...], tuple[str, ...]]:
        """Where the next guided block begins: scenarios that the campaign kept, oldest first, and what they reach."""
        return tuple(self._kept), tuple(sorted(self._seen.get(target, ())))

    def _reached(self, target: str, names: tuple[str, ...]) -> bool:
        """Whether the campaign has reached all of it before."""
        seen = self._seen.setdefault(target, set())
        new = not seen.issuperset(names)
        seen.update(names)
        return not new

    def unshrunk(self, target: str) -> tuple[bytes, ...]:
        """The stored witnesses of new findings, as they were found. Consequences shrink with their causes."""
        report = self.state.columns[target].report
        folder = self._out / folder_of(target)
        files = {
            finding.witness.file
            for finding in (report.findings if report else ())
            if not finding.known and not finding.follows and finding.witness.id == finding.witness.found[2]
        }
        bodies = [(folder / file).read_bytes() for file in sorted(files) if (folder / file).is_file()]
        return tuple(body for body in bodies if "case" not in msgspec.json.decode(body))

    def improve(self, done: BlockDone) -> None:
        """Take over smaller witnesses of the findings; nothing is counted."""
        column = self.state.columns[done.target]
        if column.report is not None:
            self._write_files(done)
            column.report = with_witnesses(column.report, done.report)

    def _write_files(self, done: BlockDone) -> None:
        folder = self._out / folder_of(done.target)
        for name, body in done.files.items():
            if not (folder / name).exists():
                write_atomic(folder / name, body)

    def give_up(self, target: str, number: int, why: str, seconds: float) -> None:
        """A block that cannot be run."""
        if not self.is_done(target, number):
            self._append(_Line(target=target, number=number, seconds=seconds, why=why))

    def _append(self, line: _Line) -> None:
        body = msgspec.json.encode(line) + b"\n"
        self._file.write(body)
        self._file.flush()
        os.fsync(self._file.fileno())
        self._written += len(body)
        self._take(line)
        if self._written > JOURNAL_BYTES:
            self.checkpoint()

    def _take(self, line: _Line) -> None:
        if self.is_done(line.target, line.number):
            return
        column = self.state.columns[line.target]
        self.state.seconds = max(self.state.seconds, line.seconds)
        self.state.cpu += line.cpu
        if line.report is None:
            column.failed = (*column.failed, Failed(number=line.number, why=line.why))
            return
        column.report = line.report if column.report is None else add(column.report, line.report)
        column.done = ranges.united(column.done, str(line.number))
        self._point()

    def _point(self) -> None:
        state = self.state
        state.curve.append(now(state))
        if len(state.curve) > KEPT_POINTS:
            del state.curve[1::2]

    # ------------------------------------------------------------ on disk

    def checkpoint(self, seconds: float | None = None) -> None:
        """Write the sum and start the journal anew. seconds: spent so far, where more than the last block's."""
        self.state.seconds = max(self.state.seconds, seconds or 0.0)
        write_atomic(self._out / "state.json", msgspec.json.encode(self.state))
        self._file.seek(0)
        self._file.truncate(0)
        self._written = 0
        self.publish()

    def publish(self) -> None:
        """Write each target's report, and leave only the witnesses that it names."""
        for target, column in self.state.columns.items():
            if column.report is None:
                continue
            folder = self._out / folder_of(target)
            write_atomic(folder / REPORTS["json"], pretty(column.report))
            named = files_of(column.report)
            for path in (folder / "failures").glob("*.json"):
                if f"failures/{path.name}" not in named:
                    path.unlink(missing_ok=True)

    def close(self, seconds: float | None = None) -> None:
        self.checkpoint(seconds)
        self._file.close()


def now(state: CampaignState) -> Point:
    """Where the campaign is."""
    reports = [column.report for column in state.columns.values() if column.report is not None]
    return Point(
        seconds=round(state.seconds, 3),
        blocks=sum(ranges.size(column.done) for column in state.columns.values()),
        scenarios=sum(report.totals.scenarios for report in reports),
        forwards=sum(report.totals.forwards for report in reports),
        reached=sum(reached(report) for report in reports),
        findings=sum(len(report.findings) for report in reports),
        new=sum(1 for report in reports for finding in report.findings if not finding.known),
        cpu=round(state.cpu, 3),
        functions=sum(len(report.kernels) for report in reports),
        lines=sum(_lines(report) for report in reports),
    )


def reached(report: Report) -> int:
    """Rules, situations, engine functions and, where they are told, engine lines that were reached: it only grows."""
    return (
        sum(1 for rule in report.rules if rule.checked)
        + sum(1 for count in report.situations.values() if count)
        + len(report.kernels)
        + _lines(report)
    )


def _lines(report: Report) -> int:
    return sum(ranges.size(lines) for lines in report.part.lines.values())

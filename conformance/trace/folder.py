"""A folder that a recorder wrote: its streams, each in parts, judged one by one."""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path

from ropecheck.conformance.errors import UsageError
from ropecheck.conformance.judge.failure_text import failure_lines
from ropecheck.conformance.trace.check import Checked, check_files

PART = re.compile(r"(?P<stream>.+)\.(?P<part>\d{4,})\.ndjson")


@dataclass(slots=True)
class FolderSummary:
    """What a folder came to, in words and numbers."""

    lines: list[str] = field(default_factory=list)
    streams: int = 0
    forwards: int = 0
    failures: int = 0
    unread: list[str] = field(default_factory=list)
    """Why a stream could not be judged."""

    @property
    def exit_code(self) -> int:
        """1: something was wrong; 3: a stream could not be judged; 4: no forward."""
        if self.failures:
            return 1
        if self.unread:
            return 3
        return 0 if self.forwards else 4


def streams(folder: Path) -> dict[str, list[Path]]:
    """Name of each stream -> its files in order."""
    found: dict[str, list[tuple[int, Path]]] = {}
    for path in folder.glob("*.ndjson"):
        if match := PART.fullmatch(path.name):
            found.setdefault(match["stream"], []).append((int(match["part"]), path))
        else:
            found.setdefault(path.stem, []).append((0, path))
    return {name: [path for _, path in sorted(parts)] for name, parts in sorted(found.items())}


def summary(folder: Path) -> FolderSummary:
    """Judge every stream of the folder."""
    made = FolderSummary()
    for name, paths in streams(folder).items():
        made.streams += 1
        try:
            checked = check_files(paths)
        except UsageError as error:
            made.unread.append(str(error))
            made.lines.append(f"{name}: not judged: {error}")
            continue
        made.forwards += checked.judge.forwards
        made.failures += sum(checked.counts.values())
        made.lines += [f"{name}: {line}" for line in told(checked)]
    for path in sorted(folder.glob("monitor-*.json")):
        told_by = json.loads(path.read_text(encoding="utf-8"))
        looked = sum(told_by["looked_at"].values())
        made.streams, made.forwards, made.failures = (
            made.streams + 1,
            made.forwards + looked,
            made.failures + told_by["wrong"],
        )
        made.lines.append(
            f"{path.stem}: looked at {looked} of {told_by['forwards']} forwards, wrong: {told_by['wrong']}"
        )
    for path in sorted(folder.glob("*.error.txt")):
        made.unread.append(f"{path.name}: {path.read_text(encoding='utf-8').strip()}")
        made.lines.append(f"the recorder failed: {made.unread[-1]}")
    return made


def told(checked: Checked) -> list[str]:
    """A judged stream in lines, what is wrong first."""
    lines: list[str] = []
    judge = checked.judge
    for failure in checked.failures:
        lines += [line.plain for line in failure_lines(failure)]
        lines.append(f"  {checked.counts[failure.key]} times, first at event {failure.step}")
    if checked.torn:
        lines.append("the last line is torn; everything before it was judged")
    modes = ", ".join(f"{mode} {count}" for mode, count in sorted(judge.modes.items()))
    checks = sum(judge.checked.values())
    lines.append(f"{judge.events} events, {judge.forwards} forwards ({modes or 'none'}), {checks} checks")
    if judge.dropped:
        lines.append(f"{judge.dropped} events were dropped by the recorder")
    lines.append(f"{sum(checked.counts.values())} failures of {len(checked.failures)} kinds")
    return lines

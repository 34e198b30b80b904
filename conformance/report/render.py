"""A finding as one screen of text: for the terminal, and for every report that shows text."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from rich.text import Text

from ropecheck.conformance.families.case import Case
from ropecheck.conformance.families.files import described
from ropecheck.conformance.report.side_by_side import side_by_side
from ropecheck.conformance.run.events import Finding, Header

_LONGEST = 400
"""Characters of a message that are shown; the stored file has all of it."""


def replay_command(header: Header, file: str) -> str:
    """The one line that runs one scenario again."""
    command = ["ropecheck", "replay", str(header.out / file), "--target", header.target]
    if header.device != "cpu":
        command += ["--device", header.device]
    return shlex.join(command)


def finding_lines(finding: Finding, header: Header) -> list[Text]:
    """The finding: what is broken, how it shows, the tables, and how to see it again."""
    rule, mode, signature = finding.key
    failure, scenario = finding.failure, finding.scenario
    known = None if finding.unexpected else finding.known
    head = Text("KNOWN " if known else "NEW ", style="yellow" if known else "bold red")
    head.append(f"{rule}  ", "bold").append(f"{mode}: {signature}  ({finding.count} failures)")
    table = f" ({failure.label})" if failure.label else ""
    place = f"builder {failure.label}" if isinstance(scenario, Case) else f"operation {failure.step}{table}"
    lines = [
        head,
        Text(f"  {shorter(failure.message)}"),
        Text(f"  smallest witness: {scenario.name} ({scenario.id}), {place}"),
    ]
    if isinstance(scenario, Case):
        lines.append(Text(f"  prompt: {described(scenario)}"))
    first = failure.difference
    if first is not None:
        place = "" if first.column is None else f" column {first.column}"
        owner = "" if first.request is None else f" of request {first.request}"
        lines.append(
            Text(f"  first difference: {first.axis}{place}{owner}: expected {first.expected}, got {first.observed}")
        )
    lines += [Text("    ").append_text(line) for line in side_by_side(failure.expected, failure.observed)]
    if failure.where:
        lines.append(Text(f"  at {failure.where}"))
    if known is not None:
        lines.append(Text(f"  expected by {known.name}: {shorter(known.reason)} ({known.link})"))
    lines.append(Text(f"  {replay_command(header, finding.file)}", style="cyan"))
    return lines


def as_text(lines: Iterable[Text]) -> str:
    """Without styles."""
    return "\n".join(line.plain.rstrip() for line in lines)


def shorter(message: str) -> str:
    """On one line, and not longer than a screen is happy with."""
    line = " ".join(message.split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 3] + "..."

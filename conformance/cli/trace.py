"""Verbs on event streams: `trace check` judges a file, `trace schema` prints the format's JSON schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from ropecheck.adapters import events
from ropecheck.conformance.cli.options import console
from ropecheck.conformance.report.failure_text import failure_lines
from ropecheck.conformance.trace.check import check_file

app = typer.Typer(help="Streams of events of an engine at work (NDJSON).", no_args_is_help=True)


@app.command()
def check(file: Annotated[Path, typer.Argument(help="A trace: one event per line, the header first.")]) -> int:
    """Judge every forward of a trace against the client's history. Exit 0: all right; 1: failures; 4: no forward."""
    out = console()
    checked = check_file(file)
    judge = checked.judge
    for failure in checked.failures:
        for line in failure_lines(failure):
            out.print(line, soft_wrap=True)
        out.print(f"  {checked.counts[failure.key]} times, first at event {failure.step}", soft_wrap=True)
    if checked.torn:
        out.print("the last line is torn; everything before it was judged", soft_wrap=True)
    modes = ", ".join(f"{mode} {count}" for mode, count in sorted(judge.modes.items()))
    checks = sum(judge.checked.values())
    out.print(f"{judge.events} events, {judge.forwards} forwards ({modes or 'none'}), {checks} checks", soft_wrap=True)
    out.print(f"{sum(checked.counts.values())} failures of {len(checked.failures)} kinds", soft_wrap=True)
    if checked.failures:
        return 1
    return 0 if judge.forwards else 4


@app.command()
def schema() -> None:
    """Print the JSON schema of one event."""
    print(json.dumps(msgspec.json.schema(events.Event), indent=2))

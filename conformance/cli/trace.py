"""Verbs on event streams: `trace check` judges a file, `trace schema` prints the format's JSON schema."""

from pathlib import Path
from typing import Annotated

import typer

from ropecheck.adapters import events
from ropecheck.conformance.cli.options import say
from ropecheck.conformance.store.schema import schema_of
from ropecheck.conformance.trace.check import check_files
from ropecheck.conformance.trace.folder import summary, told

app = typer.Typer(help="Streams of events of an engine at work (NDJSON).", no_args_is_help=True)


@app.command()
def check(
    files: Annotated[
        list[Path],
        typer.Argument(help="A trace: one event per line, the header first; its parts in order; or a folder."),
    ],
) -> int:
    """Judge every forward of a trace against the client's history. Exit 0: all right; 1: failures; 4: no forward."""
    if len(files) == 1 and files[0].is_dir():
        made = summary(files[0])
        say(*made.lines)
        return made.exit_code
    checked = check_files(files)
    say(*told(checked))
    if checked.failures:
        return 1
    return 0 if checked.judge.forwards else 4


@app.command()
def schema() -> None:
    """Print the JSON schema of one event."""
    print(schema_of(events.Event, "trace", events.VERSION).decode(), end="")

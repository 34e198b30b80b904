"""Verbs over reports: merge, diff, show, trend."""

from pathlib import Path
from typing import Annotated

import typer

from ropecheck.conformance.cli.options import say
from ropecheck.conformance.errors import UsageError
from ropecheck.conformance.results import diff as differences
from ropecheck.conformance.results import show as shown
from ropecheck.conformance.results import trend as over_time
from ropecheck.conformance.results.gather import gather
from ropecheck.conformance.results.read import read
from ropecheck.conformance.results.state import exit_code
from ropecheck.conformance.store.files import write_atomic

app = typer.Typer(help="Reports that add up.", no_args_is_help=True)

Sources = Annotated[list[Path], typer.Argument(metavar="REPORT...", help="report.json files, or folders of runs.")]
One = Annotated[Path, typer.Argument(metavar="REPORT", help="A report.json, or a run's folder.")]


@app.command()
def merge(
    reports: Sources,
    out: Annotated[Path, typer.Option("--out", help="Folder for the merged report and its witnesses.")] = Path(
        ".ropecheck/merged"
    ),
) -> int:
    """Add reports up: of all shards of a run, exactly what that run reports. Exits as that run would."""
    merged, missing = gather(reports, out)
    _say(shown.lines(merged))
    _say([f"warning: {line}" for line in missing])
    say(f"{len(reports)} reports in {out}")
    return exit_code(merged)


@app.command()
def diff(before: One, after: One) -> int:
    """What is new, gone or changed from one report to another; exit code 1 for something new."""
    found = differences.diff(read(before), read(after))
    _say(differences.lines(found))
    return found.exit_code


@app.command()
def show(report: One) -> int:
    """Say what a report says; exits as its run did."""
    found = read(report)
    _say(shown.lines(found))
    return exit_code(found)


@app.command()
def trend(
    reports: Sources,
    out: Annotated[Path, typer.Option("--out", help="The page.")] = Path(".ropecheck/trend.html"),
) -> int:
    """Many reports over time, as one page."""
    named = [(str(path), read(path)) for path in reports]
    try:
        write_atomic(out, over_time.page(named).encode())
    except OSError as error:
        raise UsageError(f"--out {out}: {error.strerror or error}") from error
    say(f"{len(named)} reports in {out}")
    return 0


def _say(lines: list[str]) -> None:
    say(*lines)

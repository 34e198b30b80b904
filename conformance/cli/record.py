"""`ropecheck record -- CMD`: run a command; engine processes in it write event streams, judged at its end."""

import os
import subprocess
from pathlib import Path
from typing import Annotated

import typer

from ropecheck import record as recorder
from ropecheck.conformance.cli.options import say
from ropecheck.conformance.errors import UsageError
from ropecheck.conformance.trace.folder import streams, summary


def record(
    command: Annotated[list[str], typer.Argument(help="The command and its arguments, after --.")],
    out: Annotated[Path, typer.Option("--out", help="Folder for the streams.")] = Path(".ropecheck") / "record",
    mode: Annotated[
        str,
        typer.Option(
            "--mode", help="log; raise: stop the engine at the first failure; monitor: compare on the device."
        ),
    ] = "log",
    limit: Annotated[float, typer.Option("--limit", help="Megabytes of one stream; older parts go.")] = 512.0,
    check: Annotated[bool, typer.Option("--check/--no-check", help="Judge the streams when the command ends.")] = True,
) -> int:
    """Run a command and record every engine in it. Exit 1: a table was wrong; 3: a stream could not be judged; 4: no
    forward was recorded; otherwise the command's own exit code."""
    if mode not in recorder.MODES:
        raise UsageError(f"--mode {mode!r}: {' or '.join(recorder.MODES)}")
    if not limit > 0:
        raise UsageError(f"--limit {limit:g}: must be above 0")
    if streams(out):
        raise UsageError(f"{out}: holds streams already; name another folder with --out")
    added = recorder.environment(out, mode) | {recorder.LIMIT: str(limit)}
    try:
        done = subprocess.run(command, env=os.environ | added, check=False)
    except OSError as error:
        raise UsageError(f"{command[0]}: {error.strerror or error}") from error
    if not check:
        return done.returncode
    made = summary(out)
    say(*made.lines)
    say(f"{out}: {made.streams} streams, {made.forwards} forwards, {made.failures} failures")
    return made.exit_code or (done.returncode if done.returncode >= 0 else 128 - done.returncode)

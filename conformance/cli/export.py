"""`ropecheck export`: a reproduction that needs no ropecheck."""

from pathlib import Path
from typing import Annotated

import typer

from ropecheck.conformance.cards.build import cards
from ropecheck.conformance.cli.options import (
    KNOWN,
    OUT,
    KnownOption,
    one_of,
    say,
    target_for,
)
from ropecheck.conformance.errors import GaveUp, UsageError, meant
from ropecheck.conformance.export import write
from ropecheck.conformance.export.look import look
from ropecheck.conformance.known.find import find_scenario
from ropecheck.conformance.run.one import asked
from ropecheck.conformance.store.files import Stored, StoredScript, write_atomic
from ropecheck.conformance.targets.registry import DEFAULT


def export(
    what: Annotated[str, typer.Argument(metavar="ID|FILE", help="Scenario id or file, as for replay.")],
    form: Annotated[str, typer.Option("--as", help="script, pytest or issue.")] = "script",
    target: Annotated[str, typer.Option("--target", help="Default: the one that the file names, or sglang.")] = "",
    out: Annotated[Path, typer.Option("--out", help="Run whose failures are looked up.")] = OUT,
    to: Annotated[Path | None, typer.Option("--to", help="File or folder to write to; default: here.")] = None,
    known: KnownOption = KNOWN,
) -> int:
    """Write a reproduction of one failure that runs, or reads, without ropecheck."""
    if form not in write.SUFFIX:
        raise UsageError(f"--as {form!r}{meant(form, write.SUFFIX)}; known: {', '.join(write.SUFFIX)}")
    stored = find_scenario(what, out, known)
    if not isinstance(stored, Stored):
        why = (
            "a client's script; where it fails at function level too, `ropecheck replay` names the file to export"
            if isinstance(stored, StoredScript)
            else "a prompt-table case; its builder is called with what `ropecheck replay` shows"
        )
        raise UsageError(f"{what}: {why}")
    chosen = target_for(target or one_of("target", [stored.target]) or DEFAULT, "cpu")
    planned, answer, summary = asked(stored.scenario, chosen, out / "export", known)
    shown = cards(summary)
    if not shown:
        raise GaveUp(f"{what} does not fail on {chosen.name} {summary.header.hello.version}: nothing to export")
    card = shown[0]
    finding = next(one for one in summary.findings if one.key == card.keys[0])
    hello = summary.header.hello
    engine = f"{hello.target} {hello.version}, torch {hello.torch or 'none'}, Python {hello.python}, {hello.device}"
    if form == "issue":
        text = write.issue(card, engine=engine)
    else:
        where = look(planned, answer, finding.failure)
        text = write.script(card, planned, where, engine=engine, pytest=form == "pytest")
    path = to or Path(write.file_name(card, form))
    path = path / write.file_name(card, form) if path.is_dir() else path
    write_atomic(path, text.encode())
    say(f"wrote {path}")
    return 0

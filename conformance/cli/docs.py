"""`ropecheck docs build`: the rule book as a static site."""

from pathlib import Path
from typing import Annotated

import typer

from ropecheck.conformance.cli.options import say
from ropecheck.conformance.errors import UsageError

app = typer.Typer(help="The rule book.", no_args_is_help=True)


@app.callback()
def docs() -> None:
    """The rule book."""


@app.command()
def build(
    context: typer.Context,
    out: Annotated[Path, typer.Option("--out", help="Folder to write to.")] = Path(".ropecheck") / "site",
    source: Annotated[
        Path | None, typer.Option("--source", help="The checkout; default: the one that this runs from.")
    ] = None,
) -> int:
    """Write the rule book as a static site: open its index.html. Exit code 1 for a link that leads nowhere."""
    try:
        from ropecheck.conformance.book.build import build as written
        from ropecheck.conformance.book.contents import ROOT
    except ModuleNotFoundError as error:
        raise UsageError(f"docs: {error}; pip install 'ropecheck[docs]'") from error
    try:
        built = written(out, context.find_root().command, source or ROOT)
    except ValueError as error:
        raise UsageError(str(error)) from error
    for broken in built.broken:
        say(f"leads nowhere: {broken}")
    say(f"{len(built.pages)} pages in {out}/index.html")
    return 1 if built.broken else 0

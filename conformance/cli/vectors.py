"""The verbs of language-neutral vectors: gen, lint, check."""

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from ropecheck.conformance.cli.options import say
from ropecheck.conformance.errors import UsageError
from ropecheck.conformance.judge.failure_text import failure_lines
from ropecheck.conformance.vectors import grade, store
from ropecheck.conformance.vectors import types as v
from ropecheck.conformance.vectors.lint import lint as lint_vectors

app = typer.Typer(help="Language-neutral vectors for engines that test themselves.", no_args_is_help=True)


@app.command()
def gen(
    out: Annotated[Path, typer.Option("--out", help="Folder to write.")] = store.DEFAULT,
    replace: Annotated[bool, typer.Option("--replace", help="Overwrite and remove what differs.")] = False,
) -> int:
    """Write the vectors of the chosen scenarios. Vectors that are there already stay as they are."""
    from ropecheck.conformance.vectors.choose import choose, uncovered
    from ropecheck.conformance.vectors.make import candidates
    from ropecheck.conformance.vectors.sources import sources

    pool = candidates(sources())
    vectors = choose(pool)
    missing = uncovered(vectors, pool)
    if missing:
        raise UsageError(f"scenarios: no vector covers {', '.join(missing)}")
    changes = store.changes(out, vectors)
    odd = [path for path, _ in changes.other] + changes.left_over
    if odd and not replace:
        for path in odd:
            why = "has other content" if path not in changes.left_over else "is no vector of this set"
            say(f"{path}: {why}")
        raise UsageError(f"{out}: {len(odd)} files differ and nothing was written; --replace overwrites and removes")
    written = [*changes.new, *(vector for _, vector in changes.other)]
    store.write(out, written)
    for path in changes.left_over:
        path.unlink()
    size = sum(store.path_of(out, vector).stat().st_size for vector in vectors)
    say(
        f"{len(vectors)} vectors, {size / 1e6:.2f} MB in {out}: {len(changes.new)} new, {len(changes.other)} replaced, "
        f"{len(changes.left_over)} removed, {len(changes.same)} as before"
    )
    _print_folders(Counter(v.folder_of(vector.input) for vector in vectors))
    return 0


@app.command()
def lint(
    where: Annotated[Path, typer.Argument(metavar="[DIR]", help="Folder of vectors, or one file.")] = store.DEFAULT,
) -> int:
    """Check schema, ids, duplicates and size, and derive every expected table anew from the specification.

    Without DIR: vectors/ where there is one, else the set that came with the suite."""
    if where == store.DEFAULT and not where.exists():
        where = store.PACKAGED
    report = lint_vectors(where)
    for problem in report.problems:
        say(problem)
    say(f"{report.files} vectors, {report.size / 1e6:.2f} MB: {len(report.problems)} problems")
    if report.unreadable:
        return 2
    if report.problems:
        return 1
    return 0 if report.files else 4


@app.command()
def check(
    where: Annotated[Path, typer.Argument(metavar="FILE|DIR", help="A vector, or a folder of them.")],
    against: Annotated[Path, typer.Option("--against", help="The engine's answers, as vectors/README.md says.")],
    without: Annotated[
        list[str] | None, typer.Option("--without", metavar="FOLDER|ID", help="What the engine lacks, and may decline.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Do not list the vectors that pass.")] = False,
) -> int:
    """Grade an engine's answers."""
    answers = grade.read_answers(against)
    grades = grade.grade_all(where, answers, against)
    short = grade.shortfalls(grades, without or ())
    for one in grades:
        name = f"{v.folder_of(one.vector.input)}/{one.vector.id}  {one.vector.provenance.scenario}"
        if one.state == "fail":
            say(Text(f"FAIL         {name}", style="bold red"))
            for failure in one.failures:
                for line in failure_lines(failure):
                    say(Text("  ").append_text(line))
        elif one.state != "pass" or not quiet:
            say(f"{one.state:12} {name}{f': {one.reason}' if one.reason else ''}")
    counts = Counter(one.state for one in grades)
    strangers = len(set(answers) - {one.vector.id for one in grades})
    note = f"; {strangers} answers belong to no vector in {where}" if strangers else ""
    states = ("pass", "fail", "not offered", "missing")
    for missing in short:
        say(missing)
    say(", ".join(f"{counts[state]} {state}" for state in states) + note)
    if counts["fail"]:
        return 1
    if not counts["pass"]:
        return 4
    return 3 if short else 0


def _print_folders(counts: Counter[str]) -> None:
    say(", ".join(f"{folder} {counts[folder]}" for folder in v.folders()))

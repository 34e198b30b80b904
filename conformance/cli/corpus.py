"""Verbs over a corpus: add, minimise, stats."""

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from ropecheck.conformance.cli.options import console, say
from ropecheck.conformance.corpus import store
from ropecheck.conformance.corpus.store import Corpus
from ropecheck.conformance.errors import UsageError
from ropecheck.conformance.families.case import Case
from ropecheck.conformance.store.files import read_any, subject_of
from ropecheck.conformance.subject import size_of

app = typer.Typer(help="Scenarios worth keeping, named by their content.", no_args_is_help=True)

Folder = Annotated[Path, typer.Option("--corpus", help="The corpus's folder.")]


@app.command()
def add(
    what: Annotated[list[Path], typer.Argument(metavar="FILE|DIR...", help="Scenario files, or folders of them.")],
    corpus: Folder = store.DEFAULT,
) -> int:
    """Keep scenarios: files, a run's failures, another corpus. Any number of writers may add at a time."""
    kept = Corpus(corpus)
    files = [file for path in what for file in _files(path)]
    subjects = [subject_of(read_any(file)) for file in files]
    try:
        new = sum(kept.add(subject) for subject in subjects)
        for path in what:
            for engine in Corpus(path).engines():
                new_reached = Corpus(path).reached(engine)
                for subject in Corpus(path).subjects():
                    if subject.id in new_reached:
                        kept.add(subject, engine, new_reached[subject.id])
    except OSError as error:
        raise UsageError(f"--corpus {corpus}: {error.strerror or error}") from error
    say(f"{new} new of {len(subjects)} scenarios; {len(kept.ids())} in {corpus}")
    return 0 if subjects else 4


def _files(path: Path) -> list[Path]:
    """A file; or a corpus's scenarios, a run's failures, or the JSON files of a folder."""
    if not path.is_dir():
        return [path]
    if (path / "scenarios").is_dir():
        return sorted((path / "scenarios").glob("??/*.json"))
    folder = path / "failures" if (path / "failures").is_dir() else path
    return sorted(folder.glob("*.json"))


@app.command()
def minimise(corpus: Folder = store.DEFAULT) -> int:
    """Remove what reaches nothing that smaller scenarios do not, on any engine that it was run on."""
    kept = _there(corpus)
    removed = store.minimise(kept)
    say(f"{len(removed)} removed, {len(kept.ids())} stay in {corpus}")
    return 0


@app.command()
def stats(corpus: Folder = store.DEFAULT) -> int:
    """How many scenarios, how large, and what they reach of which engine."""
    kept, out = _there(corpus), console()
    subjects = list(kept.subjects())
    cases = sum(isinstance(subject, Case) for subject in subjects)
    operations = sorted(size_of(subject)[0] for subject in subjects)
    out.print(f"{len(subjects)} in {corpus}: {len(subjects) - cases} scenarios, {cases} prompt-table cases")
    if operations:
        middle, most = operations[len(operations) // 2], operations[-1]
        out.print(f"operations: {operations[0]} to {most}, half of them at most {middle}")
    for family, count in sorted(Counter(subject.family for subject in subjects).items()):
        out.print(f"family {family}: {count}")
    for engine in kept.engines():
        reached = kept.reached(engine)
        kinds = Counter(name.partition(" ")[0] for name in frozenset().union(*reached.values()))
        told = ", ".join(f"{count} {kind}s" for kind, count in sorted(kinds.items()))
        say(f"{engine}: {len(reached)} were run, and reach {told or 'nothing'}")
    return 0


def _there(folder: Path) -> Corpus:
    if not (folder / "scenarios").is_dir():
        raise UsageError(f"--corpus {folder}: no corpus is there")
    return Corpus(folder)

"""What implements each forward mode in an engine: file, function and a hash of its source, release by release.

`python -m ropecheck.conformance.book.implementations sglang==0.5.22 sglang ..` asks each target which of its functions
that are named for positions run for a mode (its worker traces them), hashes their source, and keeps that in
data/implementations.json. `--read` says that a person has read the newest of them beside the mode's page: where the
source differs from what was read, the page says that it is to be read again.
"""

import ast
import hashlib
import importlib.util
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import msgspec
from markupsafe import Markup

from ropecheck.adapters import protocol
from ropecheck.conformance.book.contents import Book
from ropecheck.conformance.book.pages.parts import rendered
from ropecheck.conformance.plan.planner import Plan, plan
from ropecheck.conformance.run.pool import Pool
from ropecheck.conformance.run.trace import steps_of, traced_job
from ropecheck.conformance.scenario.operations import Build, Scenario
from ropecheck.conformance.scenarios.chosen.modes import of_mode
from ropecheck.conformance.store.files import pretty, write_atomic
from ropecheck.conformance.targets import provisioned, registry
from ropecheck.conformance.targets.pip_overlay import version_key
from ropecheck.spec.modes import all_modes
from ropecheck.spec.modes.declaration import Mode

FILE = Path(__file__).parents[1] / "data" / "implementations.json"

NAMED = ("mrope", "position", "init_new", "prepare_for_")
"""What the name of a function holds that is listed; what else runs is objects and bookkeeping."""

Hashes = dict[str, str]
"""{file}:{function} -> the first 12 hex digits of the SHA-256 of its source."""


class Implementations(msgspec.Struct, frozen=True):
    """releases: version -> mode -> functions. read: what a person has read, mode by mode."""

    releases: dict[str, dict[str, Hashes]] = {}
    read: dict[str, Hashes] = {}


@cache
def load() -> Implementations:
    """What is kept."""
    return msgspec.json.decode(FILE.read_bytes(), type=Implementations) if FILE.is_file() else Implementations()


def section(book: Book, page: str, mode: str) -> Markup:
    """The table of one mode: functions by releases, changes marked."""
    kept = load()
    versions = sorted(kept.releases, key=version_key)
    names = dict.fromkeys(name for version in reversed(versions) for name in kept.releases[version].get(mode, {}))
    rows = [(name, tuple(kept.releases[version].get(mode, {}).get(name, "") for version in versions)) for name in names]
    newest = kept.releases[versions[-1]].get(mode, {}) if versions else {}
    return rendered(
        "implementations.html.jinja",
        book,
        page,
        versions=versions,
        rows=rows,
        again=[name for name, digest in newest.items() if kept.read.get(mode, {}).get(name) != digest],
    )


def digest_of(source: str, function: str) -> str:
    """The hash of a function's source, decorators left out; "" where the file has no such function.

    function: as its qualified name says it, "Class.method".
    """
    nodes: Iterable[ast.AST] = _parsed(source).body
    found: ast.AST | None = None
    for part in function.replace(".<locals>", "").split("."):
        found = next((one for one in _within(nodes) if getattr(one, "name", "") == part), None)
        if found is None:
            return ""
        nodes = getattr(found, "body", [])
    assert isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    lines = source.splitlines()[found.lineno - 1 : found.end_lineno]
    lines[-1] = lines[-1].encode()[: found.end_col_offset].decode()
    text = "\n".join(lines)[found.col_offset :]
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@cache
def _parsed(source: str) -> ast.Module:
    return ast.parse(source)


def _within(nodes: Iterable[ast.AST]) -> Iterable[ast.AST]:
    """The nodes, and what stands inside their ifs and trys: a function may be defined there."""
    for node in nodes:
        yield node
        if isinstance(node, ast.If | ast.Try):
            yield from _within(ast.iter_child_nodes(node))


def ask(target: registry.Target, folder: Path, out: Path) -> tuple[str, dict[str, Hashes]]:
    """(the engine's version, its functions by mode). folder: where its packages lie."""
    found: dict[str, Hashes] = {}
    with Pool[Plan](target, device="cpu", workers=1, out=out) as pool:
        version = pool.start().version
        for mode in all_modes().values():
            names: dict[str, None] = {}
            for planned, answer in pool.answers(
                replace(made, job=traced_job(made.job)) for made in map(plan, examples(mode))
            ):
                if isinstance(answer, protocol.JobAnswer):
                    names |= dict.fromkeys(_ran(planned, answer, mode))
            found[mode.name] = {name: digest for name in names if (digest := _digest(folder, name))}
    return version, found


def examples(mode: Mode) -> list[Scenario]:
    """Small batches of the mode, set by hand and, where engines prepare it themselves, by their own caller."""
    made = [one for one in of_mode(mode) if _forwards(one, mode)][:2]
    if not mode.prepared:
        return made
    return [
        *made,
        *(
            msgspec.structs.replace(
                one,
                ops=tuple(
                    msgspec.structs.replace(op, path="caller") if number in _forwards(one, mode) else op
                    for number, op in enumerate(one.ops)
                ),
            )
            for one in made
        ),
    ]


def _forwards(scenario: Scenario, mode: Mode) -> list[int]:
    return [n for n, op in enumerate(scenario.ops) if isinstance(op, Build) and op.batch.mode == mode.name]


def _ran(planned: Plan, answer: protocol.JobAnswer, mode: Mode) -> Iterable[str]:
    """ "sglang/srt/..py:Class.function" of what ran for the mode's forwards and is named for positions."""
    for op in _forwards(planned.scenario, mode):
        for step in steps_of(planned, op):
            for told in answer.traced[step] if step < len(answer.traced) else ():
                place, _, function = told.partition(" ")
                if any(word in function.rpartition(".")[2] for word in NAMED):
                    yield f"{place.rpartition(':')[0]}:{function}"


def _digest(folder: Path, name: str) -> str:
    file, _, function = name.partition(":")
    return digest_of((folder / file).read_text("utf-8"), function)


def folder_of(target: str) -> Path:
    """Where a target's sglang lies: the folder that holds the package. Raises LookupError."""
    record = provisioned.records().get(target)
    if record is not None:
        for path in record.paths:
            folder = provisioned.folder_of(target) / path
            if (folder / "sglang").is_dir():
                return folder
    spec = importlib.util.find_spec("sglang")
    if spec is None or not spec.submodule_search_locations:
        raise LookupError(target)
    return Path(next(iter(spec.submodule_search_locations))).parent


def main(argv: Sequence[str]) -> int:
    """Ask the named targets, and keep what they say beside what is known of others."""
    registry.register_source(provisioned.targets)
    releases, read = dict(load().releases), load().read
    for name in argv:
        if name != "--read":
            version, found = ask(registry.find(name, "cpu"), folder_of(name), provisioned.home() / "implementations")
            releases[version] = found
            write_atomic(FILE, pretty(Implementations(releases, read)))
            print(f"{name}: {sum(map(len, found.values()))} functions in {len(found)} modes", flush=True)
    if "--read" in argv:
        read = releases[max(releases, key=version_key)]
    write_atomic(FILE, pretty(Implementations(releases, read)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Verbs about many engine versions: target add, list and remove; matrix; bisect; score --history."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.text import Text

from ropecheck.conformance.cli.options import console, say, shard_for, workers_for
from ropecheck.conformance.errors import UsageError
from ropecheck.conformance.matrix import bisect as bisection
from ropecheck.conformance.matrix import matrix
from ropecheck.conformance.matrix import render as matrix_render
from ropecheck.conformance.run import smoke
from ropecheck.conformance.selftest import engine_score, history_score, mutant_score
from ropecheck.conformance.store.files import pretty, write_atomic
from ropecheck.conformance.targets import pip_overlay, provision, provisioned
from ropecheck.conformance.targets import registry as targets
from ropecheck.conformance.targets.pip_overlay import ProvisionError, version_key
from ropecheck.conformance.version import suite_hash
from ropecheck.spec.rules import all_rules

targets.register_source(provisioned.targets)

target_app = typer.Typer(help="Add, list and remove engines.", no_args_is_help=True)

PhaseOption = Annotated[
    list[str] | None, typer.Option("--phase", help="Phase to run; may be repeated. Default: those of a run.")
]
SeedOption = Annotated[int, typer.Option("--seed", help="Seed of everything random.")]
WorkersOption = Annotated[int, typer.Option("--workers", help="Worker processes; 0: one per core.")]
AddOption = Annotated[bool, typer.Option("--add/--no-add", help="Provision releases that are not there yet.")]


# ---------------------------------------------------------------- target


@target_app.command("add")
def add(
    what: Annotated[str, typer.Argument(metavar="sglang==V|PATH", help="A release, a checkout or an environment.")],
    name: Annotated[str, typer.Option("--name", help="Name for a path: the target is sglang@NAME.")] = "",
    check: Annotated[bool, typer.Option("--check/--no-check", help="Import it and run one scenario.")] = True,
) -> int:
    """Make a release, a source checkout or an environment a target, and check that it runs."""
    record = provision.add(what, name=name, say=say)
    say(_described(record))
    return _check(record) if check else 0


def _described(record: provisioned.Record) -> str:
    held = ", ".join(f"{package} {version}" for package, version in sorted(record.packages.items()))
    size = f" ({record.megabytes:.0f} MB, {record.seconds:.0f} s)" if record.packages else ""
    return f"{record.name}: {held or 'nothing to install'}{size}"


def _check(record: provisioned.Record) -> int:
    log = provisioned.home() / "check" / f"{provisioned.folder_of(record.name).name}.log"
    checked = smoke.check(provisioned.target_of(record), log)
    if not checked.problem and checked.hello is not None:
        say(f"checked: {checked.hello.target} {checked.hello.version}, torch {checked.hello.torch}, one scenario")
        return 0
    say(f"{record.name} is there but does not run: {checked.problem}")
    say(
        f"what to do: `ropecheck doctor --target {record.name}` shows what was found, {log} what it printed; "
        f"`ropecheck target remove {record.name}` takes it away"
    )
    return 3


@target_app.command("list")
def list_() -> None:
    """Every provisioned target: name, version, size, and where it is."""
    records = provisioned.records()
    torch = pip_overlay.installed("torch") or "no torch"
    here = pip_overlay.installed("sglang")
    if here and f"sglang=={here}" not in records:
        say(f"sglang=={here}  this Python's own, torch {torch}")
    for record in records.values():
        where = record.python or provisioned.folder_of(record.name)
        over = "its own torch" if record.kind == "environment" else f"torch {torch}"
        size = f"{record.megabytes:.0f} MB, " if record.packages else ""
        say(f"{record.name}  {record.kind} {record.version}, {size}{over}, {where}")


@target_app.command("remove")
def remove(name: Annotated[str, typer.Argument(metavar="NAME", help="As `target list` shows it.")]) -> None:
    """Remove a provisioned target."""
    provision.remove(name)
    console().print(f"removed {name}")


# ---------------------------------------------------------------- columns


def column(name: str, *, seed: int, phase: Sequence[str], workers: int, add: bool) -> matrix.TargetColumn:
    """The column of one target, provisioned first where that is asked for.

    A target that cannot run is a column that says so. Raises UsageError for an unknown one, ProvisionError for a
    release that does not exist.
    """
    records = provisioned.records()
    installed = pip_overlay.installed("sglang")
    if name not in records and add and provision.RELEASE.fullmatch(name) and name != f"sglang=={installed}":
        try:
            provision.add(name, say=say)
        except ProvisionError as error:
            if error.exit_code == 2:
                raise
            return matrix.reduce(None, name, seed, str(error))
    known = targets.all_targets()
    if name not in known:
        raise UsageError(f"unknown target {name!r}: `ropecheck target add {name}` makes it one")
    say(f"{name} ..")
    made = matrix.column_of(
        known[name],
        provisioned.identity(name),
        seed=seed,
        phase=phase,
        workers=workers_for(workers),
        listeners=[matrix.progress(say)],
    )
    failing = sum(matrix.state(made, rule)[0] == "fail" for rule in made.cells)
    said = made.problem or f"{made.scenarios} scenarios, {failing} rules fail, {made.seconds:.0f} s"
    say(f"{name}: {said}")
    return made


def matrix_verb(
    named: Annotated[str, typer.Option("--targets", help="Targets by commas. Default: provisioned releases.")] = "",
    phase: PhaseOption = None,
    seed: SeedOption = 0,
    workers: WorkersOption = 0,
    add: AddOption = False,
    hide: Annotated[
        list[str] | None, typer.Option("--hide", help="Rules and modes to leave out, by first word; may be repeated.")
    ] = None,
    markdown: Annotated[Path | None, typer.Option("--markdown", help="File for the Markdown table.")] = None,
    json: Annotated[Path | None, typer.Option("--json", help="File for the JSON form.")] = None,
) -> int:
    """Run the suite on several versions, one after another, and show rules by versions."""
    names = list(dict.fromkeys(filter(None, (name.strip() for name in named.split(",")))))
    names = names or [t.name for t in provisioned.targets() if t.name.startswith("sglang==")]
    if not names:
        raise UsageError("--targets: none given and none provisioned; `ropecheck target add sglang==VERSION`")
    columns = matrix.in_version_order(
        matrix.without(column(name, seed=seed, phase=phase or (), workers=workers, add=add), hide or ())
        for name in names
    )
    out = console()
    for part in matrix_render.terminal(columns, out.width):
        out.print(part, soft_wrap=isinstance(part, Text))
    if markdown is not None:
        chosen = [f" --phase {one}" for one in phase or ()] + [f" --hide {one}" for one in hide or ()]
        command = f"ropecheck matrix --targets {','.join(names)}{''.join(chosen)}"
        write_atomic(markdown, matrix_render.markdown(columns, command).encode())
    if json is not None:
        write_atomic(json, pretty(matrix_render.report(columns)))
    return 3 if any(made.problem or made.unrun for made in columns) else 0


def bisect(
    rule: Annotated[str, typer.Argument(metavar="RULE", help="Id of a rule.")],
    good: Annotated[str, typer.Option("--good", help="A release on which the rule holds.")],
    bad: Annotated[str, typer.Option("--bad", help="A release on which it fails.")],
    signature: Annotated[str, typer.Option("--signature", help="Only this way of failing counts.")] = "",
    phase: PhaseOption = None,
    seed: SeedOption = 0,
    workers: WorkersOption = 0,
) -> int:
    """Between which two releases a rule changed, provisioning releases as it goes."""
    if rule not in all_rules():
        raise UsageError(f"unknown rule {rule!r}; see `ropecheck list rules`")
    out = console()
    good, bad = good.removeprefix("sglang=="), bad.removeprefix("sglang==")

    def judge(version: str) -> tuple[str, str]:
        made = column(f"sglang=={version}", seed=seed, phase=phase or (), workers=workers, add=True)
        return matrix.state(made, rule, signature)

    here = [record.version for record in provisioned.records().values() if record.kind == "release"]
    versions = bisection.between(bisection.releases(here), good, bad)
    older, newer = bisection.bisect(versions, good, judge, say)
    fixed = version_key(good) > version_key(bad)
    last, first = ("last bad", "first good") if fixed else ("last good", "first bad")
    out.print(f"{rule}: {last} {older}, {first} {newer}")
    return 0


def score(
    history: Annotated[bool, typer.Option("--history", help="On past bugs, by the releases around them.")] = False,
    mutants: Annotated[bool, typer.Option("--mutants", help="On planted faults; some minutes.")] = False,
    engine: Annotated[
        bool, typer.Option("--engine", help="On edits of the target's own source; some minutes.")
    ] = False,
    target: Annotated[str, typer.Option("--target", help="With --engine: the engine.")] = "sglang",
    most: Annotated[int | None, typer.Option("--most", help="With --engine: at most so many faults.")] = None,
    shard: Annotated[str, typer.Option("--shard", help="With --engine: i/n, the i-th of n parts.")] = "1/1",
    out: Annotated[Path, typer.Option("--out", help="Folder: --mutants goes on from there, --engine logs.")] = Path(
        ".ropecheck"
    ),
    seed: SeedOption = 0,
    seeds: Annotated[bool, typer.Option("--seeds", help="--history: only the bugs that the suite began with.")] = False,
    bug: Annotated[list[str] | None, typer.Option("--bug", help="--history: only this one; may be repeated.")] = None,
    show: Annotated[bool, typer.Option("--show", help="--history: what each witness shows on each release.")] = False,
    add: AddOption = False,
    bound: Annotated[
        str | None,
        typer.Option("--bound", help="With --engine: ask every phase of each fault, and walk to this bound."),
    ] = None,
    json: Annotated[Path | None, typer.Option("--json", help="File for the JSON form.")] = None,
) -> int:
    """How many bugs the suite catches, and why each miss is missed."""
    if history + mutants + engine != 1:
        raise UsageError("score: say on what, with --history, --mutants or --engine")
    if engine:
        return score_engine(engine_score.score(target, out, seed, most, bound, shard_for(shard)), bound, json)
    if mutants:
        return score_mutants(out)
    bugs = [one for one in history_score.load() if (one.seed or not seeds) and (not bug or one.id in bug)]
    if not bugs:
        raise UsageError("--bug: no such bug in conformance/data/history.toml")
    seen = {version: witnesses_on(version, bugs, add) for version in history_score.versions_needed(bugs)}
    judged = [history_score.judge(one, seen) for one in bugs]
    say(*(history_score.shown_lines(bugs, seen) if show else ()), *history_score.lines(judged))
    if json is not None:
        write_atomic(json, pretty(msgspec.to_builtins(judged)))
    return history_score.exit_code(judged)


def witnesses_on(version: str, bugs: Sequence[history_score.PastBug], add: bool) -> history_score.Seen:
    """The bugs' witnesses on a release, provisioned first where that is asked for."""
    name = f"sglang=={version}"
    known = {target.name: target for target in provisioned.targets()}
    if add and name not in known:
        try:
            provision.add(name, say=say)
        except ProvisionError as error:
            if error.exit_code == 2:
                raise
            return str(error)
        known = {target.name: target for target in provisioned.targets()}
    if name not in known:
        return f"{name} is not provisioned"
    witnesses = history_score.needed_on(bugs, version)
    say(f"{name}: {len(witnesses)} witnesses ..")
    return history_score.run(known[name], witnesses, provisioned.home() / "history" / version)


def score_mutants(out: Path) -> int:
    """Planted faults: what catches each first; rules that nothing breaks. What was found is kept as it is found."""
    kept = mutant_score.Kept(out / "score-mutants.jsonl", suite_hash())
    count = len(mutant_score.trials())
    if kept.scored:
        say(f"{len(kept.scored)} of {count} planted faults are kept in {kept.path}")
    for number, one in enumerate(mutant_score.score(dict(kept.scored)), start=1):
        kept.add(one)
        if number % 20 == 0:
            console().print(f"{number} of {count} planted faults tried")
    result = mutant_score.summed_up(kept.scored[name] for name in mutant_score.trials())
    say(*mutant_score.lines(result))
    return result.exit_code


def score_engine(scored: Iterable[engine_score.ScoredEdit], bound: str | None, json: Path | None) -> int:
    """Edits of the engine's own source: what each is caught by, and which are not."""
    found = []
    for one in scored:
        found.append(one)
        say(engine_score.line(one))
    say(*(engine_score.by_phase(found) if bound is not None else ()), engine_score.summary(found))
    if json is not None:
        write_atomic(json, pretty(msgspec.to_builtins(found)))
    return engine_score.exit_code(found)


def mount(app: typer.Typer) -> None:
    """Add these verbs to the command line."""
    app.add_typer(target_app, name="target")
    app.command("matrix")(matrix_verb)
    app.command("bisect")(bisect)
    app.command("score")(score)

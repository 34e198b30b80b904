"""`ropecheck check PATH`: what a contributor's checkout changes, against its base."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from ropecheck.conformance.cli import complete, early
from ropecheck.conformance.cli.options import (
    KNOWN,
    KnownOption,
    LimitOption,
    PhaseOption,
    ReportOption,
    console,
    limit_for,
    needs_packages,
    reports_for,
    say,
    workers_for,
)
from ropecheck.conformance.errors import GaveUp, UsageError, meant
from ropecheck.conformance.known import failures as known_list
from ropecheck.conformance.report.terminal import Terminal
from ropecheck.conformance.run import answers, phases
from ropecheck.conformance.run.base import Base, Planned
from ropecheck.conformance.run.choice import Choice, words_of
from ropecheck.conformance.run.edits import edits
from ropecheck.conformance.run.events import Listener
from ropecheck.conformance.run.phases import Options, Phase
from ropecheck.conformance.run.pool import Pool
from ropecheck.conformance.run.relevant import Relevant, only
from ropecheck.conformance.run.seat import RunLimits
from ropecheck.conformance.run.session import Settings, pool_of, verdict_of
from ropecheck.conformance.run.session import run as run_session
from ropecheck.conformance.run.warm import Warm
from ropecheck.conformance.scenario.operations import Scenario
from ropecheck.conformance.scenarios.chosen import chosen
from ropecheck.conformance.scenarios.chosen.laws import scenarios as laws
from ropecheck.conformance.store.files import read_any, subject_of
from ropecheck.conformance.subject import Subject
from ropecheck.conformance.targets import registry as targets
from ropecheck.conformance.targets.changed import changed_functions
from ropecheck.conformance.targets.checkout import (
    Checkout,
    at_commit,
    checkout_of,
    commit_of,
    default_base,
    release_of,
    target_of,
)
from ropecheck.conformance.targets.provisioned import home
from ropecheck.conformance.targets.registry import Target
from ropecheck.spec.modes import all_modes
from ropecheck.spec.rules import all_rules

OUT = Path(".ropecheck") / "check"
PHASES = ("chosen", "laws")
"""What a check runs where no phase is named: some seconds, every mode and route."""


def check(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A checkout of SGLang.")],
    base: Annotated[
        str, typer.Option("--base", help="Git ref or release to compare with; `known`: the known-failure list.")
    ] = "",
    mode: Annotated[
        list[str] | None,
        typer.Option(
            "--mode", help="Only this forward mode; may be repeated.", autocompletion=complete.of(complete.modes)
        ),
    ] = None,
    rule: Annotated[
        list[str] | None,
        typer.Option("--rule", help="Only this rule; may be repeated.", autocompletion=complete.of(complete.rules)),
    ] = None,
    keyword: Annotated[str, typer.Option("-k", help="Words in scenarios' names: 'media and not padded'.")] = "",
    changed: Annotated[
        bool, typer.Option("--changed", help="Only scenarios that run a function which differs from the base.")
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Stay, and check again what changed whenever a file is saved.")
    ] = False,
    fail_fast: Annotated[bool, typer.Option("--fail-fast", help="End at the first new finding.")] = False,
    max_failures: Annotated[int, typer.Option("--max-failures", help="End after so many new findings.")] = 0,
    last_failed: Annotated[bool, typer.Option("--last-failed", help="Only what failed last time.")] = False,
    phase: PhaseOption = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of everything random.")] = 0,
    out: Annotated[Path, typer.Option("--out", help="Folder for reports, failures and logs.")] = OUT,
    report: ReportOption = "junit,json,html",
    time_limit: LimitOption = 20.0,
    known: KnownOption = KNOWN,
) -> int:
    """What a checkout of SGLang does otherwise than its base: new, changed and gone failures."""
    checkout = checkout_of(path)
    if max_failures < 0:
        raise UsageError(f"--max-failures {max_failures}: must be 0 or more")
    choice = Choice(
        modes=_named("mode", mode or (), (*all_modes(), "scheduler")),
        rules=_named("rule", rule or (), all_rules()),
        words=words_of(keyword),
    )
    name = str(path) if "/" in str(path) else f"./{path}"
    target = target_of(checkout, name)
    needs_packages(target)
    out.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        warm = early.warm_for(target, out / "imports.log") or Warm(target, out / "imports.log")
        stack.callback(warm.close)
        warm.begin()
        beside = base_of(base or default_base(checkout) or "known", path)
        against = "the known-failure list" if beside is None else beside.name
        say(f"{name}, code {checkout.identity}, against {against}: importing the engine")
        settings = Settings(
            target=target,
            workers=1,
            out=out,
            options=Options(seed=seed),
            limits=RunLimits(scenario=limit_for(time_limit)),
            known_folder=known,
            choice=choice,
            witnesses=False,
            most_new=1 if fail_fast else max_failures,
            complete=False,
        )
        running = stack.enter_context(beside_it(beside, settings, warm))
        known_base = running is None or running.known  # it needs no core of its own then
        settings = replace(settings, base=running, workers=max(workers_for(0) - (not known_base), 1))

        def once(checkout: Checkout, phases: tuple[Phase, ...], witnesses: bool = False) -> int:
            asked = replace(settings, target=target_of(checkout, name), phases=phases, witnesses=witnesses)
            with pool_of(asked, warm=warm) as pool:
                listeners: list[Listener] = [*reports_for(report, out), Terminal(console(), brief=True)]
                return run_session(asked, listeners, pool).exit_code

        commit = "" if base == "known" or release_of(base) else base
        commit = commit or default_base(checkout) or "HEAD"
        if last_failed:
            code = once(checkout, (_phase("last failed", _last_failed(out)),))
        else:
            phases = phases_of(phase, beside is not None, known)
            first = _touching(checkout, commit)
            if changed:
                if first is None:
                    raise UsageError(f"--changed: nothing of sglang differs from {commit}")
                phases = tuple(only(one, first) for one in phases) if phase else ()
            code = once(
                checkout,
                phases if first is None else (first.phase(_some(), _FURTHER), *phases),
                witnesses=beside is None and not changed,
            )
        if watch:
            code = _watched(checkout, commit, code, once, out)
        return code


def _watched(
    checkout: Checkout, commit: str, code: int, once: Callable[[Checkout, tuple[Phase, ...]], int], out: Path
) -> int:
    """Check again at every edit, until Ctrl-C: what the edits touch and what failed last time. The last exit code."""
    say = console().print
    say("watching; Ctrl-C ends")
    with suppress(KeyboardInterrupt):
        for edited in edits(checkout):
            first = _touching(edited, commit)
            failed = _failed(out)
            phases = [_phase("last failed", failed)] if failed else []
            if first is not None:
                phases.append(first.phase(_some(), _FURTHER))
            if not phases:
                say(f"{edited.identity}: nothing differs from {commit}")
                code = 0
                continue
            try:
                code = once(edited, tuple(phases))
            except GaveUp as error:
                say(f"{edited.identity}: {error}")
                code = 3
            say("watching; Ctrl-C ends")
    return code


def _some() -> list[Scenario]:
    """What a change is looked for in."""
    return [*chosen(), *laws()]


SERVERS = ("plain", "retracting_overlap", "eagle")
"""Configurations of the scheduler whose chosen scripts a change is looked for in: each takes seconds to start."""
RARE = (("overlap_mixed",), ("two_batches", "two_batches_eagle"))
"""Where what those do not run is looked for, one after the other."""


def _tables() -> list[Subject]:
    """Where a change is looked for that none of those runs: routes and prompt tables .."""
    from ropecheck.conformance.families.cases import all_cases
    from ropecheck.conformance.routes.cases import cases

    return [*cases("sglang"), *all_cases("sglang", 0, 0)]


def _scripts(servers: tuple[str, ...] = SERVERS) -> list[Subject]:
    """.. and then clients' scripts."""
    from ropecheck.conformance.scripts.chosen import all_scripts

    return [one for one in all_scripts() if one.server in servers]


_FURTHER: tuple[Callable[[], list[Subject]], ...] = (
    _tables,
    _scripts,
    *(partial(_scripts, servers) for servers in RARE),
)


def _touching(checkout: Checkout, commit: str) -> Relevant | None:
    """The scenarios that a checkout's changes touch; None where nothing of the engine changed."""
    found = changed_functions(checkout, commit)
    return Relevant(found, home() / "reach.json", commit_of(checkout, commit)) if found else None


@contextmanager
def beside_it(beside: Target | None, settings: Settings, warm: Warm | None = None) -> Iterator[Base | None]:
    """The base's worker, started beside the other one; forked by `warm` where that can be."""
    if beside is None:
        yield None
        return
    pool: Pool[Planned] = Pool(
        beside,
        device=settings.device,
        workers=1,
        out=settings.out / "base",
        limits=settings.limits,
        warm=warm if warm is not None and warm.serves(beside) else None,
        version=beside.identity,
    )
    with Base(beside.name, pool, verdict_of, answers.place_of(beside, settings.device)) as base:
        yield base


def base_of(base: str, path: Path) -> Target | None:
    """The target to compare with; None: the known-failure list. Raises UsageError for what is neither."""
    if base == "known":
        return None
    if release := release_of(base):
        return targets.find(release, "cpu")
    checkout = at_commit(checkout_of(path), base)
    return target_of(checkout, checkout.commit)


def phases_of(names: list[str] | None, compared: bool, known: Path) -> tuple[Phase, ...]:
    """The named phases, or the usual ones; where there is a base the known failures' witnesses come after them."""
    chosen = phases.select(names or PHASES)
    if not compared:
        return chosen
    witnesses: list[Subject] = [entry.witness for entry in known_list.load(known)]
    return (*chosen, _phase("known failures' witnesses", witnesses))


def _phase(name: str, scenarios: list[Subject] | tuple[Subject, ...]) -> Phase:
    return Phase(name=name, summary="", drive=lambda driver: driver.check_all(scenarios, total=len(scenarios)))


def _last_failed(out: Path) -> list[Subject]:
    """Raises UsageError when nothing failed last time."""
    if not (found := _failed(out)):
        raise UsageError(f"--last-failed: nothing failed in {out}")
    return found


def _failed(out: Path) -> list[Subject]:
    return [subject_of(read_any(path)) for path in sorted((out / "failures").glob("*.json"))]


def _named(what: str, names: Iterable[str], known: Iterable[str]) -> frozenset[str]:
    """Raises UsageError for a name that there is not."""
    every = list(known)
    for name in names:
        if name not in every:
            raise UsageError(f"--{what} {name!r}: unknown{meant(name, every)}; see `ropecheck list {what}s`")
    return frozenset(names)

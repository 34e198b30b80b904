"""`ropecheck check PATH`: what a contributor's checkout changes, against its base."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from ropecheck.adapters import protocol
from ropecheck.conformance.cli.options import (
    KNOWN,
    KnownOption,
    LimitOption,
    ReportOption,
    console,
    limit_for,
    reports_for,
)
from ropecheck.conformance.errors import UsageError, meant
from ropecheck.conformance.known import failures as known_list
from ropecheck.conformance.plan.planner import plan
from ropecheck.conformance.report.terminal import Terminal
from ropecheck.conformance.run import phases
from ropecheck.conformance.run.base import Base, Planned
from ropecheck.conformance.run.choice import Choice, words_of
from ropecheck.conformance.run.events import Listener
from ropecheck.conformance.run.phases import Options, Phase
from ropecheck.conformance.run.pool import Pool
from ropecheck.conformance.run.relevant import Relevant, relevant
from ropecheck.conformance.run.seat import Limits
from ropecheck.conformance.run.session import Settings, pool_of, verdict_of
from ropecheck.conformance.run.session import run as run_session
from ropecheck.conformance.run.subject import AnyPlan, Subject
from ropecheck.conformance.run.trace import traced_job
from ropecheck.conformance.scenario.operations import Scenario
from ropecheck.conformance.scenarios.chosen import chosen
from ropecheck.conformance.store.files import read_any, subject_of
from ropecheck.conformance.targets import registry as targets
from ropecheck.conformance.targets.changed import changed_functions, touches
from ropecheck.conformance.targets.checkout import Checkout, at_commit, checkout_of, default_base, release_of, target_of
from ropecheck.conformance.targets.registry import Target
from ropecheck.spec.rules import all_rules

OUT = Path(".ropecheck") / "check"
PHASES = ("chosen", "laws")
"""What a check runs where no phase is named: some seconds, every mode and route."""


def check(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A checkout of SGLang.")],
    base: Annotated[
        str, typer.Option("--base", help="Git ref or release to compare with; `known`: the known-failure list.")
    ] = "",
    mode: Annotated[list[str] | None, typer.Option("--mode", help="Only this forward mode; may be repeated.")] = None,
    rule: Annotated[list[str] | None, typer.Option("--rule", help="Only this rule; may be repeated.")] = None,
    keyword: Annotated[str, typer.Option("-k", help="Words in scenarios' names: 'media and not padded'.")] = "",
    changed: Annotated[
        bool, typer.Option("--changed", help="Only scenarios that run a function which differs from the base.")
    ] = False,
    fail_fast: Annotated[bool, typer.Option("--fail-fast", help="End at the first new finding.")] = False,
    max_failures: Annotated[int, typer.Option("--max-failures", help="End after so many new findings.")] = 0,
    last_failed: Annotated[bool, typer.Option("--last-failed", help="Only what failed last time.")] = False,
    phase: Annotated[list[str] | None, typer.Option("--phase", help="Phase to run; may be repeated.")] = None,
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
    target = target_of(checkout, str(path) if "/" in str(path) else f"./{path}")
    beside = base_of(base or default_base(checkout) or "known", path)
    failed = _last_failed(out) if last_failed else ()
    settings = Settings(
        target=target,
        workers=1,
        out=out,
        phases=(_phase("last failed", failed),) if last_failed else phases_of(phase, beside is not None, known),
        options=Options(seed=seed),
        limits=Limits(scenario=limit_for(time_limit)),
        known_folder=known,
        choice=Choice(modes=frozenset(mode or ()), rules=_rules(rule or ()), words=words_of(keyword)),
        witnesses=beside is None and not last_failed,
        most_new=1 if fail_fast else max_failures,
        complete=False,
    )
    touched = _touched(checkout, base) if changed else frozenset()
    with beside_it(beside, settings) as running, ExitStack() as stack:
        listeners: list[Listener] = [*reports_for(report, out), Terminal(console())]
        warm = None
        if changed:
            warm = stack.enter_context(pool_of(settings))
            warm.start()
            settings = replace(settings, choice=replace(settings.choice, also=_running_them(warm, touched)))
        return run_session(replace(settings, base=running), listeners, warm).exit_code


def _touched(checkout: Checkout, base: str) -> frozenset[tuple[str, str]]:
    """The functions that the change touches. Raises UsageError when there are none."""
    commit = "" if base == "known" or release_of(base) else base
    commit = commit or default_base(checkout) or "HEAD"
    found = changed_functions(checkout, commit)
    if not found:
        raise UsageError(f"--changed: nothing of sglang differs from {commit}")
    return found


def _running_them(pool: Pool[AnyPlan], touched: frozenset[tuple[str, str]]) -> Relevant:
    """The scenarios that run them. Raises UsageError when none does."""

    def ran(scenario: Scenario) -> bool:
        planned = plan(scenario)
        for _, answer in pool.answers([replace(planned, job=traced_job(planned.job))]):
            steps = answer.traced if isinstance(answer, protocol.Answer) else ()
            return touches((name for step in steps for name in step), touched)
        return False

    found = relevant(chosen(), ran)
    names = ", ".join(sorted(f"{file} {name}".strip() for file, name in touched))
    if not found.touched:
        raise UsageError(f"--changed: no scenario runs what changed: {names}")
    console().print(f"{len(found.touched)} of {len(found.traced)} kinds of scenarios run what changed: {names}")
    return found


@contextmanager
def beside_it(beside: Target | None, settings: Settings) -> Iterator[Base | None]:
    """The base's worker, started beside the other one."""
    if beside is None:
        yield None
        return
    pool: Pool[Planned] = Pool(
        beside, device=settings.device, workers=1, out=settings.out / "base", limits=settings.limits
    )
    with Base(beside.name, pool, verdict_of) as base:
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
    chosen = phases.select(names or PHASES)
    if not compared:
        return chosen
    witnesses: list[Subject] = [entry.witness for entry in known_list.load(known)]
    return (_phase("known failures' witnesses", witnesses), *chosen)


def _phase(name: str, scenarios: list[Subject] | tuple[Subject, ...]) -> Phase:
    return Phase(name=name, summary="", drive=lambda driver: driver.check_all(scenarios, total=len(scenarios)))


def _last_failed(out: Path) -> list[Subject]:
    found = [read_any(path) for path in sorted((out / "failures").glob("*.json"))]
    if not found:
        raise UsageError(f"--last-failed: nothing failed in {out}")
    return [subject_of(one) for one in found]


def _rules(names: list[str] | tuple[str, ...]) -> frozenset[str]:
    for name in names:
        if name not in all_rules():
            raise UsageError(f"--rule {name!r}: unknown{meant(name, all_rules())}; see `ropecheck list rules`")
    return frozenset(names)

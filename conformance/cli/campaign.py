"""The verb `campaign`: hours of blocks on many workers, and one report."""

from pathlib import Path
from typing import Annotated

import typer

from ropecheck.conformance.campaign import blocks as campaign_blocks
from ropecheck.conformance.campaign.driver import CampaignDriver
from ropecheck.conformance.campaign.ledger import CampaignState, Ledger, folder_of
from ropecheck.conformance.campaign.progress import Progress
from ropecheck.conformance.campaign.ray_crew import RayCrew
from ropecheck.conformance.campaign.station import identity
from ropecheck.conformance.cli.options import (
    KNOWN,
    CorpusOption,
    CoverOption,
    DeviceOption,
    KnownOption,
    LimitOption,
    limit_for,
    say,
)
from ropecheck.conformance.errors import UsageError
from ropecheck.conformance.results import show
from ropecheck.conformance.results.state import exit_code
from ropecheck.conformance.store.files import claimed
from ropecheck.conformance.targets.registry import DEFAULT

LONGEST_HOURS = 24.0 * 365


def campaign(
    hours: Annotated[float, typer.Option("--hours", help="How long, all drivers of this campaign together.")] = 1.0,
    targets: Annotated[str, typer.Option("--targets", help="Engines, by commas.")] = DEFAULT,
    device: DeviceOption = "cpu",
    ray: Annotated[str, typer.Option("--ray", help="Address of a Ray cluster; default: this machine alone.")] = "",
    workers: Annotated[int, typer.Option("--workers", help="Most places at a time; 0: one per core or GPU.")] = 0,
    out: Annotated[
        Path, typer.Option("--out", help="The campaign's folder; one that is there already is resumed.")
    ] = Path(".ropecheck/campaign"),
    seed: Annotated[int, typer.Option("--seed", help="Seed of the first run; the search goes on from it.")] = 0,
    bound: Annotated[str | None, typer.Option("--bound", help="Size of the exhaustive scope.")] = None,
    phase: Annotated[list[str] | None, typer.Option("--phase", help="Phase to run; may be repeated.")] = None,
    shards: Annotated[int, typer.Option("--shards", help="Blocks of the first run of each target.")] = 16,
    rounds: Annotated[int, typer.Option("--rounds", help="Seeds to search after it; -1: until the time is up.")] = -1,
    guided: Annotated[bool, typer.Option("--guided", help="The search follows what it reaches.")] = False,
    cover: CoverOption = False,
    corpus: CorpusOption = None,
    shrink: Annotated[bool, typer.Option("--shrink/--no-shrink", help="End with smaller witnesses.")] = True,
    time_limit: LimitOption = 20.0,
    known: KnownOption = KNOWN,
    module: Annotated[
        list[str] | None, typer.Option("--import", help="Module that registers targets of your own.")
    ] = None,
) -> int:
    """A whole run of every target, then one seed after another, on all workers of this machine or of a Ray cluster."""
    if not 0 < hours <= LONGEST_HOURS:
        raise UsageError(f"--hours {hours:g}: must be above 0 and at most {LONGEST_HOURS:g}")
    if workers < 0:
        raise UsageError(f"--workers {workers}: must be 0 or more")
    modules = tuple(module or ())
    _import(modules)
    plan = campaign_blocks.CampaignPlan(
        targets=tuple(name.strip() for name in targets.split(",") if name.strip()),
        device=device,
        seed=seed,
        bound=bound,
        shards=shards,
        phases=tuple(phase or ()),
        rounds=None if rounds < 0 else rounds,
        guided=guided,
        cover=cover,
        corpus=str(corpus.resolve()) if corpus is not None else None,
    )
    campaign_blocks.check(plan)
    with claimed(out):
        ledger = Ledger(out, plan, identity())
        if ledger.resumed:
            say(f"resumed: {out} has {ledger.state.seconds / 60:.1f} min of it")
        crew = RayCrew(
            ray,
            device=device,
            most=workers,
            known=known,
            time_limit=limit_for(time_limit),
            modules=modules,
            warn=lambda line: say(f"warning: {line}"),
        )
        progress = Progress(say, out / "index.html")
        driver = CampaignDriver(
            plan=plan,
            ledger=ledger,
            crew=crew,
            seconds=hours * 3600,
            tell=progress,
            warn=lambda line: say(f"warning: {line}"),
        )
        interrupted = False
        try:
            driver.run()
            if shrink:
                driver.shrink()
        except KeyboardInterrupt:
            interrupted = True
        finally:
            ledger.close(driver.spent)
            progress(driver, force=True)
            crew.close()
    for target, column in ledger.state.columns.items():
        say(f"\n{target}: {out / folder_of(target)}")
        say(*show.lines(column.report) if column.report else ["nothing was done"])
        for failed in column.failed:
            say(f"block {failed.number} could not be run: {failed.why}")
    return 130 if interrupted else code_of(ledger.state)


def code_of(state: CampaignState) -> int:
    """1 before 3 before 4 before 0, over all targets."""
    codes = [exit_code(column.report) if column.report else 4 for column in state.columns.values()]
    codes += [3 for column in state.columns.values() if column.failed]
    return next((code for code in (1, 3, 4) if code in codes), 0)


def _import(modules: tuple[str, ...]) -> None:
    import importlib

    for module in modules:
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise UsageError(f"--import {module}: {error}") from error

"""The command line: `ropecheck`. Exit codes: 0 all as expected; 1 new, changed, stale or expired failure; 2 usage or
configuration; 3 something could not run; 4 nothing was checked; 130 interrupted."""

import errno
import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from ropecheck.conformance import modes
from ropecheck.conformance.cli import bundle as cli_bundle
from ropecheck.conformance.cli import campaign as cli_campaign
from ropecheck.conformance.cli import check as cli_check
from ropecheck.conformance.cli import corpus as cli_corpus
from ropecheck.conformance.cli import docs as cli_docs
from ropecheck.conformance.cli import early
from ropecheck.conformance.cli import export as cli_export
from ropecheck.conformance.cli import known as cli_known
from ropecheck.conformance.cli import live as cli_live
from ropecheck.conformance.cli import look as cli_look
from ropecheck.conformance.cli import prove as cli_prove
from ropecheck.conformance.cli import record as cli_record
from ropecheck.conformance.cli import report as cli_report
from ropecheck.conformance.cli import targets as cli_targets
from ropecheck.conformance.cli import trace as cli_trace
from ropecheck.conformance.cli import vectors as cli_vectors
from ropecheck.conformance.cli.config import defaults
from ropecheck.conformance.cli.options import (
    KNOWN,
    OUT,
    CorpusOption,
    CoverOption,
    DeviceOption,
    KnownOption,
    LimitOption,
    OutOption,
    PhaseOption,
    ReportOption,
    TargetOption,
    WorkersOption,
    console,
    limit_for,
    one_of,
    reports_for,
    shard_for,
    target_for,
    workers_for,
)
from ropecheck.conformance.errors import GaveUp, UsageError, line_of, visible
from ropecheck.conformance.known.find import find_scenario
from ropecheck.conformance.report.terminal import Terminal
from ropecheck.conformance.run import phases
from ropecheck.conformance.run.phases import Options, Phase
from ropecheck.conformance.run.seat import RunLimits
from ropecheck.conformance.run.session import Settings, refuse_illegal
from ropecheck.conformance.run.session import run as run_session
from ropecheck.conformance.store.files import AnyStored, Stored, subject_of
from ropecheck.conformance.subject import Subject
from ropecheck.conformance.targets.pip_overlay import ProvisionError
from ropecheck.conformance.targets.registry import DEFAULT
from ropecheck.conformance.version import spec_hash, suite_version

app = typer.Typer(
    name="ropecheck",
    add_completion=True,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"ropecheck {suite_version()}, spec {spec_hash()}, python {platform.python_version()}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Versions of suite and specification.")
    ] = False,
) -> None:
    """A conformance suite for multimodal rotary positions in LLM engines. Every verb takes --mode-file FILE, a forward
    mode of your own."""


app.add_typer(cli_known.app, name="known")
app.add_typer(cli_vectors.app, name="vectors")
app.add_typer(cli_trace.app, name="trace")
app.add_typer(cli_look.list_app, name="list")
app.add_typer(cli_report.app, name="report")
app.add_typer(cli_corpus.app, name="corpus")
app.add_typer(cli_docs.app, name="docs")
app.command("explain")(cli_look.explain)
app.command("doctor")(cli_look.doctor)
cli_targets.mount(app)
app.command("bundle")(cli_bundle.make)
app.command("check")(cli_check.check)
app.command("campaign")(cli_campaign.campaign)
app.command("export")(cli_export.export)
app.command("prove")(cli_prove.prove)
app.command("record")(cli_record.record)
app.command("live")(cli_live.live)


@app.command()
def run(
    target: TargetOption = DEFAULT,
    device: DeviceOption = "cpu",
    phase: PhaseOption = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of everything random.")] = 0,
    shard: Annotated[str, typer.Option("--shard", help="i/n: the i-th of n parts, by scenario id.")] = "1/1",
    out: OutOption = OUT,
    report: ReportOption = "junit,json",
    workers: WorkersOption = 0,
    time_limit: LimitOption = 20.0,
    bound: Annotated[str | None, typer.Option("--bound", help="Size of the exhaustive scope.")] = None,
    known: KnownOption = KNOWN,
    corpus: CorpusOption = None,
    cover: CoverOption = False,
    write_baseline: Annotated[
        bool, typer.Option("--write-baseline", help="Keep what this run reaches as what the target must reach.")
    ] = False,
) -> int:
    """Check a target: known failures' witnesses, then the phases."""
    chosen = target_for(target, device)
    kept = phases.select(["corpus"], chosen, device) if corpus is not None else ()
    settings = Settings(
        target=chosen,
        device=device,
        workers=workers_for(workers),
        out=out,
        phases=(*kept, *(one for one in phases.select(phase or (), chosen, device) if one not in kept)),
        options=Options(seed=seed, bound=bound, corpus=corpus),
        cover=cover,
        shard=shard_for(shard),
        limits=RunLimits(scenario=limit_for(time_limit)),
        known_folder=known,
        complete=not phase,
        write_baseline=write_baseline,
        warm=early.warm_for(chosen, out / "imports.log"),
    )
    return run_session(settings, [*reports_for(report, out), Terminal(console())]).exit_code


@app.command()
def fuzz(
    max_time: Annotated[float, typer.Option("--max-time", help="Seconds to search.")] = 60.0,
    target: TargetOption = DEFAULT,
    device: DeviceOption = "cpu",
    seed: Annotated[int, typer.Option("--seed", help="First seed; default: from the clock.")] = -1,
    seeds: Annotated[
        int, typer.Option("--seeds", min=0, help="So many seeds to their ends, instead of a time; 0: a time.")
    ] = 0,
    out: OutOption = OUT,
    report: ReportOption = "junit,json",
    workers: WorkersOption = 0,
    time_limit: LimitOption = 20.0,
    known: KnownOption = KNOWN,
    guided: Annotated[
        bool, typer.Option("--guided", help="Follow scenarios that reach something new, until the time is up.")
    ] = False,
    scripts: Annotated[
        bool, typer.Option("--scripts", help="Clients' scripts for the engine's real scheduler, not scenarios.")
    ] = False,
    corpus: CorpusOption = None,
    cover: CoverOption = False,
) -> int:
    """Search at random until the time is up or something new fails; its smallest witness is stored for `replay`.
    --seeds: draw these, and go on after new failures. --guided: go on as well, and keep in --corpus what reaches
    something new."""
    if guided and scripts:
        raise UsageError("fuzz: --guided follows scenarios, not --scripts")
    seed = seed if seed >= 0 else int(time.time()) % 1_000_000
    chosen = target_for(target, device)
    settings = Settings(
        target=chosen,
        device=device,
        workers=workers_for(workers),
        out=out,
        phases=phases.select(["guided" if guided else "fuzz-scripts" if scripts else "fuzz"], chosen),
        options=Options(seed=seed, max_time=limit_for(max_time, "--max-time"), seeds=seeds or None, corpus=corpus),
        cover=cover,
        limits=RunLimits(scenario=limit_for(time_limit)),
        known_folder=known,
        complete=False,
    )
    return run_session(settings, [*reports_for(report, out), Terminal(console())]).exit_code


@app.command()
def replay(
    what: Annotated[list[str], typer.Argument(metavar="ID|FILE...", help="Scenario ids or files.")],
    target: Annotated[str, typer.Option("--target", help="Default: the one that the file names, or sglang.")] = "",
    device: Annotated[str, typer.Option("--device", help="Default: the one that the file names, or cpu.")] = "",
    out: Annotated[Path, typer.Option("--out", help="Run whose failures are looked up.")] = OUT,
    time_limit: LimitOption = 20.0,
    known: KnownOption = KNOWN,
) -> int:
    """Run single scenarios again, on any target or device, and show what they do."""
    stored = [find_scenario(name, out, known) for name in what]
    for name, one in zip(what, stored, strict=True):
        if isinstance(one, Stored):
            refuse_illegal(name, one.scenario, device or one.device or "cpu")
    target = target or one_of("target", (one.target for one in stored)) or DEFAULT
    device = device or one_of("device", (one.device for one in stored)) or "cpu"
    folder = out / "replay"
    settings = Settings(
        target=target_for(target, device),
        device=device,
        workers=1,
        out=folder,
        phases=(_phase_of(stored),),
        limits=RunLimits(scenario=limit_for(time_limit)),
        known_folder=known,
        witnesses=False,
        known_levels=True,
        shrink_seconds=0,
        complete=False,
    )
    return run_session(settings, [*reports_for("json", folder), Terminal(console(), full=True)]).exit_code


def _phase_of(stored: Sequence[AnyStored]) -> Phase:
    scenarios: list[Subject] = [subject_of(one) for one in stored]
    return Phase(name="replay", summary="", drive=lambda driver: driver.check_all(scenarios, total=len(scenarios)))


def without_mode_files(argv: Sequence[str]) -> tuple[list[str], list[Path]]:
    """The command line without `--mode-file FILE`, which every verb takes, and those files. Raises UsageError."""
    kept, files = [], []
    left = iter(argv)
    for word in left:
        name, equals, value = word.partition("=")
        if name != "--mode-file":
            kept.append(word)
            continue
        file = value if equals else next(left, "")
        if not file:
            raise UsageError("--mode-file wants a file that declares a forward mode")
        files.append(Path(file))
    return kept, files


def execute(argv: Sequence[str]) -> int:
    """Run one command line and return its exit code; errors are one line on standard error."""
    try:
        arguments, files = without_mode_files(argv)
        modes.install(files)
        command = typer.main.get_command(app)
        chosen = defaults(command, Path.cwd())
        result = command.main(arguments, prog_name="ropecheck", standalone_mode=False, default_map=chosen)
        return result if isinstance(result, int) else 0
    except UsageError as error:
        return _complain(str(error), 2)
    except GaveUp as error:
        return _complain(str(error), 3)
    except ProvisionError as error:
        return _complain(str(error), error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return _complain("interrupted", 130)
    except BrokenPipeError:
        return 141  # the reader of our output left, as with `| head`
    except OSError as error:
        return _complain(line_of(error), 3 if error.errno in (errno.ENOSPC, errno.EDQUOT) else 2)
    except (MemoryError, OverflowError, RecursionError) as error:
        return _complain(f"{type(error).__name__}: {error}", 2)
    except Exception as error:
        # Click's own errors; which module they live in depends on typer's version.
        message = getattr(error, "format_message", None)
        if message is None:
            raise
        if type(error).__name__ == "NoArgsIsHelpError":
            print(message(), file=sys.stderr)
            return 2
        return _complain(message(), 2)


def _complain(message: str, code: int) -> int:
    print(f"ropecheck: {visible(message.strip())}", file=sys.stderr)
    return code

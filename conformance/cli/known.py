"""The verbs of the known-failure list: check, prune, add."""

import datetime
from pathlib import Path
from typing import Annotated

import typer

from ropecheck.conformance.cli.options import (
    KNOWN,
    DeviceOption,
    KnownOption,
    LimitOption,
    TargetOption,
    console,
    limit_for,
    reports_for,
    say,
    target_for,
)
from ropecheck.conformance.errors import UsageError
from ropecheck.conformance.families.case import Case
from ropecheck.conformance.known import failures as known_list
from ropecheck.conformance.known.failures import Entry
from ropecheck.conformance.report.terminal import Terminal
from ropecheck.conformance.run.events import Summary
from ropecheck.conformance.run.seat import RunLimits
from ropecheck.conformance.run.session import Settings
from ropecheck.conformance.run.session import run as run_session
from ropecheck.conformance.store.files import read_any, subject_of
from ropecheck.conformance.targets.registry import DEFAULT
from ropecheck.conformance.versions import numbered

app = typer.Typer(help="The list of known failures.", no_args_is_help=True)

_FOLDER = Path(".ropecheck") / "known"


@app.command()
def check(
    target: TargetOption = DEFAULT,
    device: DeviceOption = "cpu",
    time_limit: LimitOption = 20.0,
    known: KnownOption = KNOWN,
) -> int:
    """Replay every entry's witness: is what the list says still so?"""
    summary = _replay(target, device, time_limit, known)
    for one in summary.known:
        say(f"{one.state:8} {one.known.name}: {one.message}")
    return summary.exit_code


@app.command()
def prune(
    target: TargetOption = DEFAULT,
    device: DeviceOption = "cpu",
    time_limit: LimitOption = 20.0,
    known: KnownOption = KNOWN,
) -> int:
    """Remove the entries whose witness passes now. Changed and expired ones need a person."""
    summary = _replay(target, device, time_limit, known)
    entries = known_list.load(known)
    left = 0
    for one in summary.known:
        if one.state == "stale" and isinstance(one.known, known_list.Known):
            known_list.remove(one.known, entries)
            say(f"removed {one.known.path}: {one.message}")
        elif one.state != "open":
            left += 1
            say(f"kept {one.known.path}, {one.state}: {one.message}")
    if summary.interrupted:
        return 130
    if any(one.state == "unrun" for one in summary.known) or summary.gave_up:
        return 3
    return 1 if left else 0


@app.command()
def add(
    file: Annotated[Path, typer.Argument(help="A stored failure, OUT/failures/ID.json.")],
    reason: Annotated[str, typer.Option("--reason", help="Why the expected value is right, in words.")],
    link: Annotated[str, typer.Option("--link", help="Where the bug is reported.")],
    versions: Annotated[str, typer.Option("--versions", help="Default: the version that failed, and later ones.")] = "",
    expires: Annotated[str, typer.Option("--expires", help="YYYY-MM-DD, after which the entry fails the run.")] = "",
    rule: Annotated[str, typer.Option("--rule", help="Only this rule's failures of the file.")] = "",
    known: KnownOption = KNOWN,
) -> None:
    """Add the failures of a stored file to the list, one entry each. Consequences are expected with their causes and
    get no entry."""
    stored = read_any(file)
    subject = subject_of(stored)
    if isinstance(subject, Case):
        raise UsageError(f"{file}: a prompt-table case; its differences stand in data/families.toml")
    causes = (failure for failure in stored.failures if not failure.follows)
    keys = sorted({failure.key for failure in causes if rule in ("", failure.rule)})
    if not keys:
        raise UsageError(f"{file}: failures: holds none{f' of rule {rule}' if rule else ''}")
    for option, text in (("--reason", reason), ("--link", link)):
        if not text.strip():
            raise UsageError(f"{option}: must not be empty")
    try:
        until = datetime.date.fromisoformat(expires) if expires else None
    except ValueError as error:
        raise UsageError(f"--expires {expires!r}: must be YYYY-MM-DD") from error
    versions = versions or (f">={stored.version}" if numbered(stored.version) else "")
    listed = {(entry.entry.key, entry.entry.target) for entry in known_list.load(known)}
    engine = stored.engine or stored.target
    numbers = {failure.key: known_list.shown(failure) for failure in stored.failures}
    for key in keys:
        if (key, engine) in listed:
            say(f"listed already: {' / '.join(key)}")
            continue
        entry = Entry(
            rule=key[0],
            mode=key[1],
            signature=key[2],
            target=engine,
            versions=versions,
            reason=reason,
            link=link,
            first_seen=datetime.date.today(),
            expires=until,
            witness=f"{subject.id}.json",
            shows=numbers[key],
        )
        say(f"added {known_list.add(known, entry, subject)}")


def _replay(target: str, device: str, time_limit: float, known: Path) -> Summary:
    settings = Settings(
        target=target_for(target, device),
        device=device,
        workers=1,
        out=_FOLDER,
        limits=RunLimits(scenario=limit_for(time_limit)),
        known_folder=known,
        complete=False,
    )
    return run_session(settings, [*reports_for("json", _FOLDER), Terminal(console())])

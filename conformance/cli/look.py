"""Verbs that look and do not judge: list, explain, doctor."""

import difflib
import platform
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from ropecheck.conformance.cards.bugs import address
from ropecheck.conformance.cards.shapes import PLACES, SHAPES, STATES, about
from ropecheck.conformance.cli import complete, requests
from ropecheck.conformance.cli import families as cli_families
from ropecheck.conformance.cli.options import KNOWN, DeviceOption, KnownOption, TargetOption, console, say, target_for
from ropecheck.conformance.errors import GaveUp, UsageError
from ropecheck.conformance.families.case import NOT_COVERED
from ropecheck.conformance.known import differences as family_known
from ropecheck.conformance.known import failures as known_list
from ropecheck.conformance.plan.planner import Plan
from ropecheck.conformance.prove.theorems import OUT_OF_REACH, THEOREMS
from ropecheck.conformance.run import phases
from ropecheck.conformance.run.pool import Pool
from ropecheck.conformance.scenario.domains import counts
from ropecheck.conformance.targets import registry as targets
from ropecheck.conformance.targets.registry import DEFAULT
from ropecheck.conformance.version import spec_hash, suite_version
from ropecheck.conformance.versions import newer_than_known
from ropecheck.spec.aliases import todays
from ropecheck.spec.modes import all_modes
from ropecheck.spec.modes.declaration import Mode
from ropecheck.spec.rules import Rule, all_rules

list_app = typer.Typer(help="List rules, modes, targets, families, phases or public requests.", no_args_is_help=True)


@list_app.command("rules")
def list_rules() -> None:
    """Every rule and its sentence."""
    _table([(rule.id, f"{rule.must} ({rule.only_on})" if rule.only_on else rule.must) for rule in all_rules().values()])


@list_app.command("modes")
def list_modes() -> None:
    """Every forward mode."""
    _table([(mode.name, mode.title) for mode in all_modes().values()])


@list_app.command("targets")
def list_targets() -> None:
    """Every target that can be named with --target."""
    _table([(t.name, f"{', '.join(t.devices)}  {t.note}".rstrip()) for t in targets.all_targets().values()])


@list_app.command("families")
def list_families(
    markdown: Annotated[bool, typer.Option("--markdown", help="As the table in docs/families.md.")] = False,
) -> None:
    """Every model family, and which target's prompt tables are checked."""
    if markdown:
        print(cli_families.markdown(), end="")
        return
    out = console()
    out.print(cli_families.table(), width=None if out.is_terminal else 200)
    out.print("\nnot covered:")
    _table([(f"  {name}", reason) for name, reason in NOT_COVERED.items()])


@list_app.command("requests")
def list_requests(
    markdown: Annotated[bool, typer.Option("--markdown", help="As the tables in docs/requests.md.")] = False,
) -> None:
    """What public requests can do that is not sent, field by field, and why."""
    if markdown:
        print(requests.markdown(), end="")
        return
    entries = [entry for found in requests.public_requests().classes().values() for entry in found]
    _table([(name, "; ".join(entry.left_out)) for entry in entries if entry.left_out for name in entry.fields])


@list_app.command("phases")
def list_phases() -> None:
    """Every phase of a run."""
    _table([(p.name, p.summary + ("" if p.default else " (only when named)")) for p in phases.all_phases().values()])


def _table(rows: list[tuple[str, str]]) -> None:
    width = max((len(name) for name, _ in rows), default=0)
    say(*(f"{name:{width}}  {text}" for name, text in rows))


def explain(
    name: Annotated[
        str,
        typer.Argument(
            metavar="RULE|MODE|SHAPE|STATE",
            help="Whatever a report names.",
            autocompletion=complete.of(complete.explainable),
        ),
    ],
    known: KnownOption = KNOWN,
) -> None:
    """What a rule says or a mode reads, where it comes from, and what is known to break it; what a shape such as
    "delta missing", a state such as "not offered" or a place such as "session" means."""
    rules, modes = all_rules(), all_modes()
    if name in modes:
        lines = _mode_explained(modes[name])
    elif name not in rules and (said := about(name)):
        lines = said
    else:
        id, mode = todays(name)
        if id not in rules:
            names = [*rules, *modes, *SHAPES, *STATES, *PLACES]
            close = dict.fromkeys(
                [*(n for n in names if name in n), *difflib.get_close_matches(name, names, cutoff=0.5)]
            )
            hint = f"; closest: {', '.join(list(close)[:3])}" if close else "; see `ropecheck list rules`"
            raise UsageError(f"unknown rule or mode {name!r}{hint}")
        lines = _explained(rules[id], known)
        if id != name:
            lines.insert(1, ("once", f"{name}: the same rule, of {mode} alone"))
    for label, text in lines:
        say(f"{label:8}  {text}" if label else text)


def _addressed(bugs: Iterable[str]) -> str:
    """Public bugs with their addresses."""
    return ", ".join(f"{bug} ({address(bug)})" for bug in bugs)


def _mode_explained(mode: Mode) -> list[tuple[str, str]]:
    lines = [("mode", mode.name), ("reads", mode.title)]
    for part in mode.parts:
        if mode.composite:
            lines.append(("rows of", f"{part.name}: {part.title}"))
        for field in part.fields:
            lines.append(("carries", f"{field.name}: {counts(field)}"))
    lines += [("", f"          {line}") for line in mode.doc.splitlines() if line.startswith((">>>", "[", "..."))]
    lines += [("padded", ", ".join(mode.buffers) or "no"), ("source", mode.source), ("stated", mode.stated)]
    if mode.copies is not None:
        extra = f", and {mode.host_copies} for lengths on the host" if mode.host_copies else ""
        lines.append(("copies", f"at most {mode.copies[0]} for text, {mode.copies[1]} with media{extra}"))
    lines += [("bugs", f"{rule}: {_addressed(bugs)}") for rule, bugs in mode.bugs.items()]
    return lines


def _explained(rule: Rule, known_folder: Path) -> list[tuple[str, str]]:
    lines = [("rule", rule.id), ("must", rule.must)]
    if rule.note:
        lines.append(("note", rule.note))
    if rule.only_on:
        lines.append(("devices", rule.only_on))
    lines.append(("source", rule.source))
    module, _, _ = rule.stated.partition(":")
    lines.append(("stated", f"{module.replace('.', '/')}.py:{rule.line} ({rule.stated})"))
    if rule.id in THEOREMS:
        lines.append(("proved", f"for all sizes, on the specification: `ropecheck prove {rule.id}`"))
        if limits := THEOREMS[rule.id].limits:
            lines.append(("", f"          limits: {limits}"))
    elif rule.id in OUT_OF_REACH:
        lines.append(("proved", f"not by `ropecheck prove`: {OUT_OF_REACH[rule.id]}"))
    lines.append(("bugs", _addressed(rule.bugs) or "none known"))
    entries = [known for known in known_list.load(known_folder) if known.entry.rule == rule.id]
    for known in entries:
        entry = known.entry
        versions = f" {entry.versions}" if entry.versions else ""
        lines.append(("known", f"{known.name}: {entry.target}{versions}, {entry.mode}: {entry.signature}"))
        lines.append(("", f"          {' '.join(entry.reason.split())} ({entry.link})"))
    differences = [entry for entry in family_known.load() if rule.id in entry.rules]
    for difference in differences:
        versions = f" {difference.versions}" if difference.versions else ""
        families = ", ".join(difference.families)
        lines.append(("known", f"{difference.id}: {difference.target}{versions}, {families}: {difference.link}"))
        lines.append(("", f"          {' '.join(difference.reason.split())} (shown by {difference.witness!r})"))
    if not entries and not differences:
        lines.append(("known", "no known failure breaks it"))
    return lines


def doctor(target: TargetOption = DEFAULT, device: DeviceOption = "cpu") -> int:
    """Start the target once and tell what was found: versions, modes, capabilities."""
    chosen = target_for(target, device)
    out = console()
    out.print(f"ropecheck {suite_version()}, spec {spec_hash()}, python {platform.python_version()} ({sys.executable})")
    say(f"worker: {' '.join(chosen.argv)}")
    try:
        with Pool[Plan](chosen, device=device, workers=1, out=Path(".ropecheck") / "doctor") as pool:
            hello = pool.start()
    except GaveUp as error:
        say(str(error))
        return 3
    out.print(f"engine {hello.target} {hello.version}, torch {hello.torch}, python {hello.python}, {hello.device}")
    if newer := newer_than_known(hello.target, hello.version):
        say(newer)
    for mode in sorted(hello.modes, key=hello.modes.__getitem__):
        if mode in hello.covered:
            how = f"driven as {hello.covered[mode]}"
        else:
            how = f"not driven: {hello.uncovered[mode]}" if mode in hello.uncovered else "UNKNOWN to the adapter"
        say(f"  mode {mode}: {how}")
    for name, found in sorted(hello.capabilities.items()):
        say(f"  {name}: {found or 'absent'}")
    for fake in hello.faked:
        say(f"  faked: {fake}")
    applying = known_list.applying(known_list.load(), hello.target, hello.version, device)
    out.print(f"known failures: {len(applying)} apply")
    return 0

"""report.json: what other tools read. The structs are the schema; data/report.schema.json is written from them:

python -m ropecheck.conformance.report.json_file > conformance/data/report.schema.json
"""

from pathlib import Path
from typing import Literal

import msgspec

from ropecheck.conformance.cards.build import cards
from ropecheck.conformance.judge.outcome import TableView
from ropecheck.conformance.report import part
from ropecheck.conformance.run.events import Event, Finding, RunEnded, Summary
from ropecheck.conformance.store.files import REPORTS, pretty, write_atomic

SCHEMA: Literal[5] = 5
"""Raised with every change that a reader could notice."""


class TargetReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    """As asked for with --target."""
    version: str
    device: str
    torch: str
    identity: str
    """Of a checkout: commit and hash of what is not committed."""


class TotalsReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    forwards: int
    scenarios: int
    """passed + failed + expected + not_offered + could_not_run."""
    passed: int
    failed: int
    """With at least one failure that no known-failure entry expects."""
    expected: int
    not_offered: int
    could_not_run: int
    workers: int
    seconds: float
    """From workers ready to verdicts done."""
    engine_seconds: float
    """Inside the engine's own constructors and functions, all workers."""
    compare_seconds: float
    """Comparing tables on the device, all workers; 0 where they are compared on the host."""


class RuleReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: str
    checked: int
    failed: int


class ModeReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: str
    checked: int
    """Forwards, or calls of a prompt-table builder (mode "prompt_table.FAMILY")."""
    failed: int


class KernelReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    mode: str
    name: str
    """An engine's function, or "triton NAME" for a kernel that Triton launched natively."""
    forwards: int
    """Checked forwards of this mode in which it is known to have run."""


class WitnessReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: str
    file: str
    """Relative to this report; `ropecheck replay` reads it."""
    found: tuple[int, int, str]
    """Operations, tokens and id of the smallest as it was found, before it was shrunk: merging goes by it."""


class FirstDifference(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    axis: str
    column: int | None
    request: int | None
    expected: int | str | None
    observed: int | str | None


class FindingReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    rule: str
    mode: str
    signature: str
    count: int
    """Failures, over all scenarios."""
    known: bool
    follows: str
    """The rule whose failure this one is a consequence of; "" for none."""
    witness: WitnessReport
    first_difference: FirstDifference | None
    message: str
    """One line: what was found, in numbers."""
    operation: int
    """Of the witness, from 0."""
    label: str
    """Which table of the operation."""
    location: str
    """Where the engine raised, "package/file.py:LINE function"; "" where it answered."""
    expected: TableView | None
    observed: TableView | None


class ScopeReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    bound: str | None
    canonical: int | None
    """Canonical scenarios in the bound."""
    certificate: str | None


class Report(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    schema: Literal[5]
    suite: str
    """"VERSION spec HASH"."""
    target: TargetReport
    seed: int
    totals: TotalsReport
    rules: tuple[RuleReport, ...]
    modes: tuple[ModeReport, ...]
    findings: tuple[FindingReport, ...]
    scope: ScopeReport
    kernels: tuple[KernelReport, ...]
    situations: dict[str, int]
    """"mode x situation" -> forwards that were an example of it."""
    warnings: tuple[str, ...]
    part: part.RunPart


def build(summary: Summary) -> Report:
    """The report of a run."""
    header, totals = summary.header, summary.totals
    return Report(
        schema=SCHEMA,
        suite=f"{header.suite} spec {header.spec}",
        target=TargetReport(
            name=header.target,
            version=header.hello.version,
            device=header.device,
            torch=header.hello.torch,
            identity=header.identity,
        ),
        seed=header.seed,
        totals=TotalsReport(
            **{name: getattr(totals, name) for name in TotalsReport.__struct_fields__[:-3]},
            seconds=round(totals.seconds, 6),
            engine_seconds=round(totals.engine_ns / 1e9, 6),
            compare_seconds=round(totals.compare_ns / 1e9, 6),
        ),
        rules=tuple(RuleReport(id=id, checked=c, failed=f) for id, (c, f) in sorted(summary.rules.items())),
        modes=tuple(ModeReport(id=id, checked=c, failed=f) for id, (c, f) in sorted(summary.modes.items())),
        findings=tuple(_finding(finding) for finding in summary.findings),
        scope=msgspec.convert(summary.scope, ScopeReport, from_attributes=True),
        situations=dict(sorted(summary.situations.items())),
        kernels=tuple(
            KernelReport(mode=mode, name=name, forwards=forwards)
            for mode, names in sorted(summary.ran.items())
            for name, forwards in sorted(names.items())
        ),
        warnings=tuple(all_warnings(summary)),
        part=part.build(summary),
    )


def _finding(finding: Finding) -> FindingReport:
    rule, mode, signature = finding.key
    return FindingReport(
        rule=rule,
        mode=mode,
        signature=signature,
        count=finding.count,
        known=not finding.unexpected,
        follows=finding.failure.follows,
        witness=WitnessReport(id=finding.scenario.id, file=finding.file, found=finding.found or finding.size),
        first_difference=msgspec.convert(finding.failure.difference, FirstDifference | None, from_attributes=True),
        message=finding.failure.message,
        operation=finding.failure.step,
        label=finding.failure.label,
        location=finding.failure.where,
        expected=finding.failure.expected,
        observed=finding.failure.observed,
    )


def all_warnings(summary: Summary) -> list[str]:
    """Warnings, and in words what else changes the exit code."""
    lines = list(summary.warnings)
    lines += [f"known failure {check.known.name} is {check.state}: {check.message}" for check in summary.broken_entries]
    lines += [
        f"could not run: {scenario.name} ({scenario.id}): {unrun.stage}: {unrun.message}"
        for scenario, unrun, _ in summary.unrun
    ]
    if summary.gave_up:
        lines.append(f"the run ended early: {summary.gave_up}")
    if summary.interrupted:
        lines.append("the run was interrupted")
    return lines


def listener(path: Path, event: Event) -> None:
    """Write the report when the run has ended, and beside it what people are shown of it, card by card."""
    if isinstance(event, RunEnded):
        write_atomic(path, pretty(build(event.summary)))
        write_atomic(path.with_name(REPORTS["cards"]), pretty(cards(event.summary)))

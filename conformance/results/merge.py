"""The report of several reports: of all shards of a run, exactly what that run reports.

What adds up is added: totals, rules, modes, kernels, situations, findings. What was never reached is what none of them
reached. Measured times cannot be equal to another run's: `workers` is the largest, and `seconds` how long so many
would have taken at the rate that was measured, so that workers x seconds and forwards / seconds keep their meaning.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import reduce
from typing import TypeVar

import msgspec

from ropecheck.conformance.errors import UsageError
from ropecheck.conformance.report import ranges
from ropecheck.conformance.report.json_file import (
    FindingReport,
    KernelReport,
    ModeReport,
    Report,
    RuleReport,
    ScopeReport,
    TotalsReport,
)
from ropecheck.conformance.report.part import KnownState, NotOfferedCount, RunPart
from ropecheck.conformance.results import covers as joining
from ropecheck.conformance.results.state import derived_warnings, own_warnings, whole
from ropecheck.conformance.run import baseline
from ropecheck.conformance.run.counts import added_counts
from ropecheck.conformance.run.events import BROKEN, MAX_UNRUN

T = TypeVar("T")


def merge(reports: Iterable[Report]) -> Report:
    """One report of all; of a single one, itself. Raises UsageError when they cannot be added up."""
    return reduce(add, reports)


def add(one: Report, other: Report) -> Report:
    """The report of both. Associative, and commutative but for the order of warnings."""
    _must_agree(one, other)
    part = _parts(one.part, other.part)
    added = Report(
        schema=one.schema,
        suite=one.suite,
        target=one.target,
        seed=min(one.seed, other.seed),
        totals=_totals(one.totals, other.totals),
        rules=tuple(_summed(RuleReport, ("id",), ("checked", "failed"), one.rules, other.rules)),
        modes=tuple(_summed(ModeReport, ("id",), ("checked", "failed"), one.modes, other.modes)),
        findings=_findings(one.findings, other.findings),
        scope=_scope(one.scope, other.scope, part),
        kernels=tuple(_summed(KernelReport, ("mode", "name"), ("forwards",), one.kernels, other.kernels)),
        situations=_counts(one.situations, other.situations),
        warnings=(),
        part=part,
    )
    own = list(dict.fromkeys([*own_warnings(one), *own_warnings(other)]))
    return msgspec.structs.replace(added, warnings=(*own, *derived_warnings(added)))


def _must_agree(one: Report, other: Report) -> None:
    for what, mine, yours in (
        ("suite", one.suite, other.suite),
        ("target", one.target.name, other.target.name),
        ("version", one.target.version, other.target.version),
        ("device", one.target.device, other.target.device),
        ("torch", one.target.torch, other.target.torch),
    ):
        if mine != yours:
            raise UsageError(f"reports of different runs do not add up: {what} {mine!r} and {yours!r}")


def _totals(one: TotalsReport, other: TotalsReport) -> TotalsReport:
    fields = {name: getattr(one, name) + getattr(other, name) for name in one.__struct_fields__}
    workers = max(one.workers, other.workers)
    spent = one.workers * one.seconds + other.workers * other.seconds
    fields |= {"workers": workers, "seconds": round(spent / workers, 6) if workers else 0.0}
    fields |= {name: round(fields[name], 6) for name in ("engine_seconds", "compare_seconds")}
    return TotalsReport(**fields)


def _summed(
    make: Callable[..., T], keys: Sequence[str], counts: Sequence[str], one: Iterable[T], other: Iterable[T]
) -> list[T]:
    """Rows of both with equal keys made into one, in the order of the keys."""
    total: dict[tuple[str, ...], dict[str, int]] = {}
    for row in (*one, *other):
        sums = total.setdefault(tuple(getattr(row, key) for key in keys), dict.fromkeys(counts, 0))
        for count in counts:
            sums[count] += getattr(row, count)
    return [make(**dict(zip(keys, key, strict=True)), **sums) for key, sums in sorted(total.items())]


def _counts(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in sorted({*one, *other})}


def _findings(one: Iterable[FindingReport], other: Iterable[FindingReport]) -> tuple[FindingReport, ...]:
    """As Tally keeps them: the smallest witness, of those that no entry expects if there are any."""
    found: dict[tuple[str, str, str], FindingReport] = {}
    for finding in (*one, *other):
        key = (finding.rule, finding.mode, finding.signature)
        before = found.get(key)
        if before is None:
            found[key] = finding
            continue
        best = min(before, finding, key=lambda each: (each.known, each.witness.found))
        found[key] = msgspec.structs.replace(best, count=before.count + finding.count)
    return tuple(sorted(found.values(), key=_shown))


def with_witnesses(report: Report, smaller: Report) -> Report:
    """The report with the other's witnesses of the same findings: what was found stays, how it is shown is smaller."""
    shown = {(one.rule, one.mode, one.signature): one for one in smaller.findings}
    findings = []
    for finding in report.findings:
        other = shown.get((finding.rule, finding.mode, finding.signature))
        if other is not None and other.witness.id != finding.witness.id and not finding.known:
            witness = msgspec.structs.replace(other.witness, found=finding.witness.found)
            finding = msgspec.structs.replace(other, count=finding.count, known=finding.known, witness=witness)
        findings.append(finding)
    return msgspec.structs.replace(report, findings=tuple(findings))


def _shown(finding: FindingReport) -> tuple[object, ...]:
    """As Summary.sort orders them."""
    return (finding.known, bool(finding.follows), finding.rule, finding.mode, finding.signature)


def _scope(one: ScopeReport, other: ScopeReport, part: RunPart) -> ScopeReport:
    """The larger bound, with the certificate of what is whole."""
    larger = max(one, other, key=lambda scope: (scope.canonical or 0, scope.bound or ""))
    certificates = [c.certificate for c in part.covers if c.whole and c.certificate and c.bound == larger.bound]
    return msgspec.structs.replace(larger, certificate=certificates[0] if certificates else None)


def _parts(one: RunPart, other: RunPart) -> RunPart:
    unrun = _first((*one.unrun, *other.unrun), lambda each: each.id)
    files = sorted({*one.lines, *other.lines})
    both = RunPart(
        covers=joining.joined((*one.covers, *other.covers)),
        ended=max(one.ended, other.ended),
        interrupted=one.interrupted or other.interrupted,
        gave_up=one.gave_up or other.gave_up,
        known=_known(one.known, other.known),
        differences=_counts(one.differences, other.differences),
        entries=added_counts((*one.entries, *other.entries)),
        lines={file: ranges.both(one.lines.get(file, ""), other.lines.get(file, "")) for file in files},
        not_offered=tuple(
            _summed(NotOfferedCount, ("mode", "reason"), ("scenarios",), one.not_offered, other.not_offered)
        ),
        unrun=tuple(sorted(unrun, key=lambda each: each.id)[:MAX_UNRUN]),
        unreached=_unreached(one.unreached, other.unreached),
        lost=tuple(sorted({*one.lost, *other.lost})),
        reach=baseline.both(one.reach, other.reach),
    )
    if both.reach is None or not whole(both):
        return both
    return msgspec.structs.replace(both, below=baseline.below(both.reach))


def _known(one: Iterable[KnownState], other: Iterable[KnownState]) -> tuple[KnownState, ...]:
    """Each entry once; where two runs replayed it, what fails a run is what counts."""
    states = sorted((*one, *other), key=lambda each: (each.name, each.state not in BROKEN, each.state, each.message))
    return tuple(_first(states, lambda each: each.name))


def _first(rows: Iterable[T], key: Callable[[T], Hashable]) -> list[T]:
    found: dict[Hashable, T] = {}
    for row in rows:
        found.setdefault(key(row), row)
    return list(found.values())


def _unreached(one: Mapping[str, tuple[str, ...]], other: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """What neither reached."""
    both = [*one, *(kind for kind in other if kind not in one)]
    return {kind: tuple(n for n in one.get(kind, ()) if n in set(other.get(kind, ()))) for kind in both}

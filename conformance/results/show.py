"""A report for people, from its report.json alone."""

from ropecheck.conformance.report.json_file import FindingReport, Report
from ropecheck.conformance.results.covers import described


def lines(report: Report) -> list[str]:
    """Plain lines, the most important last."""
    target, totals, part = report.target, report.totals, report.part
    told = [
        f"ropecheck {report.suite}",
        f"target {target.name} (version {target.version}) on {target.device}, torch {target.torch or 'not used'}",
        *(f"covers {described(one)}" for one in part.covers),
        f"ended {part.ended}",
        *(f"warning: {line}" for line in report.warnings),
    ]
    if report.scope.certificate:
        told.append(f"exhaustive: {report.scope.certificate}")
    for one in sorted(report.findings, key=lambda each: not each.known):
        told += _finding(one)
    checked = sum(rule.checked for rule in report.rules)
    rules = sum(1 for rule in report.rules if rule.checked)
    return [
        *told,
        f"{totals.scenarios} scenarios, {totals.forwards} forwards, {checked} checks of {rules} rules in "
        f"{totals.seconds:.1f} s ({totals.engine_seconds:.1f} s in the engine, {totals.workers} workers)",
        f"{totals.passed} passed, {totals.failed} failed, {totals.expected} expected to fail, "
        f"{totals.not_offered} not offered, {totals.could_not_run} could not run",
    ]


def _finding(one: FindingReport) -> list[str]:
    head = f"{'known' if one.known else 'NEW'}: {one.rule}  {one.mode}: {one.signature}  ({one.count} failures)"
    first = one.first_difference
    if one.known or first is None:
        return [head]
    at = "" if first.column is None else f" column {first.column}"
    return [
        head,
        f"  {first.axis}{at}: {first.observed}, must be {first.expected}; ropecheck replay {one.witness.file}",
    ]

"""Many reports over time, as one small page that needs nothing else."""

from collections.abc import Callable, Sequence
from pathlib import Path

from ropecheck.conformance.report.json_file import FindingReport, Report
from ropecheck.conformance.results.chart import small_page

Figure = tuple[str, Callable[[Report], float]]

FIGURES: tuple[Figure, ...] = (
    ("scenarios", lambda r: r.totals.scenarios),
    ("forwards", lambda r: r.totals.forwards),
    ("forwards per second", lambda r: round(r.totals.forwards / r.totals.seconds, 1) if r.totals.seconds else 0),
    ("rules checked", lambda r: sum(1 for rule in r.rules if rule.checked)),
    ("situations", lambda r: sum(1 for count in r.situations.values() if count)),
    ("findings", lambda r: len(r.findings)),
    ("new findings", lambda r: sum(1 for one in r.findings if not one.known)),
    ("could not run", lambda r: r.totals.could_not_run),
)


def page(named: Sequence[tuple[str, Report]]) -> str:
    """named: (name, report), which are put into the order in which the runs ended."""
    reports = sorted(named, key=lambda each: each[1].part.ended)
    return small_page(
        Path(__file__).parent / "templates" / "trend.html.jinja",
        reports=reports,
        figures=[(title, [figure(report) for _, report in reports]) for title, figure in FIGURES],
        findings=sorted({key_of(one) for _, report in reports for one in report.findings}),
        finding=lambda report, key: next((one for one in report.findings if key_of(one) == key), None),
        checked=lambda report, rule: any(one.id == rule and one.checked for one in report.rules),
    )


def key_of(one: FindingReport) -> tuple[str, str, str]:
    """Rule, mode and signature."""
    return one.rule, one.mode, one.signature

"""Many reports over time, as one small page that needs nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from ropecheck.conformance.report.json_file import Report
from ropecheck.conformance.results.chart import STYLE, line

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
    rows = sorted(named, key=lambda each: each[1].part.ended)
    charts = "".join(
        f"<tr><th>{escape(title)}<td>{line([figure(r) for _, r in rows])}<td>{figure(rows[-1][1]):g}"
        for title, figure in FIGURES
    )
    head = "".join(f"<th>{escape(title)}" for title, _ in FIGURES)
    body = "".join(_row(name, report) for name, report in reversed(rows))
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>ropecheck trend</title>'
        f"<style>{STYLE}</style>\n<h1>{len(rows)} reports</h1>\n"
        f"<table><tr><th>figure<th>over time<th>last{charts}</table>\n"
        f"<h2>Findings</h2>\n{_findings(rows)}\n"
        f"<h2>Reports</h2>\n<table><tr><th>ended<th>name<th>target{head}{body}</table>\n</html>\n"
    )


def _row(name: str, report: Report) -> str:
    cells = "".join(f"<td>{figure(report):g}" for _, figure in FIGURES)
    target = f"{report.target.name} {report.target.version} {report.target.device}"
    return f"<tr><td>{escape(report.part.ended)}<td>{escape(name)}<td>{escape(target)}{cells}"


def _findings(rows: Sequence[tuple[str, Report]]) -> str:
    """One row per finding, one cell per report: failures, "-" where the rule was not checked, "" for none."""
    keys = sorted({(f.rule, f.mode, f.signature) for _, report in rows for f in report.findings})
    table = []
    for key in keys:
        cells = "".join(_cell(key, report) for _, report in rows)
        table.append(f"<tr><td>{escape('  '.join(key))}{cells}")
    head = "".join(f"<th>{escape(name)}" for name, _ in rows)
    return f"<table><tr><th>finding{head}{''.join(table)}</table>"


def _cell(key: tuple[str, str, str], report: Report) -> str:
    for one in report.findings:
        if (one.rule, one.mode, one.signature) == key:
            return f'<td class="{"" if one.known else "bad"}">{one.count}'
    checked = any(rule.id == key[0] and rule.checked for rule in report.rules)
    return "<td>" if checked else "<td>-"

"""A campaign as it goes: a line now and then in the terminal, and a page that reloads itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from html import escape
from pathlib import Path

from ropecheck.conformance.campaign.driver import CampaignDriver
from ropecheck.conformance.campaign.ledger import CampaignState, TargetProgress, folder_of, now
from ropecheck.conformance.report import ranges
from ropecheck.conformance.results.chart import STYLE, line
from ropecheck.conformance.store.files import write_atomic

LINE_SECONDS = 5.0
PAGE_SECONDS = 5.0


class Progress:
    """What a driver tells (see driver.CampaignDriver.tell)."""

    def __init__(self, say: Callable[[str], None], page: Path) -> None:
        self._say, self._page = say, page
        self._lined = self._paged = 0.0

    def __call__(self, driver: CampaignDriver, force: bool = False) -> None:
        at = time.monotonic()
        if force or at - self._lined > LINE_SECONDS:
            self._lined = at
            self._say(told(driver))
        if force or at - self._paged > PAGE_SECONDS:
            self._paged = at
            write_atomic(self._page, page(driver.ledger.state, told(driver)).encode())


def told(driver: CampaignDriver) -> str:
    """One line."""
    state = driver.ledger.state
    here, spent = now(state), driver.spent
    rate = here.forwards / spent if spent else 0.0
    places = len(driver.crew.places())
    lost = f", {driver.lost} blocks lost and given again" if driver.lost else ""
    return (
        f"{spent / 60:.1f} min: {here.blocks} blocks, {here.scenarios} scenarios, {here.forwards} forwards "
        f"({rate:.0f}/s on {places} places), {here.reached} reached, {here.findings} findings ({here.new} new){lost}"
    )


def page(state: CampaignState, head: str) -> str:
    """The campaign as one page that needs nothing else."""
    curve = state.curve
    at = [point.seconds for point in curve]
    charts = ""
    if curve:
        for name in ("scenarios", "forwards", "reached", "findings", "new"):
            values = [float(getattr(point, name)) for point in curve]
            charts += f"<tr><th>{name}<td>{line(values, at)}<td>{values[-1]:g}"
    rows = "".join(_row(target, column) for target, column in state.columns.items())
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="5">'
        f"<title>ropecheck campaign</title><style>{STYLE}</style>\n<h1>Campaign</h1>\n<p>{escape(head)}</p>\n"
        f"<table><tr><th>figure<th>over time<th>now{charts}</table>\n"
        f"<h2>Targets</h2>\n<table><tr><th>target<th>blocks<th>scenarios<th>findings<th>new<th>given up{rows}</table>\n"
        f"<h2>Findings</h2>\n<table><tr><th>target<th>rule<th>mode<th>signature<th>failures<th>witness{_findings(state)}</table>\n"
        "</html>\n"
    )


def _row(target: str, column: TargetProgress) -> str:
    report = column.report
    new = sum(1 for one in report.findings if not one.known) if report else 0
    name = f'<a href="{escape(folder_of(target))}/report.json">{escape(target)}</a>'
    return (
        f"<tr><td>{name}<td>{ranges.size(column.done)}<td>{report.totals.scenarios if report else 0}"
        f'<td>{len(report.findings) if report else 0}<td class="{"bad" if new else ""}">{new}<td>{len(column.failed)}'
    )


def _findings(state: CampaignState) -> str:
    rows = []
    for target, column in state.columns.items():
        for one in column.report.findings if column.report else ():
            cells = (target, one.rule, one.mode, one.signature, str(one.count))
            style = "" if one.known else ' class="bad"'
            witness = (
                f'<td><a href="{escape(folder_of(target))}/{escape(one.witness.file)}">{escape(one.witness.id)}</a>'
            )
            rows.append(f"<tr{style}>" + "".join(f"<td>{escape(cell)}" for cell in cells) + witness)
    return "".join(rows)

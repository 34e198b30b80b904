"""What people see while a run goes and when it has ended. A bar on a terminal; plain lines now and then elsewhere."""

import os
import time
from collections.abc import Sequence

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from ropecheck.conformance.cards.build import cards
from ropecheck.conformance.cards.card import Card
from ropecheck.conformance.cards.render import replay_command
from ropecheck.conformance.cards.text import card_lines, head_line, unsettled
from ropecheck.conformance.judge.failure_text import shorter
from ropecheck.conformance.run.events import (
    Event,
    Found,
    Header,
    PhaseStarted,
    RunEnded,
    RunStarted,
    ScenarioDone,
    Summary,
    Warned,
)
from ropecheck.conformance.scenario import dimensions

_EVERY = 5.0
"""Seconds between two plain lines."""
_AT_ONCE = 5
"""New findings that are told while the run goes on."""
_SHOWN = 20
"""New cards shown in full; the rest get two lines each."""


class Terminal:
    """The listener. `full`: also show known failures' tables (replay). `brief`: only count what is as expected."""

    def __init__(self, console: Console, full: bool = False, brief: bool = False) -> None:
        self._console = console
        self._full = full
        self._brief = brief
        self._bar: Progress | None = None
        if console.is_terminal and not os.environ.get("CI"):
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
                TextColumn("{task.fields[wrong]}"),
                console=console,
                transient=True,
                refresh_per_second=4,
            )
        self._task: TaskID | None = None
        self._phase = ""
        self._total: int | None = None
        self._done = 0
        self._forwards = 0
        self._failed = 0
        self._new = 0
        """New findings so far; the rest of what fails is known."""
        self._last = time.monotonic()

    def __call__(self, event: Event) -> None:
        if isinstance(event, ScenarioDone):
            self._scenario(event)
        elif isinstance(event, RunStarted):
            self._say(*header_lines(event.header))
            if self._bar is not None:
                self._bar.start()
        elif isinstance(event, PhaseStarted):
            self._phase, self._total, self._done = event.name, event.total, 0
            if self._bar is not None:
                if self._task is not None:
                    self._bar.remove_task(self._task)
                self._task = self._bar.add_task(event.name, total=event.total, wrong="")
        elif isinstance(event, Found):
            self._found(event)
        elif isinstance(event, Warned):
            if event.loud:
                self._say(Text(f"WARNING: {event.message}", style="bold red"))
        else:
            self._progress(force=True)
            if self._bar is not None:
                self._bar.stop()
            self._ended(event)

    def _say(self, *lines: Text) -> None:
        for line in lines:
            self._console.print(line, soft_wrap=True)

    def _scenario(self, event: ScenarioDone) -> None:
        self._done += 1
        self._forwards += event.outcome.forwards
        self._failed += bool(event.outcome.failures)
        self._progress()

    def _progress(self, force: bool = False) -> None:
        """Rate-limited: a run has thousands of scenarios a second."""
        if not force and self._done & 15 and self._total is None:
            return
        now = time.monotonic()
        if self._bar is not None:
            if self._task is not None and (force or now - self._last > 0.2):
                self._last = now
                wrong = f"{self._new} new findings, {self._failed} scenarios failing" if self._failed else ""
                self._bar.update(self._task, completed=self._done, wrong=wrong)
        elif now - self._last > _EVERY:
            self._last = now
            of = f"/{self._total}" if self._total is not None else ""
            failing = f", {self._failed} failing ({self._new} new findings)" if self._failed else ""
            self._say(Text(f"{self._phase}: {self._done}{of} scenarios, {self._forwards} forwards{failing}"))

    def _found(self, event: Found) -> None:
        """New ones are told at once; the whole card comes at the end, with a smaller witness."""
        finding = event.finding
        if finding.failure.follows or self._full:
            return
        self._new += 1
        if self._new > _AT_ONCE:
            return
        rule, mode, signature = finding.key
        self._say(
            Text("NEW ", style="bold red").append(f"{rule}  ", "bold").append(f"{mode}: {signature}", "not bold"),
            Text(f"  {shorter(finding.failure.message)}  ({finding.scenario.name}, {finding.scenario.id})"),
        )
        if self._new == _AT_ONCE:
            self._say(Text("  further new findings are counted, and shown at the end"))

    def _ended(self, event: RunEnded) -> None:
        summary = event.summary
        self._say(*summary_lines(summary, self._full, self._brief))


def header_lines(header: Header) -> list[Text]:
    """What was run, enough to run it again."""
    hello = header.hello
    engine = f"{header.target} ({hello.target} {hello.version})"
    code = f", code {header.identity}" if header.identity else ""
    lines = [
        Text(f"ropecheck {header.suite}, spec {header.spec}"),
        Text(f"target {engine}{code} on {header.device}, torch {hello.torch or 'not used'}, python {hello.python}"),
        Text(
            f"seed {header.seed}, {header.workers} workers, shard {header.shard}, "
            f"phases {', '.join(header.phases) or 'none'}"
        ),
        Text(f"compared with {header.base}: what fails there alike is not new")
        if header.base
        else Text(f"known failures: {len(header.known)} apply, from {header.known_folder}"),
    ]
    if header.differences and not header.base:
        lines.append(Text(f"known differences of prompt tables: {len(header.differences)} apply"))
    if hello.faked:
        lines.append(Text(f"faked by the adapter: {len(hello.faked)} things; `ropecheck doctor` lists them"))
    return lines


def summary_lines(summary: Summary, full: bool = False, brief: bool = False) -> list[Text]:
    """Everything at the end, the most important last."""
    lines: list[Text] = [Text(), *warning_lines(summary.warnings)]
    shown = cards(summary)
    lines += expected_lines(summary, shown) if brief else known_lines(summary, shown, full)
    for index, card in enumerate(card for card in shown if card.state == "new"):
        short = index >= _SHOWN and not full
        lines += [Text(), *([head_line(card), Text(f"  {card.replay}", style="cyan")] if short else card_lines(card))]
    for scenario, unrun, file in summary.unrun:
        lines += [
            Text(),
            Text("COULD NOT RUN ", style="bold magenta").append(f"{scenario.name} ({scenario.id})", "bold"),
            Text(f"  {unrun.stage}: {shorter(unrun.message)}"),
            Text(f"  {replay_command(summary.header, file)}", style="cyan"),
        ]
    for check in summary.known:
        if check.state != "open":
            lines.append(Text(f"KNOWN FAILURE {check.state.upper()} ", "bold red").append(check.known.name, "bold"))
            lines.append(Text(f"  {check.message} ({check.known.path})"))
    for gone in summary.gone:
        rule, mode, signature = gone.key
        lines.append(Text("GONE ", "bold green").append(f"{rule}  ", "bold").append(f"{mode}: {signature}", "not bold"))
        lines.append(
            Text(f"  only {summary.header.base} fails so, in {gone.count} scenarios ({gone.name}, {gone.scenario})")
        )
    if summary.stopped:
        lines.append(Text(summary.stopped, style="bold magenta"))
    if summary.gave_up:
        lines.append(Text(f"ended early: {summary.gave_up}", style="bold magenta"))
    if summary.interrupted:
        lines.append(Text("interrupted", style="bold magenta"))
    return [*lines, *total_lines(summary)]


def expected_lines(summary: Summary, shown: Sequence[Card]) -> list[Text]:
    """One line for all that is as expected."""
    known = [card for card in shown if card.state == "known"]
    if not known:
        return []
    where = f"fail alike on {summary.header.base}" if summary.header.base else "are known"
    count = sum(card.count for card in known)
    return [Text(f"{count} failures of {len(known)} kinds {where}: report.json lists them")]


def known_lines(summary: Summary, shown: Sequence[Card], full: bool) -> list[Text]:
    """What is as expected, one by one."""
    lines: list[Text] = []
    for card in shown:
        if card.state != "known":
            continue
        if full or unsettled(card):
            lines += [Text(), *card_lines(card)]
        elif not card.prompt:  # known differences of prompt tables are told below
            more = f" and {len(card.folded)} that go with it" if card.folded else ""
            lines.append(Text(f"known: {card.rule}  {card.mode}: {card.signature}{more}  ({card.count} failures,"))
            lines[-1].append(f" {card.entry}, {card.link})" if not summary.header.base else f" {card.entry})")
    for entry in summary.header.differences:
        if (failures := summary.differences.get(entry.id)) and not full:
            head = f"known difference: {entry.name}  {', '.join(entry.families)}  ({failures} failures, {entry.link})"
            lines += [Text(head), Text(f"  {shorter(entry.reason)}")]
    return lines


def warning_lines(warnings: Sequence[str]) -> list[Text]:
    """One line for each kind of warning; the reports have them all."""
    kinds: dict[str, list[str]] = {}
    for message in warnings:
        kinds.setdefault(message.partition(":")[0].partition(" (")[0], []).append(message)
    lines = []
    for messages in kinds.values():
        more = f"  (and {len(messages) - 1} more like it: report.json)" if len(messages) > 1 else ""
        lines.append(Text(f"warning: {shorter(messages[0])}{more}", style="yellow"))
    return lines


def total_lines(summary: Summary) -> list[Text]:
    """What was done, and how it went."""
    totals = summary.totals
    counts = [f"{totals.passed} passed", f"{totals.failed} failed"]
    for number, word in (
        (totals.expected, "expected to fail"),
        (totals.not_offered, "not offered"),
        (totals.could_not_run, "could not run"),
    ):
        if number:
            counts.append(f"{number} {word}")
    checked = sum(checks for checks, _ in summary.rules.values())
    rules = sum(1 for checks, _ in summary.rules.values() if checks)
    bad = summary.exit_code
    return [
        *map(Text, dimensions.said(summary.situations) if summary.header.phases != ("replay",) else ()),
        Text(
            f"{totals.scenarios} scenarios, {totals.forwards} forwards, {checked} checks of {rules} rules in "
            f"{totals.seconds:.1f} s ({totals.engine_ns / 1e9:.1f} s in the engine, {totals.workers} workers)"
        ),
        Text(", ".join(counts), style="bold green" if bad == 0 else "bold red"),
    ]

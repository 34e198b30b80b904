"""report.html: one self-contained file that works from a CI artifact without a server."""

import base64
import gzip
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from markupsafe import Markup

from ropecheck.conformance import figures
from ropecheck.conformance.cards.build import cards
from ropecheck.conformance.cards.card import Card, RequestLine
from ropecheck.conformance.cards.render import as_text, replay_command
from ropecheck.conformance.judge.outcome import Failure, TableView
from ropecheck.conformance.report.json_file import all_warnings
from ropecheck.conformance.report.terminal import header_lines, total_lines
from ropecheck.conformance.run.events import Event, RunEnded, Summary
from ropecheck.conformance.scenario import dimensions
from ropecheck.conformance.store.files import write_atomic
from ropecheck.spec.rules import all_rules

FOLDER = Path(__file__).parent / "templates"

INLINE = 20
"""Cards whose body is in the page as it is, to be read where a CI server forbids scripts. Those of the rest are packed
and become part of the page when they are opened, so that a page of thousands opens at once."""

CHUNK = 50
"""Cards that are packed together: they are much alike."""


class Chip(msgspec.Struct, frozen=True):
    """One rule in the row of a mode or topic."""

    rule: str
    short: str
    state: str
    """ "new", "known", "ok" or "never"."""
    checked: int
    anchor: str
    """The card that shows it, "" where nothing failed."""


class ModeRow(msgspec.Struct, frozen=True):
    """A mode, or a topic that is no mode."""

    name: str
    forwards: int
    failures: int
    chips: tuple[Chip, ...]


def listener(path: Path, event: Event) -> None:
    """Write the report when the run has ended."""
    if isinstance(event, RunEnded):
        write_atomic(path, build(event.summary).encode())


def build(summary: Summary) -> str:
    """The report of a run."""
    return page(summary, cards(summary))


def page(summary: Summary, shown: Sequence[Card]) -> str:
    """The report with these cards."""
    header = summary.header
    environment = figures.environment(FOLDER)
    return environment.get_template("report.html.jinja").render(
        title=f"{header.target} {header.hello.version}".strip(),
        header=header,
        facts=as_text(header_lines(header)).splitlines(),
        totals=as_text(total_lines(summary)).splitlines(),
        summary=summary,
        verdict=_VERDICTS.get(summary.exit_code, ""),
        cards=shown,
        inline=INLINE,
        chunk=CHUNK,
        new=[card for card in shown if card.state == "new"],
        known=[card for card in shown if card.state != "new"],
        rows=matrix(summary, shown),
        bounds=dimensions.reached(summary.situations),
        modes=sorted({card.mode for card in shown}),
        rules=sorted({card.rule for card in shown}),
        unrun=[
            (scenario, unrun, replay_command(header, file) if file else "") for scenario, unrun, file in summary.unrun
        ],
        warnings=_folded(all_warnings(summary)),
        tables=_tables,
        timeline=lambda card: figures.timeline(card.operations),
        packed=_packed,
        grids=_grids,
        styles=(figures.stylesheet(), Markup((FOLDER / "report.css").read_text("utf-8"))),
        script=Markup((FOLDER / "report.js").read_text("utf-8")),
    )


_VERDICTS = {
    0: "Everything is as expected.",
    1: "Something fails that nobody expects.",
    3: "Something could not run.",
    4: "Nothing was checked.",
    130: "The run was interrupted.",
}


def matrix(summary: Summary, shown: Sequence[Card]) -> tuple[ModeRow, ...]:
    """Modes and topics, each with the rules that were asked there, those that failed, and those never asked."""
    rows: dict[str, dict[str, Chip]] = {}
    for rule in {**dict.fromkeys(all_rules()), **dict.fromkeys(summary.rules)}:
        checked = summary.rules.get(rule, [0, 0])[0]
        topic = rule.partition(".")[0]
        for mode, times in (summary.by_mode.get(rule) or {topic: checked}).items():
            row = topic if mode.startswith("prompt_table.") else mode or topic
            before = rows.setdefault(row, {}).get(rule)
            times += before.checked if before is not None else 0
            rows[row][rule] = Chip(rule, _short(rule, row), "ok" if times else "never", times, "")
    for card in shown:
        for rule, mode, _ in card.keys:
            topic = rule.partition(".")[0]
            row = topic if mode.startswith("prompt_table.") else mode or topic
            before = rows.setdefault(row, {}).get(rule) or Chip(rule, _short(rule, row), "", 0, "")
            if before.state != "new":
                rows[row][rule] = Chip(rule, before.short, card.state, before.checked, card.id)
    found = []
    for name, chips in sorted(rows.items(), key=lambda item: (item[0] not in summary.modes, item[0])):
        forwards, failures = summary.modes.get(name, [0, 0])
        found.append(ModeRow(name, forwards, failures, tuple(chips.values())))
    return tuple(found)


def _short(rule: str, row: str) -> str:
    """A rule's name where its row says the rest."""
    topic, _, name = rule.partition(".")
    return name if name and topic in (row, "table") else rule


def _folded(warnings: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Warnings of one kind together: what is said before the first colon, and what each says."""
    kinds: dict[str, list[str]] = {}
    for line in warnings:
        kind, colon, rest = line.partition(": ")
        kinds.setdefault(kind.partition(" (")[0] if colon else "other", []).append(line if not colon else rest)
    return list(kinds.items())


def _packed(some: Sequence[Card], body: Callable[[Card], str]) -> str:
    """Cards' bodies for the page's script to unpack: id -> HTML as JSON, gzip, base64."""
    bodies = msgspec.json.encode({card.id: str(body(card)) for card in some})
    return base64.b64encode(gzip.compress(bodies, compresslevel=6, mtime=0)).decode()


def _tables(card: Card) -> Markup:
    return drawn_tables(card, card.label or "the tables", card.tokens)


def drawn_tables(wrong: Card | Failure, caption: str, tokens: tuple[str, ...] = ()) -> Markup:
    """Both tables of a failure, around the first difference. tokens: in words, per column."""
    first = wrong.difference
    return figures.tables(
        _drawn(wrong.expected, tokens),
        _drawn(wrong.observed, ()),
        caption=caption,
        focus=None if first is None else first.column,
    )


def _drawn(view: TableView | None, tokens: tuple[str, ...]) -> figures.DrawnTable | None:
    if view is None:
        return None
    rows: dict[str, tuple[int | None, ...]] = {"1d": view.positions} if view.positions else {}
    rows |= dict(zip(view.axes or ("t", "h", "w", "x"), view.rows or (), strict=False))
    return figures.DrawnTable(rows=rows, requests=view.requests, tokens=tokens)


def _grids(request: RequestLine) -> list[Markup]:
    drawn = (
        figures.grid(
            figures.Grid(
                name=f"{item.kind} of request {request.request}",
                first=item.start,
                frames=item.frames,
                lines=item.lines,
                columns=item.columns,
            )
        )
        for item in request.items
    )
    return [one for one in drawn if one]

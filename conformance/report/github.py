"""For GitHub: annotations at the engine's own lines, a summary of the step, and SARIF for code scanning."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ropecheck.conformance.cards.build import cards
from ropecheck.conformance.cards.card import Card
from ropecheck.conformance.cards.render import as_text
from ropecheck.conformance.cards.text import operation_lines, table_lines
from ropecheck.conformance.judge.failure_text import shorter
from ropecheck.conformance.report.json_file import all_warnings
from ropecheck.conformance.report.terminal import total_lines
from ropecheck.conformance.run.events import Event, Header, RunEnded, Summary
from ropecheck.conformance.store.files import pretty, write_atomic

MOST = 10
"""Annotations of one step that GitHub shows."""
FULL = 5
"""New cards with their tables in the summary, which must stay below a megabyte."""


def listener(path: Path, event: Event) -> None:
    """Print the annotations, write the summary, and append it to the step's own where GitHub names that file."""
    if not isinstance(event, RunEnded):
        return
    shown = cards(event.summary)
    for line in commands(shown, event.summary.header):
        print(line, flush=True)
    text = step_summary(event.summary, shown)
    write_atomic(path, text.encode())
    if step := os.environ.get("GITHUB_STEP_SUMMARY"):
        with Path(step).open("a", encoding="utf-8") as file:
            file.write(text)


def sarif_listener(path: Path, event: Event) -> None:
    """Write the SARIF file."""
    if isinstance(event, RunEnded):
        made = sarif(cards(event.summary), event.summary.header)
        write_atomic(path, pretty(made))


def place_of(card: Card, header: Header) -> tuple[str, int]:
    """The engine's file as the repository that is checked calls it, and the line; ("", 0) where nobody could tell."""
    file, line = card.location
    if not file or not header.source:
        return file, line
    top = Path(os.environ.get("GITHUB_WORKSPACE") or _top(Path(header.source)))
    path = (Path(header.source) / file).resolve()
    return (path.relative_to(top.resolve()).as_posix() if path.is_relative_to(top.resolve()) else file), line


def _top(folder: Path) -> Path:
    """The repository's top folder."""
    return next((one for one in (folder, *folder.parents) if (one / ".git").exists()), folder)


def commands(shown: Sequence[Card], header: Header) -> list[str]:
    """One workflow command per new card."""
    lines = []
    for card in [card for card in shown if card.state == "new"][:MOST]:
        file, line = place_of(card, header)
        where = f" file={_property(file)},line={line},title=" if file else " title="
        title = _property(f"{card.rule}, {card.mode}: {card.signature}")
        text = _data(f"{shorter(card.message)}\n{card.says}\n{card.replay}".strip())
        lines.append(f"::error{where}{title}::{text}")
    return lines


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def step_summary(summary: Summary, shown: Sequence[Card]) -> str:
    """Markdown."""
    header = summary.header
    new = [card for card in shown if card.state == "new"]
    code = f" `{header.identity}`" if header.identity else ""
    lines = [f"## ropecheck: {_plain(header.target)} {_plain(header.hello.version)}{code}", ""]
    if header.base:
        lines += [f"Compared with `{header.base}`: {len(new)} new or changed, {len(summary.gone)} gone.", ""]
    lines += [*as_text(total_lines(summary)).splitlines(), ""]
    if new:
        lines += ["| new | mode | shape | failures | engine |", "| --- | --- | --- | --- | --- |"]
    for card in new:
        file, line = place_of(card, header)
        cells = (card.rule, card.mode, card.signature, str(card.count), f"`{file}:{line}`" if file else "")
        lines.append(f"| {' | '.join(map(_plain, cells))} |")
    for card in new[:FULL]:
        lines += ["", f"<details><summary>{_plain(card.mode)}: {_plain(card.signature)}</summary>", "", "```"]
        lines += [card.message, *as_text(operation_lines(card)).splitlines(), *as_text(table_lines(card)).splitlines()]
        lines += [card.replay, "```", "", f"The rule: {_plain(card.must)}", "", "</details>"]
    for gone in summary.gone:
        lines += ["", f"Gone: {_plain(gone.key[0])}, {_plain(gone.key[1])}: {_plain(gone.key[2])}"]
    warnings = all_warnings(summary)
    if warnings:
        lines += ["", f"<details><summary>{len(warnings)} warnings</summary>", ""]
        lines += [*(f"- {_plain(shorter(line))}" for line in warnings), "", "</details>"]
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    """Text that Markdown takes for nothing else, on one line."""
    kept = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;")
    return kept.replace("|", "\\|")


def sarif(shown: Sequence[Card], header: Header) -> dict[str, Any]:
    """SARIF 2.1.0: new cards are errors, known ones notes."""
    rules = {card.rule: card for card in shown}
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "ropecheck",
                        "version": header.suite,
                        "rules": [
                            {"id": rule, "shortDescription": {"text": card.must or rule}}
                            for rule, card in sorted(rules.items())
                        ],
                    }
                },
                "results": [_result(card, header) for card in shown],
            }
        ],
    }


def _result(card: Card, header: Header) -> dict[str, Any]:
    file, line = place_of(card, header)
    place = {"artifactLocation": {"uri": file, "uriBaseId": "%SRCROOT%"}, "region": {"startLine": max(line, 1)}}
    return {
        "ruleId": card.rule,
        "level": "error" if card.state == "new" else "note",
        "message": {"text": f"{card.mode}: {card.signature}. {shorter(card.message)}"},
        "locations": [{"physicalLocation": place}] if file else [],
        "partialFingerprints": {"card": f"{card.rule}/{card.mode}/{card.signature}"},
    }

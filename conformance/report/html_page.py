"""report.html: one self-contained file that works from a CI artifact without a server."""

from __future__ import annotations

from html import escape
from pathlib import Path

from rich.text import Text

from ropecheck.conformance.report.json_file import all_warnings
from ropecheck.conformance.report.render import finding_lines
from ropecheck.conformance.report.terminal import header_lines, total_lines
from ropecheck.conformance.run.events import Event, RunEnded, Summary
from ropecheck.conformance.store.files import write_atomic

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 75em; padding: 0 1em; }
pre { overflow-x: auto; background: #8881; padding: .8em; border-radius: 4px; }
table { border-collapse: collapse; } td, th { padding: .15em .8em; text-align: left; border-bottom: 1px solid #8884; }
.bold.red, .bad { color: #c22; font-weight: bold; } .bold.green, .good { color: #183; font-weight: bold; }
.yellow { color: #a70; } .cyan { color: #07a; } .bold { font-weight: bold; }
"""


def listener(path: Path, event: Event) -> None:
    """Write the report when the run has ended."""
    if isinstance(event, RunEnded):
        write_atomic(path, build(event.summary).encode())


def build(summary: Summary) -> str:
    """The report of a run."""
    header = summary.header
    parts = [f"<h1>{escape(header.target)} {escape(header.hello.version)} on {escape(header.device)}</h1>"]
    parts.append(_pre([*header_lines(header), *total_lines(summary)]))
    if summary.findings:
        parts.append("<h2>Findings</h2>")
    parts += [_pre(finding_lines(finding, header)) for finding in (*summary.new, *summary.expected_findings)]
    warnings = all_warnings(summary)
    if warnings:
        items = "".join(f"<li>{escape(message)}</li>" for message in warnings)
        parts.append(f"<h2>Warnings</h2><ul>{items}</ul>")
    parts.append(_counts("Rules", summary.rules))
    parts.append(_counts("Modes", summary.modes))
    title = escape(f"ropecheck {header.target} {header.hello.version}")
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        f"<style>{_STYLE}</style>\n" + "\n".join(parts) + "\n</html>\n"
    )


def _counts(title: str, counts: dict[str, list[int]]) -> str:
    rows = "".join(
        f'<tr><td>{escape(id)}<td>{checked}<td class="{"bad" if failed else "good"}">{failed}'
        for id, (checked, failed) in sorted(counts.items())
    )
    return f"<h2>{title}</h2><table><tr><th>id<th>checked<th>failed{rows}</table>"


def _pre(lines: list[Text]) -> str:
    return f"<pre>{'<br>'.join(map(_line, lines))}</pre>"


def _line(text: Text) -> str:
    """Spans keep their style as a class."""
    pieces = []
    at = 0
    for start, stop, style in sorted((span.start, span.end, str(span.style)) for span in text.spans):
        if start < at:
            continue
        pieces.append(escape(text.plain[at:start]))
        pieces.append(f'<span class="{escape(style)}">{escape(text.plain[start:stop])}</span>')
        at = stop
    pieces.append(escape(text.plain[at:]))
    line = "".join(pieces)
    return f'<span class="{escape(str(text.style))}">{line}</span>' if text.style and not text.spans else line

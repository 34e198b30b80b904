"""A failure without a run around it, as lines of text."""

from __future__ import annotations

from rich.text import Text

from ropecheck.conformance.cards.text import shorter
from ropecheck.conformance.judge.outcome import Failure
from ropecheck.conformance.report.side_by_side import side_by_side


def failure_lines(failure: Failure) -> list[Text]:
    """Rule and signature, the first difference, and the tables side by side."""
    table = f" ({failure.label})" if failure.label else ""
    lines = [Text(f"{failure.rule}  {failure.mode}{table}: {failure.signature}"), Text(f"  {shorter(failure.message)}")]
    first = failure.difference
    if first is not None:
        place = "" if first.column is None else f" column {first.column}"
        owner = "" if first.request is None else f" of request {first.request}"
        lines.append(
            Text(f"  first difference: {first.axis}{place}{owner}: expected {first.expected}, got {first.observed}")
        )
    lines += [Text("    ").append_text(line) for line in side_by_side(failure.expected, failure.observed)]
    if failure.where:
        lines.append(Text(f"  at {failure.where}"))
    return lines

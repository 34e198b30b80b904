"""A failure without a run around it, as lines of text."""

from rich.text import Text

from ropecheck.conformance.judge.outcome import Difference, Failure
from ropecheck.conformance.judge.side_by_side import side_by_side

LONGEST = 400
"""Characters of a message that are shown; the stored file has all of it."""


def shorter(message: str) -> str:
    """On one line, and not longer than a screen is happy with."""
    line = " ".join(message.split())
    return line if len(line) <= LONGEST else line[: LONGEST - 3] + "..."


def difference_line(first: Difference) -> Text:
    """Where it is, what must be there and what is."""
    place = "" if first.column is None else f" column {first.column}"
    owner = "" if first.request is None else f" of request {first.request}"
    return Text(f"  first difference: {first.axis}{place}{owner}: expected {first.expected}, got {first.observed}")


def failure_lines(failure: Failure) -> list[Text]:
    """Rule and signature, the first difference, and the tables side by side."""
    table = f" ({failure.label})" if failure.label else ""
    lines = [Text(f"{failure.rule}  {failure.mode}{table}: {failure.signature}"), Text(f"  {shorter(failure.message)}")]
    if failure.difference is not None:
        lines.append(difference_line(failure.difference))
    lines += [Text("    ").append_text(line) for line in side_by_side(failure.expected, failure.observed)]
    if failure.where:
        lines.append(Text(f"  at {failure.where}"))
    return lines

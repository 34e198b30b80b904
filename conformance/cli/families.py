"""Which family is checked against which target: for `ropecheck list families` and the table in docs/families.md."""

from rich.table import Table

from ropecheck.conformance.families.case import NAMES, NOT_COVERED, TARGETS, support_table
from ropecheck.conformance.known.differences import KnownDifference, load

BEGIN, END = "<!-- families:begin -->", "<!-- families:end -->"
"""Between these two lines of docs/families.md stands what `ropecheck list families --markdown` prints."""


def table() -> Table:
    """Family x target for a terminal."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    made.add_column("family", no_wrap=True)
    for target in TARGETS:
        made.add_column(target)
    made.add_column("source", overflow="fold")
    entries = load()
    for row in support_table():
        family, source, *statuses = row
        cells = [_status(family, target, status, entries) for target, status in zip(TARGETS, statuses, strict=True)]
        made.add_row(family, *cells, source)
    return made


def markdown() -> str:
    """The same as a Markdown table, with the families that are not covered below it."""
    entries = load()
    lines = ["| family | " + " | ".join(NAMES[target] for target in TARGETS) + " | source |"]
    lines.append("| --- |" + " --- |" * (len(TARGETS) + 1))
    for family, source, *statuses in support_table():
        cells = [_status(family, target, status, entries) for target, status in zip(TARGETS, statuses, strict=True)]
        lines.append("| " + " | ".join((f"`{family}`", *cells, source)).replace("\n", " ") + " |")
    lines += ["", "Not covered: " + "; ".join(f"`{name}` ({reason})" for name, reason in NOT_COVERED.items()) + "."]
    return "\n".join(lines) + "\n"


def _status(family: str, target: str, status: str, entries: tuple[KnownDifference, ...]) -> str:
    """ "checked", with the number of known differences, or why not."""
    if status != "checked":
        return f"not offered: {status}"
    known = sum(entry.target == target and family in entry.families for entry in entries)
    return f"checked, {known} known difference{'s' * (known != 1)}" if known else "checked"

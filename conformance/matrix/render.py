"""The matrix for people: a terminal table, Markdown, and JSON for tools.

A cell says `ok`, `F3` (failure number 3 of the list below the table), `f` (fails, but only in the wake of another
rule's failure), `-` (not offered), `?` (could not run) or a blank (no scenario reached the rule).
"""

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import msgspec
from rich.table import Table
from rich.text import Text

from ropecheck.conformance.figures import environment
from ropecheck.conformance.matrix.matrix import State, TargetColumn, VersionStep, bounds, rules_of, state, steps

MARKS = {"pass": "ok", "follows": "f", "not offered": "-", "could not run": "?", "not reached": ""}

LEGEND = (
    "`ok` passes; `F1` fails as failure 1 below; `f` fails, but only in the wake of another rule's failure; "
    "`-` not offered by that release; `?` could not run; blank: no scenario reached the rule"
)


class RuleRow(msgspec.Struct, frozen=True):
    """One rule over all versions."""

    mode: str
    rule: str
    states: tuple[State, ...]
    first_bad: str
    first_good: str


class MatrixFile(msgspec.Struct, frozen=True):
    """The JSON form. `columns[i]` is the run behind `rows[..].states[i]`."""

    schema: int
    rows: tuple[RuleRow, ...]
    steps: tuple[VersionStep, ...]
    columns: tuple[TargetColumn, ...]


def report(columns: Sequence[TargetColumn]) -> MatrixFile:
    """Everything that the matrix says. Columns in version order."""
    rows = []
    for rule in rules_of(columns):
        first_bad, first_good = bounds(columns, rule)
        states = tuple(state(column, rule) for column in columns)
        rows.append(RuleRow(rule.split(".", 1)[0], rule, states, first_bad, first_good))
    return MatrixFile(1, tuple(rows), tuple(steps(columns)), tuple(columns))


def marks(columns: Sequence[TargetColumn], rule: str, numbers: dict[tuple[str, str, str], int]) -> list[str]:
    """One mark per column; failures by their number, without those that only follow."""
    found = []
    for column in columns:
        kind, _ = state(column, rule)
        if kind == "fail":
            shapes = column.cells[rule].failures
            wanted = sorted({numbers[(rule, s.mode, s.signature)] for s in shapes if not s.consequence})
            found.append(" ".join(f"F{number}" for number in wanted))
        else:
            found.append(MARKS[kind])
    return found


def causes(columns: Sequence[TargetColumn]) -> list[VersionStep]:
    """The dated failures, without those that only follow from another."""
    return [step for step in steps(columns) if not step.consequence]


def numbering(found: Sequence[VersionStep]) -> dict[tuple[str, str, str], int]:
    """(rule, mode, signature) -> the number of the failure in the list."""
    return {(step.rule, step.mode, step.signature): index for index, step in enumerate(found, 1)}


def terminal(columns: Sequence[TargetColumn], width: int) -> list[Table | Text]:
    """The matrix as rich renderables; a narrow terminal gets the columns in several tables."""
    found = causes(columns)
    numbers = numbering(found)
    rules = rules_of(columns)
    room = max(1, (width - max(map(len, rules), default=10) - 4) // 9)
    parts: list[Table | Text] = []
    for start in range(0, len(columns), room):
        shown = columns[start : start + room]
        table = Table(box=None, pad_edge=False, show_edge=False)
        table.add_column("rule", no_wrap=True)
        for column in shown:
            table.add_column(short(column), overflow="fold")
        topic = ""
        for rule in rules:
            if rule.split(".", 1)[0] != topic:
                topic = rule.split(".", 1)[0]
                table.add_row(Text(topic, style="bold"))
            table.add_row("  " + rule, *(_styled(mark) for mark in marks(shown, rule, numbers)))
        parts += [table, Text()]
    parts += [Text(f"F{number}  {line}") for number, line in enumerate(map(sentence, found), 1)]
    parts += [Text(line) for line in notes(columns)]
    return parts


def _styled(mark: str) -> Text:
    return Text(mark, style="red" if mark.startswith("F") else "yellow" if mark == "?" else "")


def short(column: TargetColumn) -> str:
    """A version that fits a narrow column."""
    return column.version.replace(".post", "p").removeprefix("0.") if column.version[:2] == "0." else column.version


def sentence(step: VersionStep) -> str:
    """One failure in one line."""
    until = f"right from {step.first_good}" if step.first_good else f"still in {step.last_bad}"
    return f"{step.rule}, {step.mode}: {step.signature}; wrong from {step.first_bad} to {step.last_bad}, {until}"


def notes(columns: Sequence[TargetColumn]) -> list[str]:
    """What was not offered and what could not run, one line per reason with its modes and the versions that say so."""
    where: dict[str, dict[str, None]] = {}
    versions: dict[str, dict[str, None]] = {}

    def note(reason: str, mode: str, version: str) -> None:
        where.setdefault(reason, {})[mode] = None
        versions.setdefault(reason, {})[version] = None

    for column in columns:
        for mode, reasons in column.not_offered.items():
            for reason in reasons:
                note(f"not offered: {reason}", mode, column.version)
        for reason in [*column.unrun, *([column.problem] if column.problem else [])]:
            note(f"could not run: {reason}", "", column.version)
    lines = []
    for reason, modes in where.items():
        said = f"{reason} [{', '.join(filter(None, modes))}]" if any(modes) else reason
        lines.append(f"{said} ({_span(list(versions[reason]), columns)})")
    return lines


def _span(versions: list[str], columns: Sequence[TargetColumn]) -> str:
    """ "all", "0.5.6 to 0.5.9" for neighbours, or the versions one by one."""
    every = [column.version for column in columns]
    first = every.index(versions[0])
    if versions == every and len(every) > 1:
        return "all"
    if len(versions) > 2 and versions == every[first : first + len(versions)]:
        return f"{versions[0]} to {versions[-1]}"
    return ", ".join(versions)


def markdown(columns: Sequence[TargetColumn], command: str) -> str:
    """The matrix as a document, with the command that made it."""
    found = causes(columns)
    numbers = numbering(found)
    rows = ((rule, marks(columns, rule, numbers), *bounds(columns, rule)) for rule in rules_of(columns))
    folder = Path(__file__).parent / "templates"
    made = environment(folder).overlay(autoescape=False).get_template("matrix.md.jinja")
    return made.render(
        columns=columns,
        command=command,
        legend=LEGEND,
        rules=[(topic, list(same)) for topic, same in groupby(rows, lambda row: row[0].partition(".")[0])],
        steps=found,
        notes=notes(columns),
    )

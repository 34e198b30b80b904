"""The committed matrix (docs/matrix.md, docs/matrix-families.md) read back: marks by rule and release, and
dated failures."""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from ropecheck.spec.aliases import todays


class MatrixRow(msgspec.Struct, frozen=True):
    """One rule over the releases. id: as the matrix calls it; rule, mode: as they are called today."""

    id: str
    rule: str
    mode: str
    marks: tuple[str, ...]


class Dated(msgspec.Struct, frozen=True):
    """One way of failing, with the releases that it lies between. right: "not yet" where it is still there."""

    number: str
    rule: str
    mode: str
    signature: str
    since: str
    last: str
    right: str


class Matrix(msgspec.Struct, frozen=True):
    """One document."""

    file: str
    command: str
    versions: tuple[str, ...]
    rows: tuple[MatrixRow, ...]
    failures: tuple[Dated, ...]

    def rows_of(self, rule: str = "", mode: str = "") -> tuple[MatrixRow, ...]:
        """The rows of a rule, or of a forward mode."""
        return tuple(row for row in self.rows if (not rule or row.rule == rule) and (not mode or row.mode == mode))

    def failures_of(self, rule: str = "", mode: str = "", signature: str = "") -> tuple[Dated, ...]:
        """The dated failures of a rule, a mode or a shape."""
        wanted = ((rule, "rule"), (mode, "mode"), (signature, "signature"))
        return tuple(
            one for one in self.failures if all(not value or getattr(one, name) == value for value, name in wanted)
        )


def read(path: Path) -> Matrix:
    """A document that `ropecheck matrix --markdown` wrote. Raises ValueError for one of another form."""
    lines = path.read_text("utf-8").splitlines()
    tables = [_cells(line) for line in lines if line.startswith("|")]
    head = next((cells for cells in tables if cells[0] == "rule"), None)
    dated = next((at for at, cells in enumerate(tables) if cells[1:3] == ["rule", "mode"]), None)
    if head is None or dated is None:
        raise ValueError(f"{path}: no matrix")
    versions = tuple(head[1:-2])
    rows = []
    for cells in tables[:dated]:
        if len(cells) == len(head) and "." in cells[0] and "*" not in cells[0]:
            rows.append(MatrixRow(cells[0], *todays(cells[0]), tuple(cells[1:-2])))
    command = next((line.split("`")[1] for line in lines if line.startswith("Made by `")), "")
    return Matrix(path.name, command, versions, tuple(rows), tuple(_dated(tables[dated + 2 :])))


def _dated(tables: Iterable[list[str]]) -> Iterable[Dated]:
    for number, id, mode, signature, since, last, right in tables:
        yield Dated(number, todays(id)[0], mode, signature, since, last, right)


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]

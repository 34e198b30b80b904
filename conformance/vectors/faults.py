"""Wrong answers to a vector, one small slip each: a rule that a vector names must see one of them."""

from collections.abc import Iterator

from msgspec.structs import replace

from ropecheck.conformance.vectors import types as v

Answered = dict[str, v.Answer]


def faults(expected: tuple[v.ExpectedTable, ...]) -> Iterator[Answered]:
    """Answers that are wrong in one table each, or lack one."""
    right: Answered = {table.label: table for table in expected}
    if "" in right:
        yield {**right, f"step {len(right)}": replace(right[""], label=f"step {len(right)}")}
    for table in expected:
        if table.positions is None or len(expected) > 1:
            yield {label: answer for label, answer in right.items() if label != table.label}
        for wrong in _tables(table):
            yield {**right, table.label: wrong}
        for wrong in _values(table):
            yield {**right, table.label: wrong}


def _tables(table: v.ExpectedTable) -> Iterator[v.ExpectedTable]:
    """One cell, one row, one column, one axis; a table unset."""
    width = table.free[0][0] if table.free else len((table.rows or (table.positions or (),))[0])
    for at in _places(width):
        if table.positions is not None:
            yield replace(table, positions=_moved(table.positions, at))
        if table.rows is not None:
            yield replace(table, rows=tuple(_moved(row, at) for row in table.rows))
            yield replace(table, rows=(*table.rows[:-1], _moved(table.rows[-1], at)))
    if table.positions is not None:
        yield replace(table, positions=None)
    if table.rows is not None:
        yield replace(table, rows=None)
        yield replace(table, rows=table.rows[:-1])
        yield replace(table, rows=tuple((*row[:width], 7) for row in table.rows))
        yield replace(table, rows=tuple(row[: max(0, width - 1)] for row in table.rows))
    if table.positions is not None:
        yield replace(table, positions=table.positions[: max(0, width - 1)])
        yield replace(table, positions=(*table.positions[:width], 7, *table.positions[width:]))


def _values(table: v.ExpectedTable) -> Iterator[v.ExpectedTable]:
    """A value beside the table."""
    if table.tokens is not None:
        yield replace(table, tokens=table.tokens + 1)
        yield replace(table, tokens=max(0, table.tokens - 1))
    if table.delta is not None:
        yield replace(table, delta=table.delta + 1)
    if table.media_spans is not None:
        yield replace(table, media_spans=((0, 1), *table.media_spans))
    if table.refused is not None:
        yield replace(table, refused=not table.refused)


def _places(width: int) -> Iterator[int]:
    """Every column of a short table; of a long one the first, the last, and some between."""
    step = max(1, width // 12)
    yield from sorted({*range(0, width, step), *range(max(0, width - 2), width)})


def _moved(row: tuple[int, ...], at: int) -> tuple[int, ...]:
    return (*row[:at], row[at] + 1, *row[at + 1 :])

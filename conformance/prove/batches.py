"""Plain batches: each request beside others, and alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ropecheck.conformance.prove.plain import Plain
from ropecheck.conformance.prove.routes import BATCHES, request
from ropecheck.spec.history import Column

REQUESTS = 8
"""Of the largest batch."""

Row = tuple[int, int, Column]
"""(request, index, column)."""


def rows(mode: str, axes: int) -> Iterator[tuple[str, Sequence[Row], Sequence[Row]]]:
    """(which batch, its rows, the rows of its requests alone) of batches of 1 .. REQUESTS requests."""
    world = _world(axes)
    build, _ = BATCHES[mode]
    batch = [request(world, f"request {number}") for number in range(REQUESTS)]
    alone = [build(world, (one,)) for one in batch]
    for count in range(1, REQUESTS + 1):
        found = [(cell.request, cell.index, cell.column) for cell in build(world, batch[:count])]
        wanted = [(row, cell.index, cell.column) for row in range(count) for cell in alone[row]]
        yield f"{mode} of {count} requests", found, wanted


def _world(axes: int) -> Plain:
    """Requests of different sizes, every other one with media, each with a delta of its own."""
    sizes = {"num_draft_tokens": 3, "topk": 2, "step": 1}
    choices = {}
    tables = {}
    for number in range(REQUESTS):
        name = f"request {number}"
        own = {"later text": number % 3, "prefix_len": number % 2, "extend_len": 1 + number % 3}
        own |= {"seq_len": 12 + 7 * number % 5, "nodes": 1 + number % 4}
        sizes |= {f"{name}: {what}": size for what, size in own.items()} | {f"{name} tokens": number + 2}
        choices[f"{name} kind"] = number % 2
        columns = [(0, token, *[number + token % 2] * (axes - 2)) for token in range(3 + number % 3)]
        tables[name] = {0: tuple(columns)}
    return Plain(sizes, choices, axes, tables)

"""A forward mode at work: one small batch, what each row reads of its history, and the tables that must come out."""

import itertools

import msgspec

from ropecheck.conformance.cards.operations import prompt_words, token_words
from ropecheck.conformance.figures import DrawnTable, Lane
from ropecheck.conformance.plan.planner import TableCheck, plan
from ropecheck.conformance.scenario.domains import drawn as drawn_fields
from ropecheck.conformance.scenario.lifecycle import apply
from ropecheck.conformance.scenario.operations import Batch, BatchPart, Build, Operation, Scenario
from ropecheck.conformance.scenario.words import decode
from ropecheck.conformance.scenarios.chosen.modes import begun
from ropecheck.conformance.scenarios.chosen.script import PROMPTS, scenario
from ropecheck.reference.requests import Request, State, tokens_of
from ropecheck.reference.tables import BatchTables
from ropecheck.reference.timeline import run_lengths
from ropecheck.spec.history import History, text
from ropecheck.spec.modes.declaration import NOBODY, RUNNING, Mode

PROMPT: tuple[History, ...] = (PROMPTS["image"], (text(5),))
"""Two words, a picture of 2 x 3 tokens, three words; and beside it five words without a picture."""


CACHED = (4, 0)
"""Tokens of them that a prefill finds in the cache."""


class Worked(msgspec.Struct, frozen=True):
    """fields: as the batch carries them, rows in order. tables: by label, as in a report."""

    scenario: Scenario
    op: int
    fields: tuple[tuple[str, str], ...]
    requests: tuple[tuple[str, int, int, int], ...]
    """(prompt in words, P, delta, outputs) of each request."""
    lanes: tuple[Lane, ...]
    tables: tuple[tuple[str, DrawnTable], ...]


def worked(mode: Mode) -> Worked:
    """The mode's example. Rows that generate have done so twice, so that the batch stands behind the prompt."""
    if mode.reads == NOBODY:
        made = scenario(f"{mode.name}, worked", "", Build(Batch(mode.name)))
    else:
        start, batch = begun(mode, len(PROMPT), PROMPT)
        batch = msgspec.structs.replace(batch, parts=tuple(map(_chosen, batch.parts, mode.parts)))
        running = [req for part in mode.parts if part.reads == RUNNING for req in batch.part(part.name).reqs]
        later: list[Operation] = [decode(tuple(dict.fromkeys(running)))] * 2 if running else []
        made = scenario(f"{mode.name}, worked", "", start, later, Build(batch, path="direct"))
    return of_scenario(made, len(made.ops) - 1)


def of_scenario(made: Scenario, op: int) -> Worked:
    """The forward of operation `op`. Raises OutOfDomain for a scenario that is not legal."""
    planned = plan(made)
    check = next(one for one in planned.checks if isinstance(one, TableCheck) and one.op == op)
    state = state_before(made, op)
    expected = check.expected
    requests = [state.requests[req] for req in expected.batch.reqs]
    fields = [
        (f"{part.mode}: {name}" if part.mode else name, _value(value))
        for part in expected.batch.parts
        for name, value in part.fields.items()
    ]
    spans = [span for tables in expected.tables.values() for span in tables.spans]
    lanes = []
    for row, request in enumerate(requests):
        reads = tuple(int(index) for span in spans if span.row == row for index in span.tokens)
        part = _part_of(expected.batch, row)
        name = f"row {row}" + (f" ({part})" if part else "")
        lanes.append(Lane(name=name, kinds=kinds(state, request), reads=reads))
    return Worked(
        made,
        op,
        tuple(fields),
        tuple(
            (prompt_words(request.prompt), int(line.width), int(line.delta), request.outputs)
            for request, line in zip(requests, expected.lines, strict=True)
        ),
        tuple(lanes),
        tuple((label, drawn(tables, state, expected.batch.reqs)) for label, tables in expected.tables.items()),
    )


def _chosen(part: BatchPart, mode: Mode) -> BatchPart:
    """Three of everything, trees of another form in each row, and a prefix that ends inside the picture."""
    turn = itertools.cycle((0, 1))
    rows = len(part.reqs)
    fields = drawn_fields(
        mode, rows, lambda low, high: low + (2 if high > low + 1 else next(turn) if high > low else 0)
    )
    fields |= {field.name: CACHED[:rows] for field in mode.fields if field.kind == "prefix_len"}
    return msgspec.structs.replace(part, fields=fields)


def state_before(made: Scenario, op: int) -> State:
    """The requests as operation `op` finds them."""
    state = State(family=made.family)
    for one in made.ops[:op]:
        state = apply(state, one, build=False).state
    return state


def kinds(state: State, request: Request) -> tuple[str, ...]:
    """What each token of a request's history is, as the strip colours it."""
    found: list[str] = []
    for run, count in zip(request.prompt, run_lengths(state.family, request.prompt), strict=True):
        found += ["text" if run.is_text else "media"] * count
    total = tokens_of(request)
    found += ["output"] * (total - len(found))
    if request.outputs and request.computed < total:
        found[-1] = "newest"
    return tuple(found)


def drawn(tables: BatchTables, state: State, reqs: tuple[int, ...]) -> DrawnTable:
    """A table of the reference as the figures take it."""
    rows: dict[str, tuple[int | None, ...]] = {"1d": tuple(tables.positions.tolist())}
    if tables.rows is not None:
        rows |= dict(zip(("t", "h", "w", "x"), map(tuple, tables.rows.tolist()), strict=False))
    owners = [-1] * len(rows["1d"])
    words = [""] * len(rows["1d"])
    for span in tables.spans:
        for column, index in zip(range(span.start, span.stop), span.tokens.tolist(), strict=True):
            owners[column] = reqs[span.row]
            words[column] = token_words(state, reqs[span.row], index)
    return DrawnTable(rows=rows, requests=tuple(owners), tokens=tuple(words))


def _value(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join("(" + ", ".join(map(str, one)) + ")" if isinstance(one, tuple) else str(one) for one in value)
    return str(value)


def _part_of(batch: Batch, row: int) -> str:
    for part in batch.parts:
        if row < len(part.reqs):
            return part.mode
        row -= len(part.reqs)
    return ""

"""What a forward mode is tried on because it is declared: a mode that nobody has written a scenario for has these."""

import itertools
from collections.abc import Iterator, Sequence

from ropecheck.conformance.scenario.domains import Number, drawn
from ropecheck.conformance.scenario.operations import (
    Batch,
    BatchPart,
    Build,
    Law,
    MeasureCost,
    Operation,
    Pick,
    Retract,
    Scenario,
    Submit,
)
from ropecheck.conformance.scenario.words import decode
from ropecheck.conformance.scenarios.chosen.script import PROMPTS, TALL, WIDE, prefill, scenario
from ropecheck.spec.history import History, text, video
from ropecheck.spec.modes import all_modes
from ropecheck.spec.modes.declaration import NOBODY, PREFILLING, RUNNING, TEXT, Mode

SLOW = video(2, 4, 4, seconds_per_grid=6.0)
"""2 frames of 2 x 2 tokens, 12 positions apart in a family of absolute time: the delta is positive."""

ROWS: tuple[History, ...] = ((text(1), SLOW, text(2)), (text(5),), PROMPTS["image"])
"""A positive delta, none, a negative one."""

MEDIA_ROWS: tuple[History, ...] = (PROMPTS["image"], PROMPTS["two images"], (text(3), WIDE, TALL))
WORDS: tuple[History, ...] = ((text(9),), (text(8),), (text(16),))

WIDE_BUFFER = 96
"""Columns of a packed batch's tier, or of a buffer of windows: more than either fills."""


def scenarios() -> list[Scenario]:
    """Every declared mode: a batch of unlike requests, its wider buffers, what it copies, and its law."""
    return [made for mode in all_modes().values() for made in of_mode(mode)]


def of_mode(mode: Mode) -> Iterator[Scenario]:
    """The scenarios of one mode."""
    name = f"any mode: {mode.name}"
    if mode.reads == NOBODY:
        yield scenario(name, "No rows.", Build(Batch(mode.name)))
        for buffer in mode.buffers:
            wider = Build(Batch(mode.name), buffer=buffer, buffer_rows=3)
            yield scenario(f"{name}, {buffer} buffer", "No rows, in a wider buffer.", wider)
        return
    start, batch = begun(mode, 3)
    yield scenario(name, "Unlike deltas beside text.", start, Build(batch, path="direct"), family="qwen2_5_vl")
    yield _later(name, mode)
    for buffer in mode.buffers:
        yield _buffered(name, mode, buffer)
    if mode.copies is not None:
        for what, prompts in (("media", MEDIA_ROWS), ("text", WORDS)):
            start, batch = begun(mode, 2, prompts)
            lengths = (True, False) if mode.either_lengths else (True,)
            costs = [MeasureCost(Build(batch, path="direct", host_lengths=there)) for there in lengths]
            yield scenario(f"{name}, copies of {what}", "What building it copies from the host.", start, costs)
    if mode.three_rows and all(part.reads in (PREFILLING, RUNNING) for part in mode.parts):
        yield _law(name, mode)


def begun(mode: Mode, rows: int, prompts: Sequence[History] = ROWS, one_of: int = 1) -> tuple[list[Operation], Batch]:
    """Requests 0, 1, .. that can stand in a batch of the mode, and that batch: `rows` rows of each part, numbered from
    one part to the next. one_of: so many of each request arrive, the second ones numbered after all first ones."""
    kinds: list[Mode] = []
    parts: list[BatchPart] = []
    for part in mode.parts:
        first = 0 if part.follows else len(kinds)
        kinds += [] if part.follows else [part] * rows
        fields = drawn(part, rows, _unlike())
        fields |= {field.name: tuple(range(rows)) for field in part.fields if field.kind == "prefix_len"}
        reqs = tuple(range(first, first + rows))
        parts.append(BatchPart(reqs=reqs, fields=fields, mode="" if part is mode else part.name))
    made = kinds * one_of
    ops: list[Operation] = [
        Submit(req, (WORDS if kind.reads == TEXT else prompts)[req % len(kinds) % rows])
        for req, kind in enumerate(made)
    ]
    ready = [req for req, kind in enumerate(made) if kind.reads == RUNNING]
    return [*ops, *([prefill(*ready)] if ready else [])], Batch(mode.name, tuple(parts))


def _later(name: str, mode: Mode) -> Scenario:
    """Past the prompt's table: requests have generated some tokens; those that a window reads were retracted then."""
    start, batch = begun(mode, 3)
    back = [req for part in mode.parts if part.reads == PREFILLING for req in batch.part(part.name).reqs]
    running = [req for part in mode.parts if part.reads == RUNNING for req in batch.part(part.name).reqs]
    ops = [*start, *([prefill(*back)] if back else [])]
    ops += [decode(tuple(dict.fromkeys((*back, *running)))) for _ in range(2) if back or running]
    ops += [*map(Retract, back), Build(batch, path="direct")]
    return scenario(f"{name}, later", "Behind the prompt's table.", ops, family="qwen2_5_vl")


def _unlike() -> Number:
    """Draws numbers near the least one, a different one each time."""
    count = itertools.count()
    return lambda low, high: min(low + 1 + next(count) % 3, high)


def _buffered(name: str, mode: Mode, buffer: str) -> Scenario:
    """A larger batch, then a smaller one, in the same wider buffer."""
    start, large = begun(mode, 3, MEDIA_ROWS)
    if buffer == "tier" or mode.prefills:
        each = (large,) if buffer in ("tier", "dp") else (_rows(large, slice(0, None, 2)), _rows(large, slice(1, 2)))
        built = [Build(one, buffer=buffer, buffer_tokens=WIDE_BUFFER) for one in each]
        return scenario(f"{name}, {buffer} buffer", "Columns behind the live ones.", start, built)
    rows = 4 * len(mode.parts)
    both = [Build(one, buffer=buffer, buffer_rows=rows) for one in (large, _rows(large, slice(1, 2)))]
    return scenario(f"{name}, {buffer} buffer", "A small batch after a large one.", start, both)


def _rows(batch: Batch, rows: slice) -> Batch:
    """Some rows of each part of a batch."""
    return Batch(batch.mode, tuple(part.take(range(len(part.reqs))[rows]) for part in batch.parts))


def _law(name: str, mode: Mode) -> Scenario:
    """Each row of a batch, and a twin of its request that is prefilled or decoded alone."""
    start, batch = begun(mode, 1, MEDIA_ROWS, one_of=2)
    twins = sum(not part.follows for part in mode.parts)
    at = len(start)
    ops: list[Operation] = [Build(batch, path="direct")]
    laws = []
    for row, part in enumerate(part for part in mode.parts if not part.follows):
        twin = row + twins
        first = at + len(ops)
        ops += [prefill(twin)] if part.reads == PREFILLING else [decode((twin,))] * 4
        last = at + len(ops)
        reached = tuple(range(first, last))
        if part.reads == RUNNING:
            reached = (at - 1, *reached)  # tokens behind the newest one were read when the twin was prefilled
        laws.append(Law("laws.one_token_one_column", Pick(row, (at,)), Pick(twin, reached)))
    made = scenario(f"{name}, its law", "By this mode, and by prefill or decode alone.", start, ops)
    return Scenario(name=made.name, ops=made.ops, note=made.note, laws=tuple(laws))

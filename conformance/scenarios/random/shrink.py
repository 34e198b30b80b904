"""Shrinking in domain terms: fewer requests, then fewer operations, fewer runs, smaller grids, fewer tokens.

A candidate counts when the lifecycle finds it legal and the engine still breaks the same rule with the same signature.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from ropecheck.adapters.batch import Batch, BatchPart
from ropecheck.conformance.judge.outcome import Failure, Outcome
from ropecheck.conformance.plan.planner import plan
from ropecheck.conformance.scenario import domains
from ropecheck.conformance.scenario.operations import (
    Abort,
    Accept,
    Build,
    Finish,
    Operation,
    Reschedule,
    Retract,
    Rotate,
    Scenario,
    Submit,
    Turn,
)
from ropecheck.spec.history import History, OutOfDomain, Run
from ropecheck.spec.modes import composed, mode_of

Key = tuple[str, str, str]


def shrink(
    scenario: Scenario, key: Key, check: Callable[[Scenario], Outcome], seconds: float = 20.0
) -> tuple[Scenario, Failure | None]:
    """The smallest scenario found that still fails with `key`, and that failure; at a minimum or the time limit."""
    best, failure = scenario, None
    deadline = time.monotonic() + seconds
    tried = {scenario.id}
    progress = True
    while progress and time.monotonic() < deadline:
        progress = False
        for candidate in candidates(best):
            if time.monotonic() > deadline:
                break
            if candidate.id in tried or not _legal(candidate):
                continue
            tried.add(candidate.id)
            found = next((f for f in check(candidate).failures if f.key == key), None)
            if found is not None:
                best, failure, progress = candidate, found, True
                break
    return best, failure


def _legal(scenario: Scenario) -> bool:
    try:
        plan(scenario)
    except OutOfDomain:
        return False
    return True


def candidates(scenario: Scenario) -> Iterator[Scenario]:
    """Smaller scenarios, the boldest first."""
    ops = scenario.ops
    for req in sorted({op.req for op in ops if isinstance(op, Submit | Turn)}, reverse=True):
        yield _with(scenario, [kept for op in ops if (kept := without_request(op, req)) is not None])
    for size in (8, 4, 2, 1):
        for start in range(0, len(ops) - size + 1):
            yield _with(scenario, [*ops[:start], *ops[start + size :]])
    for number, op in enumerate(ops):
        for smaller in smaller_operations(op):
            yield _with(scenario, [*ops[:number], smaller, *ops[number + 1 :]])


def _with(scenario: Scenario, ops: list[Operation]) -> Scenario:
    return Scenario(
        name=f"{scenario.name.removesuffix(' (shrunk)')} (shrunk)",
        ops=tuple(ops),
        family=scenario.family,
        note=scenario.note,
        repeat=scenario.repeat,
    )


def without_request(op: Operation, req: int) -> Operation | None:
    """The operation without one request; None when nothing is left of it."""
    match op:
        case Submit() | Turn() | Accept() | Retract() | Reschedule() | Finish() | Abort() | Rotate():
            return None if op.req == req else op
        case Build():
            parts = [part.take(row for row, known in enumerate(part.reqs) if known != req) for part in op.batch.parts]
            kept = tuple(part for part in parts if part.reqs)
            if len(kept) == len(parts) or parts == list(op.batch.parts):
                return msgspec.structs.replace(op, batch=Batch(op.batch.mode, tuple(parts)))
            return _recomposed(op, kept)
        case _:
            return op


def _recomposed(op: Build, kept: tuple[BatchPart, ...]) -> Build | None:
    """The forward of the parts that are left, in the mode that is made of them; None when there is none."""
    names = tuple(part.mode or op.batch.mode for part in kept)
    try:
        mode = composed(names)
    except OutOfDomain:
        return None
    parts = tuple(
        msgspec.structs.replace(part, mode="" if name == mode.name else name)
        for part, name in zip(kept, names, strict=True)
    )
    return Build(Batch(mode.name, parts), path=op.path, host_lengths=op.host_lengths)


def smaller_operations(op: Operation) -> Iterator[Operation]:
    """The operation with less in it."""
    match op:
        case Submit() | Turn():
            for prompt in smaller_histories(op.prompt):
                yield msgspec.structs.replace(op, prompt=prompt)
            if isinstance(op, Turn) and op.offset > 1:
                yield msgspec.structs.replace(op, offset=op.offset - 1)
        case Build():
            yield from _smaller_forwards(op)
        case Accept() if op.tokens > 1:
            yield Accept(op.req, op.tokens - 1)
        case Rotate() if not op.method:
            for method in ("native", "device"):
                yield Rotate(op.req, op.layout, method)
        case _:
            return


def _smaller_forwards(op: Build) -> Iterator[Build]:
    replace = msgspec.structs.replace
    if op.buffer:
        yield replace(op, buffer="", buffer_rows=0, buffer_tokens=0)
        yield replace(op, buffer_rows=max(op.buffer_rows - 1, 0), buffer_tokens=max(op.buffer_tokens - 1, 0))
    if op.kernel:
        yield replace(op, kernel=False)
    for number, part in enumerate(op.batch.parts):
        for fields in (*_smaller_windows(part), *domains.smaller(mode_of(part.mode or op.batch.mode), part.fields)):
            parts = (*op.batch.parts[:number], replace(part, fields=fields), *op.batch.parts[number + 1 :])
            yield replace(op, batch=Batch(op.batch.mode, parts))


def _smaller_windows(part: BatchPart) -> Iterator[dict[str, Any]]:
    """Prefill rows without a hit or a cut, or with a smaller one."""
    for name in ("prefix_len", "extend_len"):
        value = part.fields.get(name)
        if not isinstance(value, tuple):
            continue
        yield {key: other for key, other in part.fields.items() if key != name}
        for row, tokens in enumerate(value):
            for less in (0, tokens - 1 if isinstance(tokens, int) else 0):
                if isinstance(tokens, int) and 0 <= less < tokens:
                    yield {**part.fields, name: (*value[:row], less, *value[row + 1 :])}


def smaller_histories(history: History) -> Iterator[History]:
    """The prompt with fewer runs, smaller grids, fewer tokens."""
    if len(history) > 1:
        for number in range(len(history)):
            yield history[:number] + history[number + 1 :]
    for number, run in enumerate(history):
        for smaller in _smaller_runs(run):
            yield (*history[:number], smaller, *history[number + 1 :])


def _smaller_runs(run: Run) -> Iterator[Run]:
    if run.is_text:
        for tokens in sorted({1, run.tokens // 2, run.tokens - 1}):
            if 0 < tokens < run.tokens:
                yield Run(kind="text", tokens=tokens)
        return
    if run.grid is None:
        return
    for axis, step in ((0, 1), (1, 2), (2, 2)):
        for size in sorted({step, run.grid[axis] - step}):
            if step <= size < run.grid[axis]:
                grid = (*run.grid[:axis], size, *run.grid[axis + 1 :])
                kind = "image" if grid[0] == 1 else run.kind
                yield Run(kind=kind, grid=grid, seconds_per_grid=run.seconds_per_grid if kind == "video" else 1.0)  # type: ignore[arg-type]

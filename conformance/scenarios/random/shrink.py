"""Shrinking in domain terms: fewer requests, then fewer operations, fewer runs, smaller grids, fewer tokens.

A candidate counts when the lifecycle finds it legal and the engine still breaks the same rule with the same signature.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import msgspec

from ropecheck.conformance.judge.outcome import Failure, Outcome
from ropecheck.conformance.plan.planner import plan
from ropecheck.reference.operations import (
    Abort,
    Accept,
    Decode,
    Draft,
    DraftExtend,
    Extend,
    Finish,
    Mixed,
    Operation,
    Reschedule,
    Retract,
    Rotate,
    Scenario,
    Submit,
    Turn,
    Verify,
)
from ropecheck.spec.history import History, OutOfDomain, Run

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
        case Decode() | Draft() | DraftExtend():
            reqs = tuple(other for other in op.reqs if other != req)
            return msgspec.structs.replace(op, reqs=reqs) if reqs else None
        case Verify():
            kept = [(other, tree) for other, tree in zip(op.reqs, op.parents, strict=True) if other != req]
            if not kept:
                return None
            reqs, trees = zip(*kept, strict=True)
            return msgspec.structs.replace(op, reqs=reqs, parents=trees)
        case Extend() | Mixed():
            windows = tuple(window for window in op.windows if window.req != req)
            if isinstance(op, Extend):
                return msgspec.structs.replace(op, windows=windows) if windows else None
            decodes = tuple(other for other in op.decodes if other != req)
            if windows and decodes:
                return Mixed(windows, decodes)
            if windows:
                return Extend(windows)
            return Decode(decodes) if decodes else None
        case _:
            return op


def smaller_operations(op: Operation) -> Iterator[Operation]:
    """The operation with less in it."""
    if isinstance(op, Extend | Decode | Draft | Verify | DraftExtend) and op.pad:
        size = "pad_tokens" if isinstance(op, Extend) else "pad_batch"
        yield msgspec.structs.replace(op, **{"pad": "", size: 0})
        yield msgspec.structs.replace(op, **{size: max(getattr(op, size) - 1, 0)})
    match op:
        case Submit() | Turn():
            for prompt in smaller_histories(op.prompt):
                yield msgspec.structs.replace(op, prompt=prompt)
            if isinstance(op, Turn) and op.offset > 1:
                yield msgspec.structs.replace(op, offset=op.offset - 1)
        case Extend() | Mixed():
            for number, window in enumerate(op.windows):
                for smaller in ({"tokens": 0}, {"hit": 0}, {"tokens": window.tokens - 1}, {"hit": window.hit - 1}):
                    changed = msgspec.structs.replace(window, **smaller)
                    if changed != window and changed.tokens >= 0 and changed.hit >= 0:
                        windows = (*op.windows[:number], changed, *op.windows[number + 1 :])
                        yield msgspec.structs.replace(op, windows=windows)
        case Draft():
            if op.num_steps > 2:
                yield msgspec.structs.replace(op, num_steps=op.num_steps - 1)
            if op.topk > 1:
                yield msgspec.structs.replace(op, topk=op.topk - 1)
        case Verify():
            if all(op.parents):
                yield msgspec.structs.replace(op, parents=tuple(tree[:-1] for tree in op.parents))
            if op.ragged:
                for number, tree in enumerate(op.parents):
                    if tree:
                        trees = (*op.parents[:number], tree[:-1], *op.parents[number + 1 :])
                        yield msgspec.structs.replace(op, parents=trees)
                if op.ragged_tokens:
                    yield msgspec.structs.replace(op, ragged_tokens=0)
        case DraftExtend() if op.num_draft_tokens > 1:
            yield msgspec.structs.replace(op, num_draft_tokens=op.num_draft_tokens - 1)
        case Accept() if op.tokens > 1:
            yield Accept(op.req, op.tokens - 1)
        case Rotate() if not op.method:
            for method in ("native", "device"):
                yield Rotate(op.req, op.layout, method)
        case _:
            return


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

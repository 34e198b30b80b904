"""Function level: lengths near the int32 limit, which no prompt reaches in a test, lengths that are not contiguous
where a kernel takes their stride, and batches of nothing.

A request's history is short; the batch claims that it is almost 2^31 tokens long, as after days of generation. Every
token past the prompt is text, so its column is its index plus the request's delta.
"""

from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import msgspec

from ropecheck.adapters import protocol
from ropecheck.adapters.batch import Batch, BatchPart, Value
from ropecheck.conformance.judge.ask import ask
from ropecheck.conformance.judge.signature import raised_line
from ropecheck.conformance.judge.tables import seen
from ropecheck.conformance.judge.tally import ScenarioTally
from ropecheck.conformance.plan.planner import Plan, TableCheck, plan
from ropecheck.conformance.run.ask import NoAnswer, StartedWorker
from ropecheck.conformance.scenario.words import decode
from ropecheck.conformance.scenarios.chosen.script import PROMPTS, running, scenario
from ropecheck.spec.modes import mode_of
from ropecheck.spec.modes.declaration import depths as depths_of
from ropecheck.spec.views import Place, Row, Tables

LIMIT = 2**31
"""Lengths are int32 inside the engines: an index is at most LIMIT - 1."""

STRIDED = ("build_chain_tree", "prepare_draft_extend_layout")
"""Kernels that take the stride of their lengths."""


class LimitCheck(msgspec.Struct, frozen=True, kw_only=True):
    """A check of this module."""

    rule: str
    what: str
    problem: str = ""
    """One line; "" when it holds."""
    note: str = ""
    """Why the engine offers nothing to check; "" when it does."""
    unrun: str = ""
    """Why it could not run; "" when it did."""


def limit_jobs(worker: StartedWorker) -> Iterator[LimitCheck]:
    """Every check. On a host the token pool at the limit would not fit: not run there."""
    for what, forward, indices in forwards():
        rule = "table.index"
        if worker.device == "cpu" and "limit" in what:
            yield LimitCheck(rule=rule, what=what, note="needs a GPU's memory")
            continue
        try:
            result = worker.ask(job(forward, what, worker.device))[-1]
        except NoAnswer as error:
            yield LimitCheck(rule=rule, what=what, unrun=str(error))
            continue
        if isinstance(result, protocol.TablesAnswer):
            yield judged(what, result, forward, indices)
        else:
            yield without_tables(rule, what, result)


@cache
def _start(device: str) -> Plan:
    """Three requests have arrived: one with an image, and two of text."""
    start = running(PROMPTS["image"], PROMPTS["text"], PROMPTS["text"])
    return plan(scenario("limits", "", start, decode((0, 1, 2))), device)


def job(forward: protocol.BuildForward, name: str, device: str) -> protocol.Job:
    """The forward, after the requests' arrival."""
    arrivals = tuple(step for step in _start(device).job.steps if isinstance(step, protocol.SubmitStep))
    return protocol.Job(id=name, steps=(*arrivals, forward), device=device)


def places() -> tuple[Place, ...]:
    """Where the three requests' tokens belong."""
    (*_, last) = (check for check in _start("cpu").checks if isinstance(check, TableCheck))
    return tuple(line.place for line in last.expected.lines)


def forwards() -> Iterator[tuple[str, protocol.BuildForward, list[list[int]]]]:
    """(what, forward, per request the indices that it must read)."""
    both = (0, 1)
    last = (LIMIT - 1, LIMIT - 2)
    yield "decode at the int32 limit", speculative("decode", both, last), [[n - 1] for n in last]
    for nodes in (1, 4, 64):
        starts = (LIMIT - nodes, LIMIT - nodes - 7)
        parents = tuple(range(nodes - 1))
        depths = depths_of(parents)
        indices = [[start + depth for depth in depths] for start in starts]
        flat = tuple(index for row in indices for index in row)
        trees = partial(speculative, "target_verify", both, starts, num_draft_tokens=nodes, parents=(parents, parents))
        extend = partial(speculative, "draft_extend_v2", both, starts, num_draft_tokens=nodes)
        yield f"direct verify of {nodes} at the int32 limit", trees(positions=flat), indices
        if nodes > 1:
            yield f"chain verify of {nodes} at the int32 limit", trees(path="fused"), indices
        name = f"draft extend of {nodes} at the int32 limit"
        yield f"{name}, host lengths", extend(host_lengths=True, path="caller"), indices
        yield f"{name}, device lengths", extend(host_lengths=False, path="fused"), indices
    yield (
        "draft at the int32 limit",
        speculative("draft_decode", both, (LIMIT - 3, LIMIT - 9), num_steps=3, path="fused"),
        [[LIMIT - 3], [LIMIT - 9]],
    )
    yield from strided()
    yield (
        "position kernel at the int32 limit",
        windows((LIMIT - 513, 513), (LIMIT - 512, 512)),
        [list(range(LIMIT - 513, LIMIT)), list(range(LIMIT - 512, LIMIT))],
    )
    yield "position kernel with an empty batch", windows(), []
    yield (
        "position kernel with an empty window",
        windows((5, 0), (7, 3)),
        [[], [7, 8, 9]],
    )


def strided() -> Iterator[tuple[str, protocol.BuildForward, list[list[int]]]]:
    """Lengths with other numbers between them in memory, for batches with media and for the fused text-only ones."""
    for reqs, kind in (((0, 1), "mixed"), ((1, 2), "text")):
        for nodes in (2, 4, 5):
            starts = (20, 33)
            parents = tuple(range(nodes - 1))
            indices = [[*range(start, start + nodes)] for start in starts]
            how: dict[str, Any] = {"num_draft_tokens": nodes, "path": "fused", "strided": True}
            verified = speculative("target_verify", reqs, starts, parents=(parents, parents), **how)
            yield f"chain verify of {nodes}, strided lengths, {kind}", verified, indices
            extended = speculative("draft_extend_v2", reqs, starts, host_lengths=False, **how)
            yield f"draft extend of {nodes}, strided lengths, {kind}", extended, indices


def speculative(mode: str, reqs: tuple[int, ...], seq_lens: tuple[int, ...], **more: Any) -> protocol.BuildForward:
    """A forward whose rows carry these lengths. more: fields of the batch, and of the forward."""
    how = {name: more.pop(name) for name in ("positions", "path", "strided", "host_lengths") if name in more}
    batch = Batch(mode, (BatchPart(reqs=reqs, fields={"seq_len": seq_lens, **more}),))
    return protocol.BuildForward(batch, **how)


def windows(*rows: tuple[int, int]) -> protocol.BuildForward:
    """The 1-D position kernel on (prefix_len, extend_len) of each request."""
    fields: dict[str, Value] = {
        "prefix_len": tuple(row[0] for row in rows),
        "extend_len": tuple(row[1] for row in rows),
    }
    return protocol.BuildForward(Batch("extend", (BatchPart(tuple(range(len(rows))), fields),)), path="kernel")


def without_tables(rule: str, what: str, result: protocol.Result) -> LimitCheck:
    """What an answer without tables comes to."""
    if isinstance(result, protocol.NotOfferedAnswer):
        return LimitCheck(rule=rule, what=what, note=result.reason)
    if not isinstance(result, protocol.Raised):
        return LimitCheck(rule=rule, what=what, unrun=f"answered with {type(result).__name__}")
    line = raised_line(result)
    if result.type == "InterpreterError":
        return LimitCheck(rule=rule, what=what, note=line)  # Triton's interpreter, not the kernel
    if result.stage == "engine":
        return LimitCheck(rule=rule, what=what, problem=line)
    return LimitCheck(rule=rule, what=what, unrun=f"{result.stage}: {line}")


def judged(
    what: str, result: protocol.TablesAnswer, forward: protocol.BuildForward, indices: list[list[int]]
) -> LimitCheck:
    """What the rules say of an answer."""
    if forward.strided and not any(name.endswith(STRIDED) for name in result.ran):
        return LimitCheck(rule="table.index", what=what, note="the kernel that ran takes no stride")
    table, mode = result.tables[0], mode_of(forward.mode)
    positions, rows = seen(table.positions), None if forward.path == "kernel" else seen(table.mrope)
    view = Tables(
        mode=mode.name,
        tokens=sum(map(len, indices)),
        positions=positions,
        rows=rows,
        index_dtype=mode.index_dtype,
        one_dimensional=forward.path == "kernel",
    )
    tally = ScenarioTally()
    broken = ask(tally, mode.name, view)
    start = 0
    for req, tokens in zip(forward.reqs, indices, strict=True):
        part, start = slice(start, start + len(tokens)), start + len(tokens)
        if broken or positions is None:
            break
        row = Row(
            mode=mode.name,
            place=places()[req],
            tokens=tokens,
            positions=positions.values[0][part],
            columns=None if rows is None else tuple(values[part] for values in rows.values),
        )
        broken = ask(tally, mode.name, row)
        if broken:
            rule, found = broken[0]
            line = f"{found.axis}, column {part.start + (found.at or 0)}: {found.observed}, must be {found.expected}"
            return LimitCheck(rule=rule.id, what=what, problem=line)
    for rule, found in broken:
        return LimitCheck(rule=rule.id, what=what, problem=found.message)
    return LimitCheck(rule="table.index", what=what)

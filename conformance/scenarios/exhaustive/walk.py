"""Every sequence of a scheduler's moves over plain requests, up to a renaming of the requests."""

from collections.abc import Iterator, Sequence
from itertools import combinations, permutations, product

import msgspec

from ropecheck.adapters.batch import Batch
from ropecheck.conformance.scenario.lifecycle import apply
from ropecheck.conformance.scenario.operations import Accept, Build, Operation, Reschedule, Retract, Scenario, Submit
from ropecheck.conformance.scenario.words import Window, decode, draft, draft_extend, extend, mixed, verify, window
from ropecheck.conformance.scenarios.exhaustive.scopes import PlainScope, Round
from ropecheck.reference.requests import Request, State, tokens_of
from ropecheck.spec.history import History

Move = tuple[Operation, ...]


def walk(scope: PlainScope) -> Iterator[Scenario]:
    """Every canonical scenario of the scope: prompts, then exactly `depth` moves."""
    number = 0
    for prompts in scope.starts():
        arrivals = tuple(Submit(req, prompt) for req, prompt in enumerate(prompts))
        state = State(family="qwen2_vl")
        for op in arrivals:
            state = apply(state, op).state
        twins = _symmetries(prompts)
        for path in _paths(state, scope, scope.depth):
            if all(_canonical(path, renaming) for renaming in twins):
                number += 1
                ops = (*arrivals, *(op for move in path for op in move))
                yield Scenario(name=f"{scope.name} #{number}", ops=ops)


def _paths(state: State, scope: PlainScope, depth: int) -> Iterator[tuple[Move, ...]]:
    if depth == 0:
        yield ()
        return
    for move in moves(state, scope):
        after = state
        for op in move:
            after = apply(after, op, build=False).state
        for rest in _paths(after, scope, depth - 1):
            yield (move, *rest)


def moves(state: State, scope: PlainScope) -> Iterator[Move]:
    """Every move of a scheduler from here."""
    waiting = [r for r in state.requests.values() if r.status in ("waiting", "retracted")]
    running = [r for r in state.requests.values() if r.status == "running"]
    batches = list(_prefills(waiting, scope))
    decodes = [tuple(r.req for r in some) for some in _subsets(running)]
    for windows in batches:
        yield (extend(windows),)
    for reqs in decodes:
        yield (decode(reqs),)
    for windows in batches:
        for reqs in decodes:
            yield (mixed(windows, reqs),)
    for reqs in decodes:
        for spec_round in scope.rounds:
            for accepted in product(spec_round.accepts, repeat=len(reqs)):
                yield _round(reqs, spec_round, accepted, scope.path)
    if scope.retract:
        for request in running:
            yield (Retract(request.req),)
        for request in waiting:
            if request.status == "retracted" and not request.admitted:
                yield (Reschedule(request.req),)


def _prefills(waiting: Sequence[Request], scope: PlainScope) -> Iterator[tuple[Window, ...]]:
    """Windows of every non-empty set of waiting requests, at most one of them cut short."""
    for some in _subsets(waiting):
        for windows in product(*(tuple(_windows(request, scope)) for request in some)):
            if sum(tokens != 0 for _req, tokens, _hit in windows) <= 1:
                yield windows


def _windows(request: Request, scope: PlainScope) -> Iterator[Window]:
    total = tokens_of(request)
    fresh = not request.admitted
    for hit in range(total if fresh and scope.hits else 1):
        yield window(request.req, 0, hit)
        for cut in range(1, total - max(hit, request.computed)):
            yield window(request.req, cut, hit)


def _round(reqs: tuple[int, ...], spec_round: Round, accepted: tuple[int, ...], path: str) -> Move:
    nodes = len(spec_round.parents) + 1
    return (
        draft(reqs, num_steps=2, topk=spec_round.topk, path=path),
        verify(reqs, (spec_round.parents,) * len(reqs), topk=spec_round.topk, path=path),
        draft_extend(reqs, nodes, path=path),
        *(Accept(req, tokens) for req, tokens in zip(reqs, accepted, strict=True)),
    )


def _subsets(requests: Sequence[Request]) -> Iterator[tuple[Request, ...]]:
    for size in range(1, len(requests) + 1):
        yield from combinations(requests, size)


def _symmetries(prompts: tuple[History, ...]) -> list[dict[int, int]]:
    """Renamings that map equal prompts to each other, without the identity."""
    out = []
    for order in permutations(range(len(prompts))):
        if order != tuple(range(len(prompts))) and all(prompts[a] == prompts[b] for a, b in enumerate(order)):
            out.append(dict(enumerate(order)))
    return out


def _canonical(path: tuple[Move, ...], renaming: dict[int, int]) -> bool:
    """Whether the path comes no later than its renamed self, in a fixed order."""
    return _key(path) <= _key(tuple(_renamed_move(move, renaming) for move in path))


def _renamed_move(move: Move, names: dict[int, int]) -> Move:
    """The move with other request numbers, its accepts in ascending order as the walk writes them."""
    renamed = [_renamed(op, names) for op in move]
    accepts = sorted((op for op in renamed if isinstance(op, Accept)), key=lambda op: op.req)
    return (*(op for op in renamed if not isinstance(op, Accept)), *accepts)


def _key(path: tuple[Move, ...]) -> bytes:
    return msgspec.json.encode(path, order="deterministic")


def _renamed(op: Operation, names: dict[int, int]) -> Operation:
    """The operation with other request numbers; the rows of a batch's parts stay in ascending order."""
    if isinstance(op, Build):
        return msgspec.structs.replace(op, batch=renamed(op.batch, names))
    if isinstance(op, Accept | Retract | Reschedule):
        return msgspec.structs.replace(op, req=names[op.req])
    raise TypeError(f"no renaming for {op}")


def renamed(batch: Batch, names: dict[int, int]) -> Batch:
    """The batch with other request numbers, each part's rows in ascending order."""
    parts = []
    for part in batch.parts:
        moved = part.take(sorted(range(len(part.reqs)), key=lambda row: names[part.reqs[row]]))
        parts.append(msgspec.structs.replace(moved, reqs=tuple(names[req] for req in moved.reqs)))
    return msgspec.structs.replace(batch, parts=tuple(parts))

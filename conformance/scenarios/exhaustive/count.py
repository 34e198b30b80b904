"""The second way to count a scope: arithmetic on lengths alone. It shares no code with the walk and builds no scenario.

One request is (tokens, computed, fresh, retracted, running); a set of requests is a sorted tuple of those. Paths are
counted by dynamic programming. For two requests with one prompt, paths that differ by a renaming are counted once, by
Burnside's lemma: (all paths + paths that renaming leaves alone) / 2.
"""

from collections.abc import Iterator
from functools import cache
from itertools import product
from math import comb

from ropecheck.conformance.scenarios.exhaustive.modes import ModeScope
from ropecheck.conformance.scenarios.exhaustive.scopes import AnyScope, PlainScope, SessionScope
from ropecheck.reference.timeline import token_count
from ropecheck.spec.modes import all_modes
from ropecheck.spec.modes.declaration import Domain, Mode, Tree, Whole

One = tuple[int, int, bool, bool, bool]
"""(tokens, computed, fresh, retracted, running) of one request."""


def count_scope(scope: AnyScope) -> int:
    """Scenarios of a scope."""
    if isinstance(scope, ModeScope):
        return sum(_count_mode(scope, mode) for mode in all_modes().values())
    return _count_turns(scope) if isinstance(scope, SessionScope) else _count_plain(scope)


def _count_plain(scope: PlainScope) -> int:
    if scope.requests > 2:
        raise ValueError("the second count knows one and two requests")
    accepts = tuple(tuple(spec_round.accepts) for spec_round in scope.rounds)
    options = (scope.hits, accepts, scope.retract)
    total = 0
    for prompts in scope.starts():
        ones = tuple((token_count("qwen2_vl", prompt), 0, True, False, False) for prompt in prompts)
        paths = _paths(ones, scope.depth, options)
        if len(prompts) == 2 and prompts[0] == prompts[1]:
            paths = (paths + _fixed(ones[0], scope.depth, options)) // 2
        total += paths
    return total


Options = tuple[bool, tuple[tuple[int, ...], ...], bool]


@cache
def _paths(ones: tuple[One, ...], depth: int, options: Options) -> int:
    if depth == 0:
        return 1
    return sum(times * _paths(after, depth - 1, options) for after, times in _moves(ones, options))


def _moves(ones: tuple[One, ...], options: Options) -> Iterator[tuple[tuple[One, ...], int]]:
    """(state after, number of moves that lead there)."""
    hits, rounds, retract = options
    choices = []
    for one in ones:
        tokens, computed, fresh, retracted, running = one
        here: list[tuple[str, One, int]] = [("rest", one, 1)]
        if running:
            here.append(("decode", (tokens + 1, tokens, False, False, True), 1))
        else:
            starts = range(tokens) if fresh and hits else range(computed, computed + 1)
            here.append(("whole", (tokens + 1, tokens, False, False, True), len(starts)))
            for start in starts:
                for end in range(start + 1, tokens):
                    here.append(("cut", (tokens, end, False, retracted, False), 1))
        choices.append(here)
    for combination in product(*choices):
        kinds = [kind for kind, _one, _times in combination]
        if kinds.count("cut") > 1 or all(kind == "rest" for kind in kinds):
            continue
        times = 1
        for _kind, _one, factor in combination:
            times *= factor
        yield tuple(one for _kind, one, _times in combination), times
    for accepts in rounds:
        per_request = [
            [one] + ([(one[0] + n, one[0] + n - 1, False, False, True) for n in accepts] if one[4] else [])
            for one in ones
        ]
        for after in product(*per_request):
            if after != ones:
                yield after, 1
    if retract:
        for number, (tokens, _computed, fresh, retracted, running) in enumerate(ones):
            if running:
                yield (*ones[:number], (tokens, 0, True, True, False), *ones[number + 1 :]), 1
            elif retracted and fresh:
                yield ones, 1


@cache
def _fixed(one: One, depth: int, options: Options) -> int:
    """Paths of two equal requests that stay equal: both do the same in every move."""
    if depth == 0:
        return 1
    hits, rounds, _retract = options
    tokens, computed, fresh, _retracted, running = one
    grown = (tokens + 1, tokens, False, False, True)
    if not running:
        del computed
        return (tokens if fresh and hits else 1) * _fixed(grown, depth - 1, options)
    total = _fixed(grown, depth - 1, options)
    for accepts in rounds:
        for n in accepts:
            total += _fixed((tokens + n, tokens + n - 1, False, False, True), depth - 1, options)
    return total


def _count_turns(scope: SessionScope) -> int:
    first = tuple(token_count("qwen2_vl", prompt) for prompt in scope.first)
    later = tuple(token_count("qwen2_vl", prompt) for prompt in scope.later)
    return _turns((), 0, scope, first, later)


def _turns(
    known: tuple[tuple[int, int, int, int], ...],
    number: int,
    scope: SessionScope,
    first: tuple[int, ...],
    later: tuple[int, ...],
) -> int:
    """known: (turn, prompt tokens, reply tokens, parent or -1) of turns that a later one may name."""
    total = 0
    for tokens, left, parent in _continuations(known, number, scope, first, later):
        if number == scope.turns - 1:
            total += (tokens if scope.hits else 1) * scope.reply
            continue
        for reply in range(1, scope.reply + 1):
            kept = ((number, tokens, reply, parent),) if scope.streaming else (*left, (number, tokens, reply, parent))
            total += _turns(kept, number + 1, scope, first, later)
        if scope.aborts:
            total += 2 * _turns(left, number + 1, scope, first, later)
    return total


def _continuations(
    known: tuple[tuple[int, int, int, int], ...],
    number: int,
    scope: SessionScope,
    first: tuple[int, ...],
    later: tuple[int, ...],
) -> Iterator[tuple[int, tuple[tuple[int, int, int, int], ...], int]]:
    """(prompt tokens, turns still known, parent) of every way to go on."""
    for new in first if number == 0 else later:
        if scope.streaming or number == 0:
            yield new + sum(tokens + reply for _n, tokens, reply, _p in known), known, -1
            continue
        if scope.rewrites or not known:
            yield new, () if scope.rewrites else known, -1
        for turn, tokens, reply, _parent in known:
            yield tokens + reply + new, known, turn
            if scope.rewrites:
                yield tokens + reply + new, _childless(known, turn), turn
                yield tokens + new, known, turn
                for keep in range(1, tokens + reply):
                    yield keep + new, known, turn


def _childless(known: tuple[tuple[int, int, int, int], ...], turn: int) -> tuple[tuple[int, int, int, int], ...]:
    gone: set[int] = set()
    for entry in known:
        if entry[3] == turn or entry[3] in gone:
            gone.add(entry[0])
    return tuple(entry for entry in known if entry[0] not in gone)


def _count_mode(scope: ModeScope, mode: Mode) -> int:
    if mode.reads == "nobody":
        return 1 + len(mode.buffers)
    total = 1
    for part in mode.parts:
        total *= _count_part(scope, part, 1 if len(mode.parts) > 1 else scope.rows)
    return total


def _count_part(scope: ModeScope, mode: Mode, most: int) -> int:
    """Batches of a part: multisets of prompts times values of the fields."""
    if mode.follows:
        return _count_fields(mode, 1, scope.bound)
    lengths = [
        token_count("qwen2_vl", p) for p in scope.prompts if mode.reads != "text" or {run.kind for run in p} == {"text"}
    ]
    total = 0
    for rows in range(1, most + 1):
        if mode.reads == "prefilling":
            # The first prompt of the multiset is its least in list order: it is followed by any of those from it on.
            for first, tokens in enumerate(lengths):
                total += tokens * comb(len(lengths) - first + rows - 2, rows - 1)
        else:
            total += comb(len(lengths) + rows - 1, rows) * _count_fields(mode, rows, scope.bound)
    return total


def _count_fields(mode: Mode, rows: int, bound: int) -> int:
    """Values of all chosen fields together. Numbers that a tree or a multiple refers to are summed over."""
    numbers = {f.name: f.domain for f in mode.chosen if isinstance(f.domain, Whole) and not f.domain.multiple_of}
    shared = [name for name, domain in numbers.items() if not domain.each]
    total = 0
    for values in product(*(range(min(numbers[n].high - numbers[n].low, bound) + 1) for n in shared)):
        known = {name: numbers[name].low + value for name, value in zip(shared, values, strict=True)}
        ways = 1
        for field in mode.chosen:
            if field.name in known:
                continue
            ways *= _count_field(field.domain, known, bound) ** rows
        total += ways
    return total


def _count_field(domain: Domain | None, known: dict[str, int], bound: int) -> int:
    """Values of one field in one row."""
    if isinstance(domain, Tree):
        branches = known[domain.branches] if domain.branches else 1
        sizes = [known[domain.nodes]] if domain.nodes else range(1, min(domain.most, bound + 1) + 1)
        return sum(_count_trees(size - 1, 0, 1, branches) for size in sizes)
    assert isinstance(domain, Whole)
    step = known[domain.multiple_of] if domain.multiple_of else 1
    return min((domain.high - domain.low) // step, bound) + 1


@cache
def _count_trees(left: int, used: int, open_nodes: int, branches: int) -> int:
    """Trees by depth order: the node whose turn it is has `used` children; `open_nodes` nodes have yet to have a turn,
    it included; `left` nodes are to be placed."""
    if left == 0:
        return 1
    if open_nodes == 0:
        return 0
    total = _count_trees(left, 0, open_nodes - 1, branches)
    if used < branches:
        total += _count_trees(left - 1, used + 1, open_nodes + 1, branches)
    return total

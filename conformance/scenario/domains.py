"""Values of a mode's chosen fields, by their declared domains: every one up to a bound, one at random, smaller ones."""

from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Any

from ropecheck.spec.modes.declaration import Field, Mode, Parents, Tree, Whole

Fields = dict[str, Any]

Number = Callable[[int, int], int]
"""Draws a whole number between two bounds, inclusive."""


def assignments(mode: Mode, rows: int, bound: int) -> Iterator[Fields]:
    """Every value of every chosen field for `rows` rows; a whole number goes from its least to `bound` above it."""

    def assign(left: tuple[Field, ...], done: Fields) -> Iterator[Fields]:
        if not left:
            yield done
            return
        field, rest = left[0], left[1:]
        one = _values(field, done, bound)
        for value in product(one, repeat=rows) if field.each else one:
            yield from assign(rest, {**done, field.name: value})

    yield from assign(_in_order(mode), {})


def drawn(mode: Mode, rows: int, number: Number) -> Fields:
    """One value of every chosen field, drawn from its whole domain."""
    out: Fields = {}
    for field in _in_order(mode):
        count = rows if field.each else 1
        values = tuple(_draw(field, out, number) for _ in range(count))
        out[field.name] = values if field.each else values[0]
    return out


def smaller(mode: Mode, fields: Mapping[str, Any]) -> Iterator[Fields]:
    """The same fields with one of them smaller; fields that bound each other shrink together."""
    for field in mode.chosen:
        value = fields.get(field.name)
        if value is None:
            continue
        if isinstance(field.domain, Tree):
            yield from _smaller_trees(field, field.domain, fields)
        elif isinstance(field.domain, Whole):
            yield from _smaller_numbers(mode, field, field.domain, fields)


def trees(nodes: int, branches: int) -> Iterator[Parents]:
    """Every tree of so many nodes whose nodes stand in the order of their depth, at most `branches` children each."""

    def grow(parents: Parents) -> Iterator[Parents]:
        if len(parents) == nodes - 1:
            yield parents
            return
        for parent in range(parents[-1] if parents else 0, len(parents) + 1):
            if parents.count(parent) < branches:
                yield from grow((*parents, parent))

    yield from grow(())


def drawn_tree(nodes: int, branches: int, number: Number) -> Parents:
    """A tree of so many nodes, in the order of their depth; with one branch a chain, for which nothing is drawn."""
    parents: Parents = ()
    for node in range(1, nodes):
        low = parents[-1] if parents else 0
        while parents.count(low) >= branches:
            low += 1
        parents = (*parents, number(low, min(node - 1, low + 1)) if branches > 1 else low)
    return parents


def _in_order(mode: Mode) -> tuple[Field, ...]:
    """Fields that others refer to come first."""
    return tuple(sorted(mode.chosen, key=lambda field: bool(_refers(field))))


def _refers(field: Field) -> tuple[str, ...]:
    if isinstance(field.domain, Tree):
        return tuple(filter(None, (field.domain.nodes, field.domain.branches)))
    return (field.domain.multiple_of,) if isinstance(field.domain, Whole) and field.domain.multiple_of else ()


def _values(field: Field, done: Fields, bound: int) -> list[Any]:
    domain = field.domain
    if isinstance(domain, Tree):
        branches = done[domain.branches] if domain.branches else 1
        sizes = [done[domain.nodes]] if domain.nodes else range(1, min(domain.most, bound + 1) + 1)
        return [tree for size in sizes for tree in trees(size, branches)]
    assert isinstance(domain, Whole)
    step = done[domain.multiple_of] if domain.multiple_of else 1
    return list(range(domain.low, min(domain.high, domain.low + bound * step) + 1, step))


def _draw(field: Field, done: Fields, number: Number) -> Any:
    domain = field.domain
    if isinstance(domain, Tree):
        nodes = done[domain.nodes] if domain.nodes else number(1, domain.most)
        return drawn_tree(nodes, done[domain.branches] if domain.branches else 1, number)
    assert isinstance(domain, Whole)
    step = done[domain.multiple_of] if domain.multiple_of else 1
    return number(-(-domain.low // step), domain.high // step) * step


def _smaller_trees(field: Field, domain: Tree, fields: Mapping[str, Any]) -> Iterator[Fields]:
    value = fields[field.name]
    if domain.nodes:
        if all(value):
            cut = tuple(tree[:-1] for tree in value)
            yield {**fields, field.name: cut, domain.nodes: fields[domain.nodes] - 1}
        return
    for row, tree in enumerate(value):
        if tree:
            yield {**fields, field.name: (*value[:row], tree[:-1], *value[row + 1 :])}


def _smaller_numbers(mode: Mode, field: Field, domain: Whole, fields: Mapping[str, Any]) -> Iterator[Fields]:
    if any(field.name == tree.domain.nodes for tree in mode.chosen if isinstance(tree.domain, Tree)):
        return  # the trees shrink, and this with them
    value = fields[field.name]
    step = fields[domain.multiple_of] if domain.multiple_of else 1
    if not domain.each:
        for less in sorted({domain.low, value - 1}):
            if domain.low <= less < value:
                yield {**fields, field.name: less}
        return
    for row, one in enumerate(value):
        for less in sorted({domain.low, one - step}):
            if domain.low <= less < one:
                yield {**fields, field.name: (*value[:row], less, *value[row + 1 :])}


COUNTS = {
    "prefix_len": "tokens whose cache entries exist",
    "extend_len": "tokens that this forward computes",
    "seq_len": "tokens so far, the newest one counted",
    "committed_len": "tokens so far, without the newest one",
    "step": "which forward of the loop, from 0",
}


def counts(field: Field) -> str:
    """In words: what a field counts, where the request's state says it, else what may be chosen."""
    domain = field.domain
    if domain is None:
        return COUNTS[field.kind]
    if isinstance(domain, Tree):
        size = f"as many nodes as {domain.nodes}" if domain.nodes else f"up to {domain.most} nodes"
        shape = f"at most {domain.branches} children each" if domain.branches else "a chain"
        return f"chosen for each row: the parents of a drafted tree's nodes after the root, {size}, {shape}"
    per = "for each row" if domain.each else "once for the batch"
    multiple = f", a multiple of {domain.multiple_of}" if domain.multiple_of else ""
    return f"chosen {per}: {domain.low} to {domain.high}{multiple}"

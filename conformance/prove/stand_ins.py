"""What Python's own functions do with numbers and sequences that stand for any, where the specification calls them."""

import builtins
import functools
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import z3

from ropecheck.conformance.prove.errors import Unanswered
from ropecheck.conformance.prove.explorer import Explorer, Int, now, running, term_of
from ropecheck.conformance.prove.sequences import (
    EachElement,
    Element,
    ElementBlock,
    Parents,
    Seq,
    block_of,
    collected,
    element,
    largest,
    same,
    smallest,
)
from ropecheck.spec.modes import all_modes


def tuple_(values: Iterable[Any] = ()) -> Any:
    """`tuple`."""
    if isinstance(values, Seq):
        return values
    found = collected(values)
    return (
        Seq(*(block_of(*one) for one in found)) if any(each for _, each in found) else tuple(item for item, _ in found)
    )


def len_(values: Any) -> Any:
    """`len`."""
    if isinstance(values, list | tuple) and any(isinstance(value, Element) for value in values):
        raise Unanswered("the length of a list of tables")
    return values.length() if isinstance(values, Seq | Parents) else builtins.len(values)


def range_(*bounds: Any) -> Any:
    """`range`."""
    if not any(isinstance(bound, Int) for bound in bounds):
        return builtins.range(*bounds)
    if len(bounds) > 1:
        raise Unanswered("a range of sizes that does not start at 0")
    return Seq(ElementBlock(count=largest(bounds[0], 0), at=Int))


def max_(*values: Any, **options: Any) -> Any:
    """`max`."""
    return _most(builtins.max, largest, values, options)


def min_(*values: Any, **options: Any) -> Any:
    """`min`."""
    return _most(builtins.min, smallest, values, options)


def _most(plain: Any, more: Callable[[Any, Any], Any], values: tuple[Any, ...], options: dict[str, Any]) -> Any:
    found = collected(values[0]) if len(values) == 1 else [(value, None) for value in values]
    if not any(each or isinstance(item, Int) for item, each in found):
        return plain([item for item, _ in found], **options)
    kept = [
        item if each is None else _bound(item, each, more) for item, each in found if each is None or each.count > 0
    ]
    if not kept:
        raise ValueError("the largest of nothing")
    return functools.reduce(more, kept)


def _bound(item: Any, each: EachElement, more: Callable[[Any, Any], Any]) -> Any:
    """The largest (or smallest) of a block of numbers: at one end of it where it rises or falls evenly, else one that
    no element passes and that some element is."""
    first, last = (element(item, each, index) for index in (z3.IntVal(0), term_of(each.count - 1)))
    slope = z3.simplify(term_of(element(item, each, each.term + 1) - item))
    if z3.is_int_value(slope):
        return more(first, last)
    i = z3.Int("i")
    each_one = term_of(element(item, each, i))
    name = f"{more.__name__} of {each_one.sexpr()} below {term_of(each.count).sexpr()}"
    if name not in now().largest:
        most, where = Int(now().fresh("largest!")), now().fresh("where!")
        inside = z3.And(i >= 0, i < term_of(each.count))
        now().fact(z3.ForAll([i], z3.Implies(inside, term_of(more(Int(each_one), most)) == most.term)))
        now().fact(z3.And(where >= 0, where < term_of(each.count)))
        now().fact(term_of(element(item, each, where)) == most.term)
        now().largest[name] = most
    return now().largest[name]


def reduce_(step: Callable[[Any, Any], Any], values: Any, *start: Any) -> Any:
    """`reduce`, by induction over a drafted tree's nodes: each adds its own depth and leaves those before alone."""
    if not isinstance(values, Parents):
        return functools.reduce(step, values, *start)
    (root,) = start
    if len(root) != 1:
        raise Unanswered("a tree without its root")
    node = Int(now().fresh("node!"))
    depth = z3.Function("depth", z3.IntSort(), z3.IntSort(), z3.IntSort())
    tree, chain = term_of(values.tree), values.chain
    before = Seq(ElementBlock(count=node, at=(lambda i: Int(i)) if chain else (lambda i: Int(depth(tree, i)))))
    parent = values.of(node)
    now().fact(z3.And(node.term >= 1, term_of(parent) >= 0))
    after = step(before, parent)
    own = after[node]
    grown = z3.And(term_of(after.length()) == node.term + 1, same(after[:node], before))
    if chain:
        wanted = z3.And(grown, term_of(own) == node.term, term_of(root[0]) == 0)
    else:
        above = z3.Implies(depth(tree, term_of(parent)) >= 0, term_of(own) >= 0)
        wanted = z3.And(grown, above, term_of(root[0]) >= 0)
    if reason := now().proves(wanted):
        raise Unanswered(f"depths of a tree, node by node: {reason}")
    if chain:
        return Seq(ElementBlock(count=values.nodes + 1, at=Int))
    now().fact(depth(tree, 0) == term_of(root[0]))

    def at(i: Any) -> Any:
        values.of(Int(i))
        now().fact(z3.Implies(i >= 1, depth(tree, i) == z3.substitute(term_of(own), (node.term, i))))
        now().fact(z3.Implies(i >= 0, depth(tree, i) >= 0))
        return Int(depth(tree, i))

    return Seq(ElementBlock(count=values.nodes + 1, at=at))


SPECIFICATION = "ropecheck.spec."
STAND_INS = {"tuple": tuple_, "len": len_, "range": range_, "max": max_, "min": min_}


@contextmanager
def on_terms(explorer: Explorer) -> Iterator[None]:
    """Within it the specification's modules count with numbers that stand for all; what they were is put back."""
    spaces = {id(vars(module)): vars(module) for name, module in sys.modules.items() if name.startswith(SPECIFICATION)}
    spaces |= {id(space): space for space in (one.tokens.__globals__ for one in all_modes().values())}
    taken = [(space, name) for space in spaces.values() for name in STAND_INS if name not in space]
    folds = [space for space in spaces.values() if space.get("reduce") is functools.reduce]
    running.append(explorer)
    try:
        for space, name in taken:
            space[name] = STAND_INS[name]
        for space in folds:
            space["reduce"] = reduce_
        yield
    finally:
        for space, name in taken:
            del space[name]
        for space in folds:
            space["reduce"] = functools.reduce
        running.pop()

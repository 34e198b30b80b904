"""What the specification's modules see as len, range, max, ... while a statement runs: the same for plain values, and
what they mean for numbers and sequences that stand for many."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import z3

from ropecheck.conformance.prove.explorer import Unanswered
from ropecheck.conformance.prove.numbers import Number, explorer, term_of
from ropecheck.conformance.prove.path import simplify
from ropecheck.conformance.prove.sequences import Seq, gathered, up_to


def _len(values: Any) -> Any:
    if isinstance(values, (tuple, list)):
        values = gathered(values)
    return values.length() if isinstance(values, Seq) else len(values)


def _range(*bounds: Any) -> Any:
    if not any(isinstance(bound, Number) for bound in bounds):
        return range(*bounds)
    if len(bounds) > 2:
        raise Unanswered("a range with a step")
    start, stop = (0, bounds[0]) if len(bounds) == 1 else bounds
    count = stop - start
    return up_to(count if count > 0 else 0, start)


def _enumerate(values: Any, start: Any = 0) -> Any:
    if not isinstance(values, Seq):
        return enumerate(values, start)
    blocks, before = [], start
    for block in values.blocks:
        blocks.append(block.numbered(before))
        before = before + block.length
    return Seq(blocks)


def _max(*values: Any, **options: Any) -> Any:
    return _extreme(builtins.max, values, options)


def _min(*values: Any, **options: Any) -> Any:
    return _extreme(builtins.min, values, options)


def _extreme(which: Any, values: tuple[Any, ...], options: dict[str, Any]) -> Any:
    plain = list(values[0]) if len(values) == 1 else list(values)
    if options or not any(isinstance(value, Number) for value in plain):
        return which(plain, **options)
    lone = len(values) == 1
    found: Any = None
    for value in plain:
        value = _over_block(which, value) if lone else value
        found = value if found is None else _of_two(which, found, value)
    return found


def _over_block(which: Any, value: Any) -> Any:
    """The extreme of the block that an arbitrary element stands for."""
    if not isinstance(value, Number) or not (indices := explorer().arbitrary_in(value.term)):
        return value
    if len(indices) > 1 or indices[0][0].get_id() in explorer().path.split:
        raise Unanswered("the largest of a part of a loop")
    ((index, count),) = indices
    if which is builtins.min:
        return -Number(explorer().peak(-value.term, index, count))
    return Number(explorer().peak(value.term, index, count))


def _of_two(which: Any, one: Any, other: Any) -> Number:
    a, b = term_of(one), term_of(other)
    larger = a >= b if which is builtins.max else a <= b
    difference = simplify(a - b)
    if z3.is_int_value(difference) or not explorer().arbitrary_in(difference):
        if explorer().holds(larger):
            return Number(a)
        if explorer().holds(b >= a if which is builtins.max else b <= a):
            return Number(b)
    return Number(z3.If(larger, a, b))


REPLACED: dict[str, Any] = {
    "len": _len,
    "range": _range,
    "enumerate": _enumerate,
    "max": _max,
    "min": _min,
    "tuple": gathered,
}
"""Names that the specification's modules see differently."""


@contextmanager
def in_the_specification() -> Iterator[None]:
    """Puts them into every module of `spec`, and takes them out again.

    Raises Unanswered where a module has something of its own by such a name.
    """
    spaces = [vars(module) for name, module in sys.modules.items() if name.startswith("ropecheck.spec.")]
    if own := {name for space in spaces for name in (*REPLACED, "zip") if name in space}:
        raise Unanswered(f"the specification has its own {', '.join(sorted(own))}")
    for space in spaces:
        space.update(REPLACED)
    try:
        yield
    finally:
        for space in spaces:
            for name in REPLACED:
                del space[name]

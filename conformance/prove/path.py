"""What is known, chosen and made on one path of a statement, and what z3 terms are made of."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import z3

Term = Any
"""A z3 expression; z3 is not annotated."""


_SIMPLIFYING = z3.ParamsRef()
_SIMPLIFYING.set("ctrl_c", False)


def simplify(term: Term) -> Term:
    """z3.simplify, which would put a handler of its own in place of Ctrl-C's for the time of the call."""
    return z3.z3._to_expr_ref(z3.Z3_simplify_ex(term.ctx_ref(), term.as_ast(), _SIMPLIFYING.params), term.ctx)


@dataclass
class Peak:
    """The largest value of a function of an index, over 0 <= index < count."""

    value: Term
    index: Term
    count: Term
    symbol: Term


@dataclass
class Placed:
    """The columns that a media run got: which run, where it starts, how many, and the columns as terms."""

    media: str
    start: Term
    count: Term
    column: Callable[[Term], tuple[Term, ...]]


@dataclass
class Path:
    """What is known, chosen and made on one path."""

    names: int = 0
    sizes: dict[str, Term] = field(default_factory=dict)
    choices: dict[str, int] = field(default_factory=dict)
    placed: list[Placed] = field(default_factory=list)
    generics: dict[int, tuple[Term, Term]] = field(default_factory=dict)
    """Id of an arbitrary index -> (the index, how many there are)."""
    split: set[int] = field(default_factory=set)
    """Arbitrary indices on which the path depends: what holds of them need not hold of their neighbours."""
    origins: dict[int, tuple[Any, Any, Term]] = field(default_factory=dict)
    """Id of an element that stands for a block -> (element, the block, the arbitrary index)."""
    known: dict[int, bool] = field(default_factory=dict)
    models: list[Any] = field(default_factory=list)
    """Values that meet all facts of the path so far: what holds in one needs no query."""
    peaks: dict[tuple[int, int], Peak] = field(default_factory=dict)
    told: set[tuple[int, int]] = field(default_factory=set)
    """(peak, entry) pairs, by id: z3 was told that the peak is no smaller where the entry stands."""
    reads: dict[int, Term] = field(default_factory=dict)
    """Table entries that the path's formulas hold, by id."""
    again: list[tuple[Term, Term]] = field(default_factory=list)

    def copy(self) -> Path:
        """The same, to go on from."""
        return Path(**{part.name: copy(getattr(self, part.name)) for part in fields(self)})


class Contents(NamedTuple):
    """What a term is made of."""

    term: Term
    """Kept, so that its id stays its own."""
    entries: dict[int, Term]
    """Table entries in it, by id."""
    open: dict[int, Term]
    """Unknown integers in it, by id."""


_CONTENTS: dict[int, Contents] = {}


def contents(term: Term) -> Contents:
    """What a term is made of; each term is looked through once."""
    found = _CONTENTS.get(term.get_id())
    if found is None:
        entries: dict[int, Term] = {}
        unknown: dict[int, Term] = {}
        for child in term.children():
            inner = contents(child)
            entries.update(inner.entries)
            unknown.update(inner.open)
        if z3.is_app(term) and term.decl().kind() == z3.Z3_OP_UNINTERPRETED:
            (entries if term.num_args() else unknown)[term.get_id()] = term
        found = _CONTENTS[term.get_id()] = Contents(term, entries, unknown)
    return found

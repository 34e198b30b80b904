"""Numbers that stand for any number: what the specification's functions are called with.

A comparison gives a Truth, and asking a Truth for its bool is a fork of the path. What is not linear arithmetic raises
Unanswered.
"""

from __future__ import annotations

from typing import Any

import z3

from ropecheck.conformance.prove.explorer import Explorer, Unanswered
from ropecheck.conformance.prove.path import Term, simplify

_exploring: list[Explorer] = []


def explorer() -> Explorer:
    """The explorer of the statement that runs now."""
    return _exploring[-1]


def enter(one: Explorer) -> None:
    """From here on, forks belong to `one`."""
    _exploring.append(one)


def leave() -> None:
    """Ends what `enter` began."""
    _exploring.pop()


class Truth:
    """A formula; its bool is a fork."""

    def __init__(self, term: Term) -> None:
        self.term = term

    def __bool__(self) -> bool:
        return explorer().fork(self.term)


class Number:
    """An integer that stands for many."""

    def __init__(self, term: Term) -> None:
        self.term = simplify(term)

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return str(self.term)

    def __format__(self, spec: str) -> str:
        return str(self.term)

    def __add__(self, other: Any) -> Any:
        return _operate(other, lambda o: self.term + o)

    def __radd__(self, other: Any) -> Any:
        return _operate(other, lambda o: o + self.term)

    def __sub__(self, other: Any) -> Any:
        return _operate(other, lambda o: self.term - o)

    def __rsub__(self, other: Any) -> Any:
        return _operate(other, lambda o: o - self.term)

    def __neg__(self) -> Number:
        return Number(-self.term)

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, (tuple, list)):
            from ropecheck.conformance.prove.sequences import repeated

            return repeated(other, self)
        if isinstance(other, Number) and not z3.is_int_value(self.term) and not z3.is_int_value(other.term):
            raise Unanswered(f"a product of sizes: {self} * {other}")
        return _operate(other, lambda o: self.term * o)

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Any:
        return number(self.term / _divisor(other))

    def __mod__(self, other: Any) -> Any:
        return number(self.term % _divisor(other))

    def __lt__(self, other: Any) -> Any:
        return _compare(other, lambda o: self.term < o)

    def __le__(self, other: Any) -> Any:
        return _compare(other, lambda o: self.term <= o)

    def __gt__(self, other: Any) -> Any:
        return _compare(other, lambda o: self.term > o)

    def __ge__(self, other: Any) -> Any:
        return _compare(other, lambda o: self.term >= o)

    def __eq__(self, other: object) -> Any:
        return _compare(other, lambda o: self.term == o)

    def __ne__(self, other: object) -> Any:
        return _compare(other, lambda o: self.term != o)

    def __bool__(self) -> bool:
        return explorer().fork(self.term != 0)

    def __index__(self) -> int:
        if z3.is_int_value(self.term):
            return int(self.term.as_long())
        raise Unanswered(f"a plain integer is needed where there is {self}")

    __int__ = __index__


def number(term: Term) -> Any:
    """A term as a Number, or as a plain int where it is one."""
    found = Number(term)
    return int(found) if z3.is_int_value(found.term) else found


def term_of(value: Any) -> Term:
    """The z3 term of a number of either kind. Raises TypeError for anything else."""
    if isinstance(value, Number):
        return value.term
    if isinstance(value, int):
        return z3.IntVal(int(value))
    raise TypeError(f"{value!r} is no integer")


def _operate(other: Any, make: Any) -> Any:
    if isinstance(other, float):
        raise Unanswered("arithmetic of fractions")
    return number(make(term_of(other))) if isinstance(other, (Number, int)) else NotImplemented


def _compare(other: Any, make: Any) -> Any:
    return Truth(make(term_of(other))) if isinstance(other, (Number, int)) else NotImplemented


def _divisor(value: Any) -> Term:
    """z3 divides as Python does only by what is above zero."""
    if not isinstance(value, int) or value <= 0:
        raise Unanswered(f"division by {value!r}")
    return z3.IntVal(value)

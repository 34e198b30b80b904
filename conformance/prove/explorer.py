"""Whole numbers that stand for any number, and the paths that a function takes over them.

A comparison that can go both ways is taken both ways: the function runs once for each path. z3 says which paths exist.
What is not linear arithmetic, or asks for a plain number, raises Unanswered.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import z3

from ropecheck.conformance.prove.errors import NotHere, Unanswered

EACH = "each!"
"""Names of elements that stand for all elements of a sequence begin with it."""

PATHS = 20_000
EFFORT = 20_000_000
"""Of one question to z3, in its own units: a second or so. No timer: the answers are the same on a busy machine."""


class Explorer:
    """Runs a function once per path."""

    def __init__(self) -> None:
        self.queries = 0
        self.met: set[tuple[str, int]] = {("", 0)}
        """Choices that some path came to: without an answer, a proof is empty."""
        self.shown: set[tuple[str, int]] = set()
        """Choices of paths on which something was shown."""
        self.sizes: dict[str, Any] = {}
        self.choices: dict[str, int] = {}

    def paths(self, body: Callable[[], None]) -> Iterator[Exception | None]:
        """Per path what ended it: None, NotHere, or what it raised."""
        pending: list[list[int]] = [[]]
        for _ in range(PATHS):
            if not pending:
                return
            self._begin(pending)
            try:
                body()
                if self.owed:
                    raise Unanswered("a loop over a size that is not a table")
            except Exception as error:
                yield error
            else:
                yield None
        raise Unanswered(f"more than {PATHS} paths")

    def _begin(self, pending: list[list[int]]) -> None:
        self._pending, self._replayed = pending, pending.pop()
        self._taken: list[int] = []
        self.solver = z3.Solver()
        # Facts of all elements of a table are used where its elements are named, never searched through.
        self.solver.set("rlimit", EFFORT, "smt.mbqi", False, "smt.random_seed", 7)
        self.solver.set("ctrl_c", False)  # z3's own handler would take it
        self.sizes, self.choices = {}, {}
        self.owed: list[Any] = []
        """Elements that stand for all, and were given to a loop: whoever collects them takes them off."""
        self.largest: dict[str, Any] = {}
        self._known: dict[int, tuple[Any, bool]] = {}
        """Conditions that the path has decided, by their z3 number, which is theirs as long as they are kept."""
        self._depends: dict[int, tuple[Any, bool]] = {}
        """Terms, likewise, and whether they speak of an element that stands for all."""
        self._model: Any = None
        self._names = 0

    def fresh(self, name: str) -> Any:
        """A new constant."""
        self._names += 1
        return z3.Int(f"{name}{self._names}")

    def fact(self, condition: Any) -> None:
        """What holds on this path."""
        self.solver.add(condition)
        self._model = None

    def assume(self, condition: Any) -> None:
        """Goes on only where it holds."""
        if isinstance(condition, Truth):
            self.fact(condition.term)
            if self._answer(z3.BoolVal(True)) == z3.unsat:
                raise NotHere
        elif not condition:
            raise NotHere

    def pick(self, name: str, options: int) -> int:
        """A number below `options`: each on a path of its own."""
        at = len(self._taken)
        if at < len(self._replayed):
            taken = self._replayed[at]
        else:
            taken = 0
            self._pending.extend([*self._taken, other] for other in reversed(range(1, options)))
        self._taken.append(taken)
        self.choices[name] = taken
        self.met.add((name, taken))
        return taken

    def fork(self, condition: Any) -> bool:
        """Whether it holds: both, each on a path of its own, where both can be."""
        condition = z3.simplify(condition)
        if z3.is_true(condition) or z3.is_false(condition):
            return bool(z3.is_true(condition))
        if condition.get_id() in self._known:
            return self._known[condition.get_id()][1]
        if self.depends(condition):
            raise Unanswered(f"what happens depends on the element: {condition}")
        if len(self._taken) < len(self._replayed):
            holds = bool(self._replayed[len(self._taken)])
            self._taken.append(int(holds))
        else:
            holds = self._can(condition)
            if holds and self._can(z3.Not(condition)):
                self._pending.append([*self._taken, 0])
            self._taken.append(int(holds))
        self._known[condition.get_id()] = condition, holds
        condition = condition if holds else z3.Not(condition)
        if self._model is not None and not z3.is_true(self._model.eval(condition, model_completion=True)):
            self._model = None
        self.solver.add(condition)
        return holds

    def _can(self, condition: Any) -> bool:
        """Whether it holds for some values, as far as z3 knows; those that it found last are tried first."""
        if self._model is not None and z3.is_true(self._model.eval(condition, model_completion=True)):
            return True
        return bool(self._answer(condition) != z3.unsat)

    def proves(self, condition: Any) -> str:
        """ "" where it always holds on this path, else why not."""
        if self.depends(condition):
            raise Unanswered(f"depends on the element: {condition}")
        condition = z3.simplify(condition)
        answer = z3.unsat if z3.is_true(condition) else self._answer(z3.Not(condition))
        if answer == z3.unsat:
            self.shown |= {("", 0), *self.choices.items()}
            return ""
        return "z3 has values" if answer == z3.sat else f"z3 does not know ({self.solver.reason_unknown()})"

    def values(self) -> dict[str, int]:
        """Small sizes on this path, if z3 has any."""
        total = z3.Sum([z3.IntVal(0), *self.sizes.values()])
        for bound in (4, 8, 16, 64, 256, 4096, 10**6):
            self._model = None
            if self._answer(total <= bound) != z3.unsat and self._model is not None:
                found = {name: self._model.eval(term, model_completion=True) for name, term in self.sizes.items()}
                return {name: value.as_long() for name, value in found.items()}
        return {}

    def depends(self, term: Any) -> bool:
        """Whether a term speaks of an element that stands for all."""
        if (found := self._depends.get(term.get_id())) is None:
            found = self._depends[term.get_id()] = term, EACH in term.sexpr()
        return found[1]

    def _answer(self, condition: Any) -> Any:
        self.queries += 1
        self.solver.push()
        self.solver.add(condition)
        answer = self.solver.check()
        if answer != z3.unsat:
            with suppress(z3.Z3Exception):  # nothing to try where z3 does not know
                self._model = self.solver.model()
        self.solver.pop()
        return answer


running: list[Explorer] = []
"""The explorer of the statement that runs now is the last."""


def now() -> Explorer:
    """The explorer of the statement that runs now."""
    return running[-1]


class Truth:
    """A formula; its bool is a fork."""

    def __init__(self, term: Any) -> None:
        self.term = term

    def __bool__(self) -> bool:
        return now().fork(self.term)


def _number(operate: Callable[[Any, Any], Any]) -> Any:
    """A method that gives a number of two."""
    return lambda self, other: _with(other, lambda term: Int(operate(self.term, term)))


def _truth(operate: Callable[[Any, Any], Any]) -> Any:
    """A method that compares two numbers."""
    return lambda self, other: _with(other, lambda term: Truth(operate(self.term, term)))


class Int:
    """A whole number that stands for any."""

    def __init__(self, term: Any) -> None:
        self.term = z3.simplify(term)

    __hash__ = object.__hash__

    def __str__(self) -> str:
        return str(self.term)

    __repr__ = __str__

    def __format__(self, spec: str) -> str:
        return str(self.term)

    def __bool__(self) -> bool:
        return now().fork(self.term != 0)

    def __index__(self) -> int:
        if z3.is_int_value(self.term):
            return int(self.term.as_long())
        raise Unanswered(f"a plain number is asked for: {self.term}")

    def __neg__(self) -> Int:
        return Int(-self.term)

    __add__ = __radd__ = _number(operator.add)
    __sub__ = _number(operator.sub)
    __rsub__ = _number(lambda mine, other: other - mine)

    def __mul__(self, other: Any) -> Any:
        if not isinstance(other, Int | int):
            return NotImplemented
        if not (z3.is_int_value(self.term) or z3.is_int_value(term_of(other))):
            raise Unanswered(f"a product of sizes: {self.term} * {other}")
        return Int(self.term * term_of(other))

    __rmul__ = __mul__

    def _not_linear(self, *_: Any) -> Any:
        raise Unanswered(f"not linear: a quotient, a rest or a power of {self.term}")

    def __floordiv__(self, other: Any) -> Any:
        """Of a plain number only: what a difference of two positions comes to."""
        return int(self) // int(other) if z3.is_int_value(self.term) else self._not_linear()

    def __int__(self) -> int:
        return self.__index__()

    __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = __truediv__ = __rtruediv__ = _not_linear

    __eq__, __ne__ = _truth(operator.eq), _truth(operator.ne)
    __lt__, __le__ = _truth(operator.lt), _truth(operator.le)
    __gt__, __ge__ = _truth(operator.gt), _truth(operator.ge)


def term_of(value: Any) -> Any:
    """The z3 term of a whole number."""
    return value.term if isinstance(value, Int) else z3.IntVal(value)


def _with(other: Any, make: Callable[[Any], Any]) -> Any:
    return make(term_of(other)) if isinstance(other, Int | int) else NotImplemented

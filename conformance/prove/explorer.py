"""Every path through a statement: comparisons that can go both ways are taken both ways, and z3 says which can.

Tables are uninterpreted functions. The largest value of a function over a range is a number of its own with a place
where it is reached; that no value is larger is told to z3 at each index that the path reads, which is enough for such
formulas (the array property fragment: Bradley, Manna, Sipma 2006) and leaves every query without quantifiers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import z3

from ropecheck.conformance.prove.path import Path, Peak, Term, contents, simplify

QUERY_MILLISECONDS = 10_000
"""Per query; then z3 answers unknown."""


class Unanswered(Exception):
    """z3 gave no answer, or the code leaves what can be followed. Nothing is claimed."""


class Abandoned(Exception):
    """The path contradicts an assumption: there is nothing to see on it."""


class Decision(NamedTuple):
    """One fork of a path."""

    taken: int
    ways: int
    forced: bool


class Explorer:
    """One statement, path by path."""

    def __init__(self) -> None:
        self.solver = z3.Solver()
        self.solver.set("timeout", QUERY_MILLISECONDS)
        self.solver.set("random_seed", 0)
        self.solver.set("ctrl_c", False)  # z3's own handler would take it
        self.queries = 0
        self._schedule: list[Decision] = []
        self._at = 0
        self.path = Path()
        self._kept: list[Term] = []
        """Terms whose ids are used as keys: a term that is forgotten gives its id away."""

    def paths(self, body: Callable[[], None], ended: Callable[[Exception | None], None]) -> None:
        """Runs `body` along every path, and `ended` with what it raised while the path's facts are still there.

        May be called within a path: for the paths onward from here, whose facts and choices are forgotten afterwards.
        Raises Unanswered as soon as a path cannot be followed.
        """
        outside = (self._schedule, self._at, self.path)
        self._schedule = []
        try:
            while True:
                self._at, self.path = 0, outside[2].copy()
                self.solver.push()
                try:
                    raised: Exception | None = None
                    try:
                        body()
                    except Unanswered:
                        raise
                    except Exception as error:  # whoever is to blame: a run on plain numbers will say
                        raised = error
                    ended(raised)
                finally:
                    self.solver.pop()
                while self._schedule and self._schedule[-1].taken + 1 >= self._schedule[-1].ways:
                    self._schedule.pop()
                if not self._schedule:
                    return
                last = self._schedule.pop()
                self._schedule.append(last._replace(taken=last.taken + 1))
        finally:
            self._schedule, self._at, self.path = outside

    def name(self, what: str) -> str:
        """A name that no other term of the path has."""
        self.path.names += 1
        return f"{what}!{self.path.names}"

    # Facts and questions

    def fact(self, formula: Term) -> None:
        """Adds what is known, and what is known of the table entries in it."""
        self._add(formula)
        self._learn(formula)

    def _add(self, formula: Term) -> None:
        self.solver.add(formula)
        self.path.models = [model for model in self.path.models if _true_in(model, formula)]

    def possible(self, formula: Term) -> bool:
        """Whether the path allows it. Raises Unanswered when z3 cannot say."""
        self._learn(formula)
        if any(_true_in(model, formula) for model in self.path.models):
            return True
        self.solver.push()
        self.solver.add(formula)
        found = self.check()
        if found:
            self.path.models.append(self.solver.model())
        self.solver.pop()
        return found

    def check(self) -> bool:
        """Whether the facts can hold together. Raises Unanswered when z3 cannot say."""
        self.queries += 1
        found = self.solver.check()
        if found == z3.unknown:
            why = self.solver.reason_unknown()
            raise Unanswered(f"z3 does not know ({why})")
        return bool(found == z3.sat)

    def holds(self, formula: Term) -> bool:
        """Whether the path implies it."""
        formula = simplify(formula)
        if z3.is_true(formula) or z3.is_false(formula):
            return bool(z3.is_true(formula))
        if self._at == len(self._schedule):
            self._schedule.append(_forced(not self.possible(z3.Not(formula))))
        return self._next().taken == 0

    def fork(self, formula: Term) -> bool:
        """The truth of a formula on this path; where both are possible, there is a path for each."""
        formula = simplify(formula)
        if z3.is_true(formula) or z3.is_false(formula):
            return bool(z3.is_true(formula))
        if formula.get_id() in self.path.known:
            return self.path.known[formula.get_id()]
        if self._at == len(self._schedule):
            if not self.possible(z3.Not(formula)):
                self._schedule.append(_forced(True))
            elif not self.possible(formula):
                self._schedule.append(_forced(False))
            else:
                self._schedule.append(Decision(0, 2, forced=False))
        decision = self._next()
        if not decision.forced:
            self._depend(formula)
        truth = decision.taken == 0
        self.path.known[formula.get_id()] = truth
        self._kept.append(formula)
        self.fact(formula if truth else z3.Not(formula))
        return truth

    def pick(self, ways: int) -> int:
        """Each of 0 .. ways - 1, on a path of its own."""
        if self._at == len(self._schedule):
            self._schedule.append(Decision(0, ways, forced=ways == 1))
        return self._next().taken

    def assume(self, formula: Term) -> None:
        """Goes on only where it holds."""
        formula = simplify(formula)
        if z3.is_true(formula):
            return
        if z3.is_false(formula):
            raise Abandoned
        if self._at == len(self._schedule):
            self._schedule.append(_forced(self.possible(formula)))
        if self._next().taken:
            raise Abandoned
        self._depend(formula)
        self.fact(formula)

    def _next(self) -> Decision:
        self._at += 1
        return self._schedule[self._at - 1]

    # Arbitrary elements

    @contextmanager
    def same_elements(self, since: int) -> Iterator[None]:
        """Arbitrary indices are those made since the first `since` ones: for each, the next of as many elements."""
        self.path.again = list(self.path.generics.values())[since:]
        yield
        self.path.again = []

    def arbitrary(self, count: Term) -> Term:
        """An arbitrary index below `count`, which is at least 1."""
        count = simplify(count)
        for place, (index, before) in enumerate(self.path.again):
            if before.eq(count):
                del self.path.again[place]
                return index
        index = z3.Int(self.name("k"))
        self.path.generics[index.get_id()] = (index, count)
        self._kept.append(index)
        self.fact(z3.And(index >= 0, index < count))
        return index

    def arbitrary_in(self, term: Term) -> list[tuple[Term, Term]]:
        """The arbitrary indices that occur in a term, each with how many there are."""
        return [self.path.generics[key] for key in contents(term).open if key in self.path.generics]

    def _depend(self, formula: Term) -> None:
        self.path.split.update(index.get_id() for index, _ in self.arbitrary_in(formula))

    # Tables and their largest entries

    def peak(self, value: Term, index: Term, count: Term) -> Term:
        """The largest `value` over 0 <= index < count, count at least 1."""
        step = simplify(z3.substitute(value, (index, index + 1)) - value)
        if z3.is_int_value(step):
            last = count - 1 if step.as_long() > 0 else z3.IntVal(0)
            return simplify(z3.substitute(value, (index, last)))
        place = z3.Int("at")
        canonical = simplify(z3.substitute(value, (index, place)))
        key = (canonical.get_id(), simplify(count).get_id())
        if key not in self.path.peaks:
            symbol, witness = z3.Int(self.name("peak")), z3.Int(self.name("where"))
            self._kept += [canonical, simplify(count), symbol]
            self.path.peaks[key] = Peak(canonical, place, count, symbol)
            self.fact(z3.And(witness >= 0, witness < count, z3.substitute(canonical, (place, witness)) == symbol))
            self._tell(self.path.peaks[key], self.path.reads)
        return self.path.peaks[key].symbol

    def tell_all(self, lengths: int) -> None:
        """Tells z3 of every peak at each of the first indices, so that a model is a table."""
        for index in range(lengths):
            for peak in list(self.path.peaks.values()):
                self._no_larger(peak, z3.IntVal(index))

    def _learn(self, formula: Term) -> None:
        """What is known of the table entries in a formula."""
        new = {key: entry for key, entry in contents(formula).entries.items() if key not in self.path.reads}
        self.path.reads.update(new)
        for entry in new.values():
            self._add(entry >= 0)  # no position is negative
        for peak in list(self.path.peaks.values()):
            self._tell(peak, new)

    def _tell(self, peak: Peak, reads: dict[int, Term]) -> None:
        """None of these entries exceeds the peak over its range."""
        for key, read in list(reads.items()):
            if (peak.symbol.get_id(), key) not in self.path.told:
                self.path.told.add((peak.symbol.get_id(), key))
                for inner in contents(peak.value).entries.values():
                    if read.decl().eq(inner.decl()):
                        offset = inner.arg(inner.num_args() - 1) - peak.index
                        self._no_larger(peak, simplify(read.arg(read.num_args() - 1) - offset))

    def _no_larger(self, peak: Peak, index: Term) -> None:
        value = z3.substitute(peak.value, (peak.index, index))
        self.fact(z3.Implies(z3.And(index >= 0, index < peak.count), value <= peak.symbol))


def _true_in(model: Any, formula: Term) -> bool:
    return bool(z3.is_true(model.eval(formula, model_completion=True)))


def _forced(truth: bool) -> Decision:
    """A decision that can go one way only: 0 for true, as in a fork."""
    return Decision(0, 1, forced=True) if truth else Decision(1, 2, forced=True)

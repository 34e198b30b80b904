"""Planted faults: the reference engine with one small thing wrong, each a faithful miniature of a real bug or slip.

They prove that the suite can fail. `ropecheck score --mutants` runs them all; the reference itself must be caught by
none.
"""

from ropecheck.conformance.selftest.mutants import cells, forwards, generic, held, padding, rotary, turns
from ropecheck.conformance.selftest.mutants.base import Mutant

MUTANTS: dict[str, Mutant] = {
    mutant.name: mutant for module in (forwards, padding, cells, turns, held, rotary) for mutant in module.MUTANTS
}
"""The planted faults of modes and rules that somebody thought of, by name."""


def all_mutants() -> dict[str, Mutant]:
    """These, and those that follow from the declarations of the modes that are declared now."""
    return MUTANTS | {name: one.mutant for name, one in generic.planted().items()}


__all__ = ["MUTANTS", "Mutant", "all_mutants"]

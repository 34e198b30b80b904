"""Planted faults: the reference engine with one small thing wrong, each a faithful miniature of a real bug or slip.

They prove that the suite can fail. `ropecheck score --mutants` runs them all; the reference itself must be caught by
none.
"""

from __future__ import annotations

from ropecheck.conformance.selftest.mutants import cells, forwards, held, padding, rotary, turns
from ropecheck.conformance.selftest.mutants.base import Mutant

MUTANTS: dict[str, Mutant] = {
    mutant.name: mutant for module in (forwards, padding, cells, turns, held, rotary) for mutant in module.MUTANTS
}
"""Every planted fault by name."""

__all__ = ["MUTANTS", "Mutant"]

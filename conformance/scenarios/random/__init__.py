"""The random driver: Hypothesis strategies over the same scenario type, the same draws by a seed, and shrinking in
domain terms.

Importable without the runner: `scenarios()` is a strategy like any other. What a run checks is drawn by seed alone
(`random_scenarios`, `stateful_scenarios`), so that a seed is one set of scenarios everywhere; a failing one is made
smaller by `shrink`, which knows requests, operations, runs, grids and tokens.
"""

from ropecheck.conformance.scenarios.random.collect import random_scenarios, stateful_scenarios
from ropecheck.conformance.scenarios.random.shrink import shrink
from ropecheck.conformance.scenarios.random.strategies import histories, scenarios

__all__ = ["histories", "random_scenarios", "scenarios", "shrink", "stateful_scenarios"]

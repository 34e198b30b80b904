"""Chosen scenarios: a speaking name and one reason each. Importable without the runner."""

from ropecheck.conformance.scenario.operations import Scenario
from ropecheck.conformance.scenarios.chosen import (
    arrivals,
    costs,
    graphs,
    modes,
    prefill,
    retractions,
    sessions,
    speculation,
    streaming,
    written,
)
from ropecheck.conformance.scenarios.chosen import rotary as rotations

MODULES = (prefill, arrivals, speculation, sessions, streaming, retractions, graphs, costs, rotations, written)


def chosen() -> tuple[Scenario, ...]:
    """Every chosen scenario, last those that each declared mode has. Raises ValueError when two have one name or
    one content."""
    out: list[Scenario] = []
    for module in MODULES:
        out.extend(module.scenarios())
    for what in ("name", "id"):
        seen: dict[str, Scenario] = {}
        for scenario in out:
            key = getattr(scenario, what)
            if key in seen:
                raise ValueError(f"scenarios {seen[key].name} and {scenario.name} have the same {what}")
            seen[key] = scenario
    by_id = {scenario.id: scenario for scenario in out}
    for scenario in modes.scenarios():
        by_id.setdefault(scenario.id, scenario)
    return tuple(by_id.values())

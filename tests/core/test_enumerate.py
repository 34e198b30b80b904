"""The exhaustive driver: two ways to count agree, nothing comes twice, and every scenario is legal."""

from __future__ import annotations

import pytest

from ropecheck.conformance.errors import UsageError
from ropecheck.conformance.plan.planner import plan
from ropecheck.conformance.scenarios.exhaustive import BOUNDS, certificate, count, sweep
from ropecheck.conformance.scenarios.exhaustive.count import count_scope
from ropecheck.conformance.scenarios.exhaustive.scopes import CHAIN, COLUMN, SQUARE, TREE, PlainScope, Round
from ropecheck.conformance.scenarios.exhaustive.walk import walk


def test_the_small_bound_is_walked_whole() -> None:
    ids = [scenario.id for scenario in sweep("small")]
    assert len(ids) == len(set(ids)) == count("small")


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("hits", [False, True])
@pytest.mark.parametrize("retract", [False, True])
@pytest.mark.parametrize("rounds", [(), (CHAIN, TREE)])
@pytest.mark.parametrize("requests", [1, 2])
def test_other_scopes_count_alike(
    depth: int, hits: bool, retract: bool, rounds: tuple[Round, ...], requests: int
) -> None:
    scope = PlainScope(
        name="scope",
        requests=requests,
        tokens=2,
        media=1,
        grids=(COLUMN, SQUARE),
        depth=depth,
        hits=hits,
        retract=retract,
        rounds=rounds,
    )
    ids = [scenario.id for scenario in walk(scope)]
    assert len(ids) == len(set(ids)) == count_scope(scope)


def test_every_scenario_of_the_small_bound_can_be_planned() -> None:
    for scenario in sweep("small"):
        plan(scenario)


def test_the_certificate_changes_with_bound_and_specification() -> None:
    told = {certificate("small", "a"), certificate("small", "b"), certificate("standard", "a")}
    assert len(told) == 3


def test_an_unknown_bound_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="known: " + ", ".join(BOUNDS)):
        list(sweep("huge"))

"""Everything that a report says can be looked up."""

from __future__ import annotations

import pytest

from ropecheck.conformance.cards.bugs import address
from ropecheck.conformance.cards.shapes import SHAPES, STARTS, about, shape
from ropecheck.conformance.cli import app as cli
from ropecheck.conformance.known import failures as known_list
from ropecheck.spec.modes import all_modes
from ropecheck.spec.rules import all_rules
from tests.core.caught import CAUGHT


def test_every_shape_that_is_met_is_described() -> None:
    met = {signature for _, signature in CAUGHT.values()} | {known.entry.signature for known in known_list.load()}
    assert sorted(signature for signature in met if shape(signature) is None) == []


def test_every_public_bug_has_an_address() -> None:
    named = {bug for rule in all_rules().values() for bug in rule.bugs}
    named |= {bug for mode in all_modes().values() for bugs in mode.bugs.values() for bug in bugs}
    named |= {bug for one in (*SHAPES.values(), *STARTS.values()) for bug in one.bugs}
    assert sorted(bug for bug in named if not address(bug)) == []


@pytest.mark.parametrize(
    "name",
    [
        "delta missing",
        "raises TypeError in f",
        "not offered",
        "follows from",
        "dtype int32",
        "session",
        "scheduler.extend",
    ],
)
def test_shapes_and_states_are_explained(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert about(name)
    assert cli.execute(["explain", name]) == 0
    text = capsys.readouterr().out
    assert name in text
    if name == "delta missing":
        assert "https://github.com/sgl-project/sglang/issues/8219" in text


def test_a_near_miss_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.execute(["explain", "delta mising"]) == 2
    assert "delta missing" in capsys.readouterr().err

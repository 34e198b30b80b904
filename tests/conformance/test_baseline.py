"""A run that reached less than the target's baseline is not green."""

from __future__ import annotations

from pathlib import Path

import pytest

from ropecheck.conformance.errors import UsageError
from ropecheck.conformance.run import baseline
from ropecheck.conformance.run.baseline import Baseline
from ropecheck.conformance.run.events import Summary
from tests.report.support import header


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(baseline, "FOLDER", tmp_path)
    return tmp_path


def summary(tmp_path: Path, **reached: set[str]) -> Summary:
    """A run of phase "chosen" that asked these rules (dots as underscores) in these modes."""
    made = Summary(header=header(tmp_path))
    made.reached["chosen"] = {rule.replace("_", ".", 1): modes for rule, modes in reached.items()}
    made.rules = {rule: [1, 0] for rule in made.reached["chosen"]}
    return made


def reach(made: Summary, bound: str | None = None) -> Baseline:
    return baseline.reached(made, made.reached, bound)


def test_what_is_lost_is_named_and_ends_with_4(tmp_path: Path) -> None:
    right = summary(tmp_path, table_width={"decode", "extend"}, table_index={"extend"})
    baseline.write(reach(right))
    assert baseline.below(reach(right)) == ()
    less = summary(tmp_path, table_width={"extend"})
    less.below = baseline.below(reach(less))
    assert less.below == ("chosen: table.index in extend", "chosen: table.width in decode")
    assert (right.exit_code, less.exit_code) == (0, 4)


def test_another_phase_or_bound_is_not_compared(tmp_path: Path) -> None:
    right = summary(tmp_path, table_width={"decode"})
    right.reached["exhaustive"] = {"table.width": {"decode"}}
    baseline.write(reach(right, "small"))
    nothing = Summary(header=header(tmp_path))
    assert baseline.below(baseline.reached(nothing, ["exhaustive"], None)) == ()
    assert baseline.below(baseline.reached(nothing, ["exhaustive"], "small")) == (
        "exhaustive small: table.width in decode",
    )


def test_a_phase_that_is_drawn_is_compared_with_its_seed_alone(tmp_path: Path) -> None:
    made = summary(tmp_path, table_width={"decode"})
    made.reached["hypothesis"] = made.reached["chosen"]
    assert set(reach(made).phases) == ({"chosen", "hypothesis"} if made.header.seed == 0 else {"chosen"})


def test_what_two_shards_reach_is_what_the_run_does(tmp_path: Path) -> None:
    whole = summary(tmp_path, table_width={"decode", "extend"}, table_index={"extend"})
    one = summary(tmp_path, table_width={"decode"}, table_index={"extend"})
    other = summary(tmp_path, table_width={"extend"})
    assert baseline.both(reach(one), reach(other)) == baseline.both(reach(other), reach(one)) == reach(whole)
    assert baseline.both(reach(one), None) is None


def test_a_torn_baseline_is_one_line(tmp_path: Path) -> None:
    baseline.path_of("t", "1", "cpu").write_text("{")
    with pytest.raises(UsageError, match=r"t-1-cpu\.json: no readable baseline"):
        baseline.load("t", "1", "cpu")


def test_a_bound_that_is_no_longer_crossed_is_named(tmp_path: Path) -> None:
    right = summary(tmp_path, table_width={"decode"})
    right.reached["pairs"] = {"bound": {"column 2^15", "rows 9"}}
    baseline.write(reach(right))
    right.reached["pairs"] = {"bound": {"rows 9"}}
    assert baseline.below(reach(right)) == ("pairs: bound column 2^15",)

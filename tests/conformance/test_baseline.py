"""A run that reached less than the target's baseline is not green."""

from __future__ import annotations

from pathlib import Path

import pytest

from ropecheck.conformance.errors import UsageError
from ropecheck.conformance.run import baseline
from ropecheck.conformance.run.events import Summary
from tests.report.support import header


def summary(tmp_path: Path, **reached: set[str]) -> Summary:
    """A run of phase "chosen" that asked these rules (dots as underscores) in these modes."""
    made = Summary(header=header(tmp_path))
    made.reached["chosen"] = {rule.replace("_", ".", 1): modes for rule, modes in reached.items()}
    made.rules = {rule: [1, 0] for rule in made.reached["chosen"]}
    return made


def test_what_is_lost_is_named_and_ends_with_4(tmp_path: Path) -> None:
    right = summary(tmp_path, table_width={"decode", "extend"}, table_index={"extend"})
    baseline.write(right, None, tmp_path)
    hello = right.header.hello
    known = baseline.load(hello.target, hello.version, right.header.device, tmp_path)
    assert known is not None
    assert baseline.missing(right, ["chosen"], None, known) == ()
    less = summary(tmp_path, table_width={"extend"})
    less.below = baseline.missing(less, ["chosen"], None, known)
    assert less.below == ("chosen: table.index in extend", "chosen: table.width in decode")
    assert (right.exit_code, less.exit_code) == (0, 4)


def test_another_phase_or_bound_is_not_compared(tmp_path: Path) -> None:
    right = summary(tmp_path, table_width={"decode"})
    right.reached["exhaustive"] = {"table.width": {"decode"}}
    baseline.write(right, "small", tmp_path)
    hello = right.header.hello
    known = baseline.load(hello.target, hello.version, right.header.device, tmp_path)
    nothing = Summary(header=header(tmp_path))
    assert known is not None
    assert baseline.missing(nothing, ["exhaustive"], None, known) == ()
    assert baseline.missing(nothing, ["exhaustive"], "small", known) == ("exhaustive: table.width in decode",)


def test_a_torn_baseline_is_one_line(tmp_path: Path) -> None:
    baseline.path_of("t", "1", "cpu", tmp_path).write_text("{")
    with pytest.raises(UsageError, match=r"t-1-cpu\.json: no readable baseline"):
        baseline.load("t", "1", "cpu", tmp_path)


def test_a_bound_that_is_no_longer_crossed_is_named(tmp_path: Path) -> None:
    right = summary(tmp_path, table_width={"decode"})
    right.reached["pairs"] = {"bound": {"column 2^15", "rows 9"}}
    baseline.write(right, None, tmp_path)
    known = baseline.load(right.header.hello.target, right.header.hello.version, right.header.device, tmp_path)
    assert known is not None
    right.reached["pairs"] = {"bound": {"rows 9"}}
    assert baseline.missing(right, ["pairs"], None, known) == ("pairs: bound column 2^15",)

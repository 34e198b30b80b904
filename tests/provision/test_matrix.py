"""Columns side by side, dates, bisection and the score, on columns written by hand."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import msgspec
import pytest

from ropecheck.conformance.matrix import bisect, matrix
from ropecheck.conformance.matrix import render as matrix_render
from ropecheck.conformance.matrix.matrix import Cell, FailureShape, TargetColumn, VersionStep
from ropecheck.conformance.targets import registry as targets
from ropecheck.conformance.targets.pip_overlay import ProvisionError
from ropecheck.conformance.version import SILENT, suite_hash

WIDTH = "draft_extend_v2.width"
PARENT = "ownership.parent_unchanged"


def column(version: str, cells: dict[str, Cell], **more: object) -> TargetColumn:
    fields = {"not_offered": {}, "unrun": {}, "scenarios": 3} | more
    return msgspec.convert(
        {
            "target": f"sglang=={version}",
            "version": version,
            "torch": "2.14.1",
            "suite": "1",
            "seed": 0,
            "cells": msgspec.to_builtins(cells),
            **fields,
        },
        TargetColumn,
    )


def failing(signature: str, mode: str = "draft_extend_v2", *, follows: bool = False) -> Cell:
    return Cell(7, (FailureShape(mode, signature, 2, follows, "0123456789ab", "4 columns, must be 6"),))


COLUMNS = [
    column(
        "0.5.6", {PARENT: failing("parent's table changed", "ownership")}, not_offered={"draft_extend_v2": ["no v2"]}
    ),
    column("0.5.9", {WIDTH: failing("no columns"), PARENT: failing("parent's table changed", "ownership")}),
    column("0.5.13.post1", {WIDTH: failing("too few columns"), PARENT: failing("parent's table changed", "ownership")}),
    column("0.5.14", {WIDTH: Cell(7), PARENT: failing("parent's table changed", "ownership")}),
    column("0.5.20", {WIDTH: Cell(7)}, problem="the worker died"),
]


def test_states_tell_absence_from_success() -> None:
    assert matrix.state(COLUMNS[0], WIDTH) == ("not offered", "no v2")
    assert matrix.state(COLUMNS[1], WIDTH) == ("fail", "draft_extend_v2: no columns")
    assert matrix.state(COLUMNS[3], WIDTH) == ("pass", "7 checks")
    assert matrix.state(COLUMNS[2], WIDTH, "too few columns")[0] == "fail"
    assert matrix.state(COLUMNS[2], WIDTH, "no columns") == ("pass", "7 checks")
    assert matrix.state(COLUMNS[4], PARENT) == ("could not run", "the worker died")
    assert matrix.state(column("1", {}), WIDTH)[0] == "not reached"
    assert matrix.state(column("1", {}, unrun={"adapter: x": 2}), WIDTH) == ("could not run", "adapter: x")
    assert matrix.state(column("1", {}, not_offered={"state": ["no sessions"]}), PARENT)[0] == "not offered"
    raising = column("1", {"table.present": failing("raises TypeError in f")}, not_offered={"draft_extend_v2": ["x"]})
    assert matrix.state(raising, WIDTH) == ("follows", "draft_extend_v2 raises TypeError in f")


def test_a_rule_is_dated_by_its_first_bad_and_first_good_version() -> None:
    assert matrix.bounds(COLUMNS, WIDTH) == ("0.5.9", "0.5.14")
    assert matrix.bounds(COLUMNS, PARENT) == ("0.5.6", "")
    assert matrix.bounds(COLUMNS, "nothing.here") == ("", "")


def test_every_way_of_failing_has_dates_of_its_own() -> None:
    assert matrix.steps(COLUMNS) == [
        VersionStep(WIDTH, "draft_extend_v2", "no columns", "0.5.9", "0.5.9", "0.5.13.post1", False),
        VersionStep(WIDTH, "draft_extend_v2", "too few columns", "0.5.13.post1", "0.5.13.post1", "0.5.14", False),
        VersionStep(PARENT, "ownership", "parent's table changed", "0.5.6", "0.5.14", "", False),
    ]


def test_a_consequence_comes_after_its_cause() -> None:
    columns = [column("1", {"a.x": failing("follows from z.y", "a", follows=True), "z.y": failing("wrong", "z")})]
    assert [step.rule for step in matrix.steps(columns)] == ["z.y", "a.x"]
    assert matrix.state(columns[0], "a.x") == ("follows", "a: follows from z.y")
    assert matrix.bounds(columns, "a.x") == ("", "")
    text = matrix_render.markdown(columns, "x")
    assert "| a.x | f |  |  |" in text
    assert "| z.y | F1 | 1 |  |" in text


def test_columns_are_ordered_by_version() -> None:
    made = [column(version, {}) for version in ("0.5.10", "main", "0.5.9", "0.5.9.post1")]
    assert [c.version for c in matrix.in_version_order(made)] == ["0.5.9", "0.5.9.post1", "0.5.10", "main"]


def test_the_document_names_command_failures_and_what_is_not_offered() -> None:
    text = matrix_render.markdown(COLUMNS, "ropecheck matrix --targets a,b")
    assert "Made by `ropecheck matrix --targets a,b`" in text
    assert "| draft_extend_v2.width | - | F1 | F2 | ok | ok | 0.5.9 | 0.5.14 |" in text
    assert "| F3 | ownership.parent_unchanged | ownership | parent's table changed | 0.5.6 | 0.5.14 | not yet |" in text
    assert "- not offered: no v2 [draft_extend_v2] (0.5.6)" in text
    assert "- could not run: the worker died (0.5.20)" in text


def test_versions_of_a_note_are_a_span_where_they_lie_together() -> None:
    made = [column(version, {}, not_offered={"a": ["x"], "b": ["x"]}) for version in ("1", "2", "3")]
    assert matrix_render.notes([*made, column("4", {})]) == ["not offered: x [a, b] (1 to 3)"]
    assert matrix_render.notes(made) == ["not offered: x [a, b] (all)"]
    assert matrix_render.notes([made[0], column("4", {}), made[2]]) == ["not offered: x [a, b] (1, 3)"]


def test_hidden_rules_are_left_out() -> None:
    (shown,) = [matrix.without(COLUMNS[0], ["draft_extend_v2", "ownership"])]
    assert (shown.cells, shown.not_offered) == ({}, {})
    assert matrix.without(COLUMNS[0], []) is COLUMNS[0]


def test_a_narrow_terminal_gets_several_tables() -> None:
    wide = [part for part in matrix_render.terminal(COLUMNS, 200) if hasattr(part, "columns")]
    narrow = [part for part in matrix_render.terminal(COLUMNS, 60) if hasattr(part, "columns")]
    assert len(wide) == 1
    assert len(narrow) > 1


def test_a_kept_column_is_used_again_while_nothing_changes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ran: list[str] = []

    def run(target: targets.Target, *_: object) -> TargetColumn:
        ran.append(target.name)
        return column("1", {WIDTH: Cell(1)})

    monkeypatch.setattr(matrix, "home", lambda: tmp_path)
    monkeypatch.setattr(matrix, "_run", run)
    target = targets.Target(name="t", argv=("x",))

    def make(target: targets.Target, identity: str, seed: int = 0, phase: tuple[str, ...] = ()) -> TargetColumn:
        return matrix.column_of(target, identity, seed=seed, phase=phase, workers=1)

    assert make(target, "a") == make(target, "a")
    assert len(ran) == 1
    make(target, "b")
    make(target, "a", seed=1)
    make(target, "a", phase=("chosen",))
    make(dataclasses.replace(target, argv=("y",)), "a")
    assert len(ran) == 5
    make(target, "")
    make(target, "")
    assert len(ran) == 7
    next(tmp_path.glob("matrix/*.json")).write_text("{")
    for _ in range(2):
        make(target, "a")
        make(target, "b")
    assert len(ran) <= 8
    monkeypatch.setattr(matrix, "suite_hash", lambda: "another suite")
    make(target, "a")
    assert len(ran) <= 9


# ---------------------------------------------------------------- bisect


def _judge(bad: set[str], unclear: set[str] = frozenset()) -> tuple[bisect.Judge, list[str]]:  # type: ignore[assignment]
    asked: list[str] = []

    def judge(version: str) -> tuple[str, str]:
        asked.append(version)
        return ("not offered" if version in unclear else "fail" if version in bad else "pass"), "because"

    return judge, asked


VERSIONS = [str(number) for number in range(1, 17)]


def test_bisect_finds_the_fix_in_few_runs() -> None:
    judge, asked = _judge(set(VERSIONS[:9]))
    assert bisect.bisect(VERSIONS, "16", judge, lambda _: None) == ("9", "10")
    assert len(asked) <= 6


def test_bisect_finds_the_break() -> None:
    judge, _ = _judge(set(VERSIONS[3:]))
    assert bisect.bisect(VERSIONS, "1", judge, lambda _: None) == ("3", "4")


def test_bisect_skips_what_says_neither() -> None:
    judge, _ = _judge(set(VERSIONS[:9]), {"8", "9", "10"})
    assert bisect.bisect(VERSIONS, "16", judge, lambda _: None) == ("7", "11")


def test_bisect_refuses_ends_that_are_not_what_they_were_said_to_be() -> None:
    judge, _ = _judge(set())
    with pytest.raises(ProvisionError, match="1 was said to be fail, and is not: pass") as caught:
        bisect.bisect(VERSIONS, "16", judge, lambda _: None)
    assert caught.value.exit_code == 2
    with pytest.raises(ProvisionError, match="no such release"):
        bisect.between(VERSIONS, "1", "99")
    assert bisect.between(VERSIONS, "5", "3") == ["3", "4", "5"]


# ---------------------------------------------------------------- the cache


def test_a_kept_column_is_of_the_sources_that_judge(tmp_path: Path) -> None:
    """What talks to workers counts, whatever it is called; what only shows results does not."""

    def hashed(path: str) -> str:
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("changed = True\n")
        return suite_hash(tmp_path)

    seen = [suite_hash(tmp_path)]
    for counts in ("run/client.py", "run/tally.py", "matrix/matrix.py", "judge/verdict.py", "known/clitic.py"):
        seen.append(hashed(f"conformance/{counts}"))
    for folder in ("spec", "reference", "adapters"):
        seen.append(hashed(f"{folder}/cli/report.py"))
    assert len(set(seen)) == len(seen)
    for silent in ("cli/app.py", "cli/more/look.py", "report/terminal.py", "matrix/render.py", "vectors/make.py"):
        assert hashed(f"conformance/{silent}") == seen[-1], silent


def test_the_silent_sources_are_there() -> None:
    for name in SILENT:
        assert (Path(matrix.__file__).parents[1] / name).exists(), name

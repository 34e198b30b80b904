"""Counts per entry: what the list predicts beside what came out, in the summary, in reports that add up, and in the
baseline. No engine: the one with the known bugs answers, or the reference."""

from __future__ import annotations

import dataclasses
from functools import cache
from pathlib import Path

import pytest
from msgspec.structs import replace

from ropecheck.conformance.judge.verdict import judge
from ropecheck.conformance.known.failures import Known, load
from ropecheck.conformance.known.model import KnownEngine, bugs_of, predicted
from ropecheck.conformance.plan.planner import Plan, plan
from ropecheck.conformance.reference_engine import answer
from ropecheck.conformance.report.json_file import build
from ropecheck.conformance.results.merge import add
from ropecheck.conformance.run import baseline
from ropecheck.conformance.run.counts import EntryCount, overdue_lines
from ropecheck.conformance.run.events import ScenarioDone
from ropecheck.conformance.run.tally import Tally
from ropecheck.conformance.scenario.operations import Scenario, Submit
from ropecheck.spec.history import text
from tests.report.support import header

KNOWN = tuple(
    one for one in load() if (one.entry.cause, one.rule) == ("retraction-continues-from-t", "retraction.table")
)
(ENTRY,) = KNOWN
BUGS = bugs_of(known.entry.cause for known in KNOWN)


@cache
def planned(words: int) -> Plan:
    """The entry's witness, with so many words more in front."""
    assert isinstance(ENTRY.witness, Scenario)
    first, *rest = ENTRY.witness.ops
    assert isinstance(first, Submit)
    longer = replace(first, prompt=(text(words), *first.prompt)) if words else first
    return plan(replace(ENTRY.witness, name=f"{words} more", ops=(longer, *rest)))


def tallied(out: Path, *runs: tuple[int, frozenset[str]], known: tuple[Known, ...] = KNOWN) -> Tally:
    """Scenarios on an engine with these bugs, beside what the list says of them."""
    tally = Tally(dataclasses.replace(header(out), known=known))
    for words, bugs in runs:
        one = planned(words)
        outcome = judge(one, answer(one.job, KnownEngine(bugs)))
        must = predicted(one, bugs_of(entry.entry.cause for entry in known))
        tally.add(ScenarioDone("chosen", one.scenario, outcome, predicted=must))
    return tally


def counts(tally: Tally) -> tuple[int, int]:
    found = tally.summary.entries["chosen"][ENTRY.name]
    return found.predicted, found.shown


def test_what_is_predicted_and_fails_is_counted(tmp_path: Path) -> None:
    tally = tallied(tmp_path, (0, BUGS), (1, BUGS))
    assert counts(tally) == (2, 2)
    assert not tally.summary.new and not overdue_lines(build(tally.summary).part.entries)


def test_what_is_predicted_and_right_is_told(tmp_path: Path) -> None:
    tally = tallied(tmp_path, (0, BUGS), (1, frozenset()))
    assert counts(tally) == (2, 1)
    (line,) = overdue_lines(build(tally.summary).part.entries)
    assert line.startswith(f"known {ENTRY.name}: 1 of 2 ") and "such as 1 more" in line


def test_what_fails_and_is_not_predicted_is_new(tmp_path: Path) -> None:
    """The same bug, on a list without its entry: nothing is predicted, and all of it is new."""
    tally = tallied(tmp_path, (0, BUGS), known=())
    assert tally.summary.new and not tally.summary.entries
    # And an entry of that very shape, which another engine's numbers do not meet.
    one = planned(0)
    outcome = judge(one, answer(one.job, KnownEngine(BUGS)))
    moved = tuple(replace(failure, observed=failure.expected) for failure in outcome.failures)
    tally.add(ScenarioDone("chosen", one.scenario, replace(outcome, failures=moved), predicted=predicted(one, BUGS)))
    assert all(finding.unexpected for finding in tally.summary.findings)


def test_shards_add_up(tmp_path: Path) -> None:
    one, other = (build(tallied(tmp_path, run).summary) for run in ((0, BUGS), (1, frozenset[str]())))
    whole = build(tallied(tmp_path, (0, BUGS), (1, frozenset())).summary)
    one, other = (
        replace(part, part=replace(part.part, covers=(replace(part.part.covers[0], shards=str(n), of=2),)))
        for n, part in enumerate((one, other), 1)
    )
    assert add(one, other).part.entries == add(other, one).part.entries == whole.part.entries
    assert [type(each) for each in whole.part.entries] == [EntryCount]
    assert set(overdue_lines(whole.part.entries)) <= set(add(one, other).warnings)


def test_the_baseline_wants_as_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baseline, "FOLDER", tmp_path)
    right, less = (tallied(tmp_path, (0, BUGS), (1, of)).summary for of in (BUGS, frozenset()))
    baseline.write(baseline.reached(right, ["chosen"], None))
    assert baseline.below(baseline.reached(right, ["chosen"], None)) == ()
    told = baseline.below(baseline.reached(less, ["chosen"], None))
    assert f"chosen: known {ENTRY.name} in 1 scenarios, not 2" in told


def test_nothing_is_wanted_of_entries_that_a_run_does_not_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with every bug mended, and a list of none."""
    monkeypatch.setattr(baseline, "FOLDER", tmp_path)
    right, less = (tallied(tmp_path, (0, BUGS), (1, of)).summary for of in (BUGS, frozenset()))
    baseline.write(baseline.reached(right, ["chosen"], None))
    less.header = dataclasses.replace(less.header, known=(), differences=())
    less.entries.clear()
    assert baseline.below(baseline.reached(less, ["chosen"], None)) == ()

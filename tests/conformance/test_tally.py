"""Counting and grouping."""

from __future__ import annotations

from pathlib import Path

import pytest

from ropecheck.conformance.judge.outcome import Failure, Outcome
from ropecheck.conformance.known.failures import Known
from ropecheck.conformance.run.events import Finding, Header, ScenarioDone
from ropecheck.conformance.run.tally import Tally
from ropecheck.conformance.scenario.operations import Scenario, Submit
from ropecheck.conformance.subject import size_of
from ropecheck.spec.history import image, text
from tests.conformance.planted_worker import hello
from tests.conformance.support import RULE, failure, scenario
from tests.conformance.test_known import _entry


def tally(out: Path, *known: Known) -> Tally:
    return Tally(
        Header(
            suite="0",
            spec="0",
            target="planted",
            hello=hello("well"),
            device="cpu",
            seed=0,
            workers=1,
            phases=(),
            shard="1/1",
            out=out,
            known_folder=out,
            known=known,
        )
    )


def done(one: Scenario, *failures: Failure) -> ScenarioDone:
    return ScenarioDone("x", one, Outcome(scenario=one.id, name=one.name, checked={RULE: 1}, failures=failures))


LISTED = Known(Path("a.toml"), _entry(), scenario(0))
CONSEQUENCE = failure("follows from it", follows=RULE)


@pytest.mark.parametrize(
    ("failures", "new"),
    [
        ([failure("A"), CONSEQUENCE], 0),
        ([failure("B"), CONSEQUENCE], 2),
        ([failure("A"), failure("B"), CONSEQUENCE], 2),
        ([CONSEQUENCE], 1),
        ([failure("A"), failure("other", follows="table.index")], 1),
    ],
)
def test_a_consequence_is_expected_with_its_causes(failures: list[Failure], new: int, tmp_path: Path) -> None:
    counting = tally(tmp_path, LISTED)
    counting.add(done(scenario(0), *failures))
    assert sum(finding.unexpected for finding in counting.summary.findings) == new
    assert counting.summary.totals.failed == bool(new)
    assert counting.summary.totals.expected == (not new)
    assert counting.summary.exit_code == bool(new)


def test_a_finding_that_is_new_once_is_new(tmp_path: Path) -> None:
    counting = tally(tmp_path, LISTED)
    counting.add(done(scenario(0), failure("A"), CONSEQUENCE))
    counting.add(done(scenario(0, 0), CONSEQUENCE))
    assert [finding.key for finding in counting.summary.new] == [CONSEQUENCE.key]


def test_findings_are_in_an_order_of_their_own(tmp_path: Path) -> None:
    keys: list[list[Finding]] = []
    failures = [failure("C"), failure("B"), CONSEQUENCE, failure("A")]
    for order in (failures, failures[::-1]):
        counting = tally(tmp_path, LISTED)
        for number, one in enumerate(order):
            counting.add(done(scenario(*[0] * (number + 1)), one))
        counting.summary.sort()
        keys.append(counting.summary.findings)
    assert [f.key for f in keys[0]] == [f.key for f in keys[1]]
    assert [f.key[2] for f in keys[0]] == ["B", "C", "follows from it", "A"]


def test_size_is_operations_then_tokens() -> None:
    short = Scenario(name="a", ops=(Submit(0, (text(50),)),))
    media = Scenario(name="b", ops=(Submit(0, (text(1), image(1, 4, 4))),))
    assert sorted([scenario(0, 0), short, media], key=size_of) == [media, short, scenario(0, 0)]

"""An entry hides its own bug and no other: a cause predicts its witness's failure, and no other fault in its place; and
what the witness shows is gone once that cause is mended."""

from __future__ import annotations

import msgspec
import pytest

from ropecheck.adapters.sglang.mends import MENDS
from ropecheck.conformance.judge.outcome import Difference, Failure, TableView
from ropecheck.conformance.judge.verdict import judge
from ropecheck.conformance.known.causes import CAUSES, predicts
from ropecheck.conformance.known.failures import Known, load, match
from ropecheck.conformance.plan.planner import plan
from ropecheck.conformance.run.tally import entries_for
from ropecheck.conformance.scenario.operations import Retract, Scenario, Turn
from ropecheck.conformance.scenario.words import decode
from ropecheck.conformance.scenarios.chosen import chosen
from ropecheck.conformance.scenarios.chosen.script import PROMPTS, running, scenario
from tests.adapters_sglang.engine_faults import OTHERS
from tests.adapters_sglang.support import Worker

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("planted")]

ENTRIES = tuple(known for known in load() if isinstance(known.witness, Scenario))

PLAIN = scenario("plain", "", running(PROMPTS["image last"], PROMPTS["text"]), decode((0, 1)))
"""Nothing in it that any of the bugs needs."""


def scenario_of(known: Known) -> Scenario:
    """The entry's witness."""
    assert isinstance(known.witness, Scenario)
    return known.witness


def shown(planted_worker: Worker, known: Known) -> Failure:
    """The entry's failure, as the real engine gives it."""
    witness = scenario_of(known)
    planned = plan(witness)
    outcome = judge(planned, planted_worker.run(planned.job))
    return next(failure for failure in outcome.failures if failure.key == known.entry.key)


def elsewhere(failure: Failure) -> Failure:
    """The same failure where nothing gives cause for it."""
    difference = failure.difference
    if difference is not None and difference.request not in (-1, None):
        difference = msgspec.structs.replace(difference, request=0)
    return msgspec.structs.replace(failure, step=len(PLAIN.ops) - 1, difference=difference)


def other_values(failure: Failure) -> Failure:
    """Another wrong value at the same place."""
    observed, difference = failure.observed, failure.difference
    if observed is not None and observed.rows is not None:
        rows = tuple(tuple(value + 1000 for value in row) for row in observed.rows)
        observed = TableView(observed.positions, rows, observed.requests, observed.axes)
    if difference is not None:
        value = difference.observed
        changed = value + 1001 if isinstance(value, int) else "[(0, 1)]"
        column = None if difference.column is None else 0
        difference = Difference(difference.axis, column, difference.request, difference.expected, changed)
    return msgspec.structs.replace(failure, observed=observed, difference=difference, message="RuntimeError: another")


def undone(witness: Scenario) -> Scenario:
    """The witness without what its bug needs: no offsets, no replacement, no retraction of this request."""
    ops = tuple(
        msgspec.structs.replace(op, offset=0, replace=False) if isinstance(op, Turn) else op
        for op in witness.ops
        if not isinstance(op, Retract)
    )
    return msgspec.structs.replace(witness, ops=ops)


@pytest.mark.parametrize("known", ENTRIES, ids=lambda known: known.path.stem)
def test_a_cause_predicts_its_witness_and_no_other_fault(known: Known, planted_worker: Worker) -> None:
    assert known.entry.cause in CAUSES, "every entry of the list names its cause"
    failure = shown(planted_worker, known)
    assert match(failure, ENTRIES, known.witness) is not None
    cause = known.entry.cause
    assert predicts(cause, known.witness, failure)
    assert not predicts(cause, PLAIN, elsewhere(failure)), "a fault without the condition hides here"
    if failure.observed is not None or failure.mode == "session":
        changed = other_values(failure)
        # Faults whose wrong value is in the signature itself have another shape with another value.
        exact = cause in ("text-is-drafted-from", "packed-columns-in-equal-shares", "members-have-no-delta")
        assert exact or not predicts(cause, known.witness, changed), "another wrong value hides here"


@pytest.mark.parametrize("known", ENTRIES, ids=lambda known: known.path.stem)
def test_a_witness_passes_once_its_cause_is_mended(known: Known, planted_worker: Worker) -> None:
    planned = plan(scenario_of(known))
    job = msgspec.structs.replace(planned.job, id=f"mend:{known.entry.cause}")
    outcome = judge(planned, planted_worker.run(job))
    left = [match(failure, ENTRIES, scenario_of(known)) for failure in outcome.failures]
    assert not outcome.unrun and outcome.checked[known.entry.rule]
    assert all(other is not None and other.entry.cause != known.entry.cause for other in left), "of another bug"


NEIGHBOURS = {"positions-pass-the-reader": "rotary partial, two images"}
"""Where a witness shows an exception and nothing behind it: a chosen scenario beside it."""


@pytest.mark.parametrize("known", ENTRIES, ids=lambda known: known.path.stem)
def test_other_faults_in_its_place_are_new(known: Known, planted_worker: Worker) -> None:
    beside = NEIGHBOURS.get(known.entry.cause)
    subject = scenario_of(known) if beside is None else next(one for one in chosen() if one.name == beside)
    planned = plan(subject)
    new = []
    for fault in OTHERS:
        job = msgspec.structs.replace(planned.job, id=f"fault:{fault}")
        failures = judge(planned, planted_worker.run(job)).failures
        if None in entries_for(subject, failures, ENTRIES):
            new.append(fault)
    assert len(new) >= 3, new


def test_every_cause_has_a_mend() -> None:
    assert set(MENDS) == {known.entry.cause for known in load()}


def test_a_matching_shape_alone_is_not_enough() -> None:
    """A run asks with the scenario: an image appended without an offset has no part in the offset's bug."""
    known = next(one for one in ENTRIES if one.entry.key == ("session.table", "session", "columns of the parent"))
    failure = Failure(
        rule="session.table",
        mode="session",
        signature="columns of the parent",
        step=len(scenario_of(known).ops) - 1,
        label="",
        message="",
        difference=Difference("table", 1, 1, "(1, 1, 1)", "(0, 0, 1)"),
    )
    without = undone(scenario_of(known))
    assert match(failure, ENTRIES) is not None
    assert match(failure, ENTRIES, without) is None

"""An entry hides its own bug and no other: a cause predicts its witness's failure, and no other fault in its place; and
what the witness shows is gone once that cause is mended."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from ropecheck.adapters.sglang.mends import MENDS
from ropecheck.adapters.sglang.mends import PAST as PAST_MENDS
from ropecheck.conformance.judge.outcome import Failure
from ropecheck.conformance.judge.verdict import judge
from ropecheck.conformance.known.base import alike
from ropecheck.conformance.known.failures import Known, entries_for, load, match
from ropecheck.conformance.known.model import predicted
from ropecheck.conformance.plan.planner import Plan, plan
from ropecheck.conformance.scenario.operations import (
    Batch,
    Build,
    Finish,
    Open,
    Operation,
    Retract,
    Rotate,
    Scenario,
    Submit,
    Turn,
)
from ropecheck.conformance.scenario.words import decode, extend, part, window
from ropecheck.conformance.scenarios.chosen import chosen
from ropecheck.conformance.versions import within
from ropecheck.spec.history import image, text, video
from tests.adapters_sglang.engine_faults import MASKS, OTHERS
from tests.adapters_sglang.support import Worker
from tests.known.test_witnesses import BUGS, ENTRIES, NEWEST, other_values, scenario_of

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("planted")]


def failures_of(planted_worker: Worker, planned: Plan, job: str = "") -> Sequence[Failure]:
    """What the real engine gives, as it is or as the job wants it."""
    sent = msgspec.structs.replace(planned.job, id=job) if job else planned.job
    outcome = judge(planned, planted_worker.run(sent))
    assert not outcome.unrun
    return outcome.failures


@pytest.mark.parametrize("known", ENTRIES, ids=lambda known: known.path.stem)
def test_a_cause_predicts_its_witness_to_the_number(known: Known, planted_worker: Worker) -> None:
    """All of it, and without this cause nothing of this entry's; another value in the same place is new."""
    assert known.entry.cause in BUGS, "every entry of the list names its cause"
    planned = plan(scenario_of(known))
    failures, must = failures_of(planted_worker, planned), predicted(planned, BUGS)
    assert len(failures) == len(must) and all(any(alike(one, other) for other in must) for one in failures)
    assert None not in entries_for(failures, ENTRIES, must)
    own = [failure for failure in failures if failure.key == known.entry.key]
    without = predicted(planned, BUGS - {known.entry.cause})
    assert own and not any(alike(one, other) for one in own for other in without)
    for failure in own:
        assert match(other_values(failure), ENTRIES, must) is None


@pytest.mark.parametrize("known", ENTRIES, ids=lambda known: known.path.stem)
def test_a_witness_passes_once_its_cause_is_mended(known: Known, planted_worker: Worker) -> None:
    planned = plan(scenario_of(known))
    cause = known.entry.cause
    left, must = failures_of(planted_worker, planned, f"mend:{cause}"), predicted(planned, BUGS - {cause})
    assert len(left) == len(must) and all(any(alike(one, other) for other in must) for one in left)


NEIGHBOURS = {"positions-pass-the-reader": "rotary partial, two images"}
"""Where a witness shows an exception and nothing behind it: a chosen scenario beside it."""


OF_READERS = ("rows of the reader in another order", "other heads", "a reader that ends early")
"""Of `OTHERS`, those that a rotation shows."""


@pytest.mark.parametrize("known", ENTRIES, ids=lambda known: known.path.stem)
def test_other_faults_in_its_place_are_new(known: Known, planted_worker: Worker) -> None:
    """Three of them: those that its witness can show come first."""
    beside = NEIGHBOURS.get(known.entry.cause)
    subject = scenario_of(known) if beside is None else next(one for one in chosen() if one.name == beside)
    planned = plan(subject)
    new: list[str] = []
    rotates = any(isinstance(op, Rotate) for op in subject.ops)
    for fault in sorted(OTHERS, key=lambda name: (name in OF_READERS) != rotates):
        if len(new) == 3:
            break
        job = msgspec.structs.replace(planned.job, id=f"fault:{fault}")
        failures = judge(planned, planted_worker.run(job)).failures
        if None in entries_for(failures, ENTRIES, predicted(planned, BUGS)):
            new.append(fault)
    assert len(new) == 3, new


@pytest.mark.parametrize("name", MASKS)
def test_a_fault_of_the_same_look_is_new(name: str, planted_worker: Worker) -> None:
    """In a witness of the bug that it looks like; and the bug itself is expected there."""
    cause, _ = MASKS[name]
    witnesses = {known.witness.id: scenario_of(known) for known in ENTRIES if known.entry.cause == cause}
    new = 0
    for subject in witnesses.values():
        planned = plan(subject)
        must = predicted(planned, BUGS)
        assert None not in entries_for(failures_of(planted_worker, planned), ENTRIES, must)
        new += None in entries_for(failures_of(planted_worker, planned, f"fault:{name}"), ENTRIES, must)
    assert new


def test_every_cause_has_a_mend() -> None:
    listed = [one for one in load() if within(NEWEST, one.entry.versions)]
    assert set(MENDS) == {known.entry.cause for known in listed} - {""}
    assert not set(PAST_MENDS) & set(MENDS)
    assert set(PAST_MENDS) <= {one.entry.cause for one in load() if not within(NEWEST, one.entry.versions)}
    # What a GPU reads past an end is foreign memory: no model gives it, and no mend of ours reaches the kernel.
    assert {known.entry.device for known in load() if not known.entry.cause} <= {"cuda"}


def test_what_a_forward_did_before_it_raised_is_predicted(planted_worker: Worker) -> None:
    """A beam decode puts a turn's wrong delta aside, and then raises at a member row."""
    clip = video(9, 4, 4)
    again: tuple[Operation, ...] = (Retract(0), extend([window(0)]))
    beam = Batch("beam_decode", (part("decode", [0, 2], "beam_decode"), part("beam_members", [0], members=(1,))))
    scenario = Scenario(
        name="a beam decode of a turn with another delta",
        ops=(
            Submit(0, (clip, text(9), image(1, 6, 6))),
            extend([window(0)]),
            decode([0]),
            *(*again, *again, *again),
            Open(0),
            Turn(0, 1, (clip,), max_new_tokens=1),
            extend([window(1)]),
            Finish(1),
            Turn(0, 2, (text(3),), parent=1, offset=33),
            extend([window(2)]),
            decode([2]),
            Build(beam),
        ),
    )
    planned = plan(scenario)
    failures, must = failures_of(planted_worker, planned), predicted(planned, BUGS)
    assert len(failures) == len(must) and all(any(alike(one, other) for other in must) for one in failures)
    assert {"freshness.delta_cache", "table.present"} <= {failure.rule for failure in failures}

"""What keeps a new bug from passing for a known one: every part of what an entry says is asked for."""

from __future__ import annotations

import msgspec
import pytest

from ropecheck.conformance.families.case import Case
from ropecheck.conformance.judge.outcome import Failure
from ropecheck.conformance.judge.verdict import judge
from ropecheck.conformance.known import differences
from ropecheck.conformance.known.failures import Known, load, match
from ropecheck.conformance.plan.planner import plan
from ropecheck.conformance.scenario.operations import Scenario
from tests.adapters_sglang.support import Worker

ENTRIES = load()
DIFFERENCES = differences.load()
VERSION = "0.5.23"


def failing(rule: str, mode: str, signature: str) -> Failure:
    return Failure(rule=rule, mode=mode, signature=signature, step=0, label="", message="")


@pytest.mark.parametrize("known", ENTRIES, ids=lambda known: known.path.stem)
def test_rule_mode_and_signature_are_all_asked_for(known: Known) -> None:
    rule, mode, signature = known.entry.key

    def found(*key: str) -> Known | None:
        failure = failing(*key)
        return match(failure, [uncaused], [failure])

    uncaused = msgspec.structs.replace(known, entry=msgspec.structs.replace(known.entry, cause=""))
    assert found(rule, mode, signature) is uncaused
    assert found(rule, "another mode", signature) is None
    assert found("another.rule", mode, signature) is None
    assert found(rule, mode, "another shape") is None


@pytest.mark.parametrize("known", DIFFERENCES, ids=lambda known: known.id)
def test_family_builder_rule_shape_target_and_version_are_all_asked_for(known: differences.KnownDifference) -> None:
    case = differences.witness(known)
    shown = failing(known.rules[0], case.mode, known.signatures[0])

    def explains(case: Case = case, failure: Failure = shown, target: str = known.target, at: str = VERSION) -> bool:
        return known.explains(case, failure, target, at)

    version = {"sglang": VERSION, "transformers": "5.19.0"}.get(known.target, "")
    assert explains(at=version)
    assert not explains(msgspec.structs.replace(case, builder="another builder"), at=version)
    assert not explains(msgspec.structs.replace(case, family="another family"), at=version)
    assert not explains(failure=msgspec.structs.replace(shown, rule="families.another"), at=version)
    assert not explains(failure=msgspec.structs.replace(shown, signature="another shape"), at=version)
    assert known.target == differences.ANY or not explains(target="another target", at=version)
    assert not known.versions or not explains(at="0.0.1")


@pytest.mark.engine
@pytest.mark.xdist_group("planted")
def test_a_consequence_is_what_the_held_state_gives_and_nothing_else(planted_worker: Worker) -> None:
    """A request's table is known to be wrong: columns that it gives follow from it, seven more of each do not."""
    known = next(one for one in ENTRIES if one.entry.rule == "session.table" and one.entry.mode == "session")
    assert isinstance(known.witness, Scenario)
    planned = plan(known.witness)

    def read(job: str) -> set[str]:
        outcome = judge(planned, planted_worker.run(msgspec.structs.replace(planned.job, id=job)))
        return {failure.follows for failure in outcome.failures if failure.rule.startswith("table.")}

    assert read("as it is") == {"session.table"}
    assert read("fault:every table further") == {""}

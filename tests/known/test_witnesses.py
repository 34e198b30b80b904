"""What entries say of their witnesses, on an engine with the known bugs in place of SGLang's: each fails by its
cause, to the number, and not without it; other faults in its place are new."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from ropecheck.conformance.judge.outcome import Failure
from ropecheck.conformance.judge.verdict import judge
from ropecheck.conformance.known.base import alike
from ropecheck.conformance.known.failures import Known, applying, entries_for, load, match, shared, shown
from ropecheck.conformance.known.model import BUGS as ALL_BUGS
from ropecheck.conformance.known.model import KnownEngine, attributed, bugs_of, predicted, touches
from ropecheck.conformance.plan.planner import plan
from ropecheck.conformance.reference_engine import answer
from ropecheck.conformance.scenario.operations import Scenario, Turn
from ropecheck.conformance.scenarios.chosen import chosen
from ropecheck.conformance.selftest.mutants import all_mutants
from ropecheck.conformance.versions import NEWEST_KNOWN, within

NEWEST = NEWEST_KNOWN["sglang"]
ENTRIES = tuple(one for one in applying(load(), "sglang", NEWEST, "cpu") if isinstance(one.witness, Scenario))
"""On a GPU a lookup past the end reads memory that nobody can predict."""

PAST = tuple(one for one in load() if not within(NEWEST, one.entry.versions) and isinstance(one.witness, Scenario))

BUGS = bugs_of(known.entry.cause for known in ENTRIES)


def scenario_of(known: Known) -> Scenario:
    """The entry's witness."""
    assert isinstance(known.witness, Scenario)
    return known.witness


ALIKE = [known for known in ENTRIES if known.entry.key in shared(ENTRIES)]


@pytest.mark.parametrize("known", ALIKE, ids=lambda known: known.entry.cause)
def test_of_bugs_that_show_alike_the_one_at_work_is_named(known: Known) -> None:
    planned = plan(scenario_of(known))
    found = attributed(planned, predicted(planned, BUGS), shared(ENTRIES))
    failure = next(one for one in found if one.key == known.entry.key)
    assert failure.causes == (known.entry.cause,)
    assert match(failure, ENTRIES, found) is known


def release(known: Known) -> str:
    """The newest one with it that the list knows: the newest of all, or the first that has it."""
    return NEWEST if known in ENTRIES else known.entry.versions.partition(",")[0].removeprefix(">=")


@pytest.mark.parametrize("known", (*ENTRIES, *PAST), ids=lambda known: known.path.stem)
def test_what_a_release_does_is_predicted(known: Known) -> None:
    """With all bugs of a release that has it; not without its cause, and of an older one not in the newest."""
    planned = plan(scenario_of(known))
    entries = applying(load(), "sglang", release(known), "cpu")
    bugs = bugs_of(one.entry.cause for one in entries)
    found = [one for one in predicted(planned, bugs) if one.key == known.entry.key]
    assert found and known.entry.shows in ("", shown(found[0]))
    assert all(match(one, entries, predicted(planned, bugs)) is not None for one in found)
    for others in (bugs - {known.entry.cause}, *([] if known in ENTRIES else [BUGS])):
        assert not any(alike(one, other) for one in found for other in predicted(planned, others))
    assert all(match(other_values(one), entries, predicted(planned, bugs)) is None for one in found)


@pytest.mark.parametrize("known", PAST, ids=lambda known: known.path.stem)
def test_other_faults_in_its_place_were_new(known: Known) -> None:
    """At least three of those that are planted in the reference, in the witness."""
    planned = plan(scenario_of(known))
    oldest = known.entry.versions.partition(",")[0].removeprefix(">=")
    entries = applying(load(), "sglang", oldest, "cpu")
    must = predicted(planned, bugs_of(one.entry.cause for one in entries))
    new = []
    for name, mutant in all_mutants().items():
        failures = judge(planned, answer(planned.job, mutant.make())).failures
        if failures and None in entries_for(failures, entries, must):
            new.append(name)
        if len(new) == 3:
            return
    raise AssertionError(new)


def other_values(failure: Failure) -> Failure:
    """Another wrong value at the same place."""
    observed, difference = failure.observed, failure.difference
    if observed is not None and observed.rows is not None:
        rows = tuple((*row[:-1], row[-1] + 1000) for row in observed.rows)
        return msgspec.structs.replace(failure, observed=msgspec.structs.replace(observed, rows=rows))
    if difference is not None:
        return msgspec.structs.replace(failure, difference=msgspec.structs.replace(difference, observed=424242))
    return msgspec.structs.replace(failure, message="RuntimeError: another")


@pytest.mark.parametrize("known", ENTRIES, ids=lambda known: known.path.stem)
def test_what_listed_bugs_predict_is_expected_in_whatever_shape_it_shows(known: Known) -> None:
    """Without an entry for its shape it is another entry's; another value there is nobody's."""
    must = predicted(plan(scenario_of(known)), BUGS)
    others = [one for one in ENTRIES if one.entry.key != known.entry.key]
    assert None not in entries_for(must, others, must)
    for failure in must:
        if failure.key == known.entry.key:
            assert entries_for([other_values(failure)], ENTRIES, must) == [None]


def test_a_matching_shape_alone_is_not_enough() -> None:
    """An image appended without an offset has no part in the offset's bug."""
    known = next(one for one in ENTRIES if one.entry.key == ("session.table", "session", "columns of the parent"))
    ops = tuple(replace(op, offset=0) if isinstance(op, Turn) else op for op in scenario_of(known).ops)
    without = replace(scenario_of(known), ops=ops)
    failure = predicted(plan(scenario_of(known)), BUGS)[0]
    assert match(failure, ENTRIES, [failure]) is known
    assert match(failure, ENTRIES, predicted(plan(without), BUGS)) is None


def test_an_engine_without_bugs_is_right() -> None:
    """In every session, retraction and buffer that is chosen; and with all of them where none may show."""
    some = 0
    for scenario in chosen():
        if len(scenario.ops) > 12 or not any(one in scenario.name for one in ("session", "retract", "graph", "abort")):
            continue
        planned = plan(scenario)
        assert not judge(planned, answer(planned.job, KnownEngine(frozenset()))).failures, scenario.name
        if not touches(scenario, frozenset(ALL_BUGS)):
            assert not judge(planned, answer(planned.job, KnownEngine(frozenset(ALL_BUGS)))).failures, scenario.name
        some += 1
    assert some > 30

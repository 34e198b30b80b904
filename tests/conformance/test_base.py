"""Two versions side by side: what one does otherwise than the other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ropecheck.conformance.errors import GaveUp
from ropecheck.conformance.run.base import Base, Planned
from ropecheck.conformance.run.choice import Choice, modes_of, words_of
from ropecheck.conformance.run.events import Event, Found, Summary
from ropecheck.conformance.run.phases import Phase
from ropecheck.conformance.run.pool import Pool
from ropecheck.conformance.run.relevant import relevant
from ropecheck.conformance.run.session import Settings, run, verdict_of
from ropecheck.conformance.scenarios.chosen import chosen
from ropecheck.conformance.targets.registry import Target, builtin

SOME = chosen()[::6]
DELTA_MISSING, DELTA_TWICE = "decode delta missing", "decode delta twice"


def reference(fault: str = "") -> Target:
    (target,) = (one for one in builtin() if one.name == "reference")
    return replace(target, argv=(*target.argv, "--mutant", fault)) if fault else target


@contextmanager
def base(target: Target, out: Path) -> Iterator[Base]:
    pool: Pool[Planned] = Pool(target, device="cpu", workers=1, out=out / "base")
    with Base("before", pool, verdict_of) as running:
        yield running


def compared(now: Target, before: Target, tmp_path: Path, **settings: Any) -> tuple[Summary, list[Event]]:
    seen: list[Event] = []
    phase = Phase(name="some", summary="", drive=lambda driver: driver.check_all(SOME))
    with base(before, tmp_path) as running:
        asked = Settings(
            target=now, out=tmp_path / "out", phases=(phase,), base=running, complete=False, witnesses=False
        )
        return run(replace(asked, **settings), [seen.append]), seen


def test_what_the_base_does_alike_is_no_news(tmp_path: Path) -> None:
    summary, seen = compared(reference(DELTA_MISSING), reference(DELTA_MISSING), tmp_path)
    assert (summary.exit_code, summary.new, summary.gone) == (0, [], [])
    assert summary.totals.expected > 0
    assert not [event for event in seen if isinstance(event, Found)]


def test_a_new_failure_is_new_and_told_at_once(tmp_path: Path) -> None:
    summary, seen = compared(reference(DELTA_MISSING), reference(), tmp_path)
    assert summary.exit_code == 1
    assert {finding.was for finding in summary.new} == {""}
    told = [event.finding.key for event in seen if isinstance(event, Found)]
    assert len(told) == len(set(told)) == len(summary.new)


def test_another_failure_in_its_place_is_changed(tmp_path: Path) -> None:
    summary, _ = compared(reference(DELTA_MISSING), reference(DELTA_TWICE), tmp_path)
    changed = [one for one in summary.new if one.key[1:] == ("decode", "delta missing")]
    assert changed
    assert all(finding.was.startswith("delta twice: ") for finding in changed)
    assert ("decode", "delta twice") in {gone.key[1:] for gone in summary.gone}


def test_what_only_the_base_does_is_gone(tmp_path: Path) -> None:
    summary, _ = compared(reference(), reference(DELTA_MISSING), tmp_path)
    assert (summary.exit_code, summary.new) == (0, [])
    assert ("decode", "delta missing") in {gone.key[1:] for gone in summary.gone}


def test_a_base_that_cannot_start_ends_the_run(tmp_path: Path) -> None:
    dead = Target(name="dead", argv=("/bin/false",))
    summary, _ = compared(reference(DELTA_MISSING), dead, tmp_path)
    assert summary.exit_code in (1, 3)
    assert "base before" in summary.gave_up


def test_waiting_for_a_base_that_died_is_an_error(tmp_path: Path) -> None:
    with base(Target(name="dead", argv=("/bin/false",)), tmp_path) as running, pytest.raises(GaveUp, match="before"):
        running.outcome("0" * 12)


def test_the_run_ends_after_enough_new_findings(tmp_path: Path) -> None:
    summary, _ = compared(reference(DELTA_MISSING), reference(), tmp_path, most_new=1)
    assert summary.stopped
    assert summary.totals.scenarios < len(SOME)
    assert summary.exit_code == 1


def test_one_mode_alone(tmp_path: Path) -> None:
    summary, _ = compared(reference(), reference(), tmp_path, choice=Choice(modes=frozenset({"target_verify"})))
    assert 0 < summary.totals.scenarios == sum("target_verify" in modes_of(one) for one in SOME) < len(SOME)


def test_one_rule_alone(tmp_path: Path) -> None:
    every, _ = compared(reference(DELTA_MISSING), reference(), tmp_path / "every")
    rule = next(finding.key[0] for finding in every.new if finding.key[1] == "decode")
    summary, _ = compared(reference(DELTA_MISSING), reference(), tmp_path, choice=Choice(rules=frozenset({rule})))
    assert set(summary.rules) == {rule}
    assert {finding.key[0] for finding in summary.findings} == {rule}


def test_words_of_names() -> None:
    choice = Choice(words=words_of("Image and not verify"))
    taken = [one for one in chosen() if choice.takes(one)]
    assert taken
    assert all("image" in one.name.lower() and "verify" not in one.name.lower() for one in taken)


def test_scenarios_of_a_kind_that_runs_what_changed() -> None:
    found = relevant(chosen(), lambda scenario: "target_verify" in modes_of(scenario))
    taken = [one for one in chosen() if found(one)]
    assert 0 < len(taken) < len(chosen())
    assert all("target_verify" in modes_of(one) for one in taken)
    assert not any(map(relevant(chosen(), lambda scenario: False), chosen()))

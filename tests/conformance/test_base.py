"""Two versions side by side: what one does otherwise than the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from ropecheck.conformance.errors import GaveUp
from ropecheck.conformance.run import answers
from ropecheck.conformance.run.base import Base, Planned
from ropecheck.conformance.run.choice import Choice, modes_of, words_of
from ropecheck.conformance.run.events import Event, Found, Summary
from ropecheck.conformance.run.phases import Driver, Phase
from ropecheck.conformance.run.pool import Pool
from ropecheck.conformance.run.relevant import Relevant, only
from ropecheck.conformance.run.session import Settings, run, verdict_of
from ropecheck.conformance.scenarios.chosen import chosen
from ropecheck.conformance.scripts.chosen import all_scripts
from ropecheck.conformance.scripts.script import Script
from ropecheck.conformance.subject import Subject
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


def test_a_kept_base_answers_without_its_engine_until_something_else_is_asked(tmp_path: Path) -> None:
    def again(target: Target, now: Target, name: str) -> Summary:
        pool: Pool[Planned] = Pool(target, device="cpu", workers=1, out=tmp_path / name / "base")
        with Base("before", pool, verdict_of, tmp_path / "kept") as running:
            phase = Phase(name="some", summary="", drive=lambda driver: driver.check_all(SOME))
            settings = Settings(
                target=now, out=tmp_path / name, phases=(phase,), base=running, complete=False, witnesses=False
            )
            return run(settings, [])

    dead = Target(name="dead", argv=("/bin/false",))
    first = again(reference(DELTA_TWICE), reference(DELTA_MISSING), "first")
    assert first.new
    kept = again(dead, reference(DELTA_TWICE), "second")
    assert (kept.exit_code, kept.new, kept.gone, kept.gave_up) == (0, [], [], "")
    assert kept.totals.expected > 0
    third = again(dead, reference(DELTA_MISSING), "third")
    assert {one.key for one in third.new} == {one.key for one in first.new}


def test_what_is_kept_of_a_base_belongs_to_its_code(monkeypatch: pytest.MonkeyPatch) -> None:
    one = replace(reference(), source="/somewhere", identity="1234abcd5678")
    kept = answers.place_of(one, "cpu")
    assert kept == answers.place_of(one, "cpu") is not None
    assert kept != answers.place_of(replace(one, identity="9f8e7d6c5b4a"), "cpu")
    assert answers.place_of(replace(one, identity="1234abcd5678+9f8e7d6c"), "cpu") is None
    assert answers.place_of(reference(), "cpu") is None, "nobody knows whether it is the same"
    monkeypatch.setattr(answers, "suite_hash", lambda: "another suite")
    assert kept != answers.place_of(one, "cpu")


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


class Notes:
    """A driver that knows what would run."""

    def __init__(self, calls: str) -> None:
        self.calls = calls
        self.ran: list[Subject] = []
        self.warned: list[str] = []

    def check_traced(self, scenarios: Sequence[Subject]) -> Iterator[tuple[Subject, tuple[str, ...]]]:
        for scenario in scenarios:
            self.ran.append(scenario)
            yield scenario, ("e.py:1 wanted",) if self.calls in modes_of(scenario) else ("e.py:9 other",)

    def check_all(self, scenarios: Iterable[Subject], total: int | None = None) -> None:
        self.ran += [one for one in scenarios if one.id not in names(self.ran)]

    def warn(self, message: str, loud: bool = False) -> None:
        self.warned.append(message)


def names(scenarios: Iterable[Subject]) -> set[str]:
    return {one.id for one in scenarios}


def drive(phase: Phase, calls: str) -> Notes:
    driver = Notes(calls)
    phase.drive(cast(Driver, driver))
    return driver


def test_what_runs_a_changed_function_is_found_and_comes_first_the_next_time(tmp_path: Path) -> None:
    changed = frozenset({("e.py", "wanted")})
    mine = [one for one in chosen() if "target_verify" in modes_of(one)]
    first = Relevant(changed, tmp_path / "notes")
    driver = drive(first.phase(chosen()), "target_verify")
    assert names(mine) <= names(driver.ran)
    assert len(driver.ran) < len(chosen())
    assert names(filter(first, chosen())) == names(mine)
    again = drive(Relevant(changed, tmp_path / "notes").phase(chosen()), "target_verify")
    assert names(again.ran[: len(mine)]) == names(mine)
    assert len(again.ran) == len(driver.ran), "of no commit: the notes only say what to begin with"
    later = drive(only(Phase(name="all", summary="", drive=lambda d: d.check_all(chosen())), first), "")
    assert names(later.ran) == names(mine)


def test_what_met_no_change_of_a_commit_is_not_asked_again(tmp_path: Path) -> None:
    wanted, other = ("e.py", "wanted"), ("e.py", "other")
    mine = [one for one in chosen() if "target_verify" in modes_of(one)]

    def ran(changed: set[tuple[str, str]], commit: str) -> set[str]:
        relevant = Relevant(frozenset(changed), tmp_path / "notes", commit)
        return names(drive(relevant.phase(chosen()), "target_verify").ran)

    assert names(mine) < ran({wanted}, "1234")
    assert ran({wanted}, "1234") == names(mine)
    assert ran({wanted, other}, "1234") == names(chosen())
    assert names(mine) < ran({wanted}, "1234"), "what ran then was not the base's code"
    assert ran({wanted}, "1234") == names(mine)
    assert names(mine) < ran({wanted}, "5678")


def test_what_no_forward_runs_is_looked_for_in_the_rest(tmp_path: Path) -> None:
    def looked(calls: str) -> Notes:
        relevant = Relevant(frozenset({("e.py", "wanted")}), tmp_path / "notes")
        return drive(relevant.phase(SOME, [lambda: list(all_scripts())[:60]]), calls)

    assert not [one for one in looked("decode").ran if isinstance(one, Script)]
    assert {one.id for one in looked("scheduler").ran} >= names(list(all_scripts())[:60])


def test_a_change_that_nothing_runs_is_said(tmp_path: Path) -> None:
    driver = drive(Relevant(frozenset({("e.py", "wanted")}), tmp_path / "notes").phase(SOME), "")
    assert driver.warned == ["what changed: nothing that was looked at runs e.py wanted"]

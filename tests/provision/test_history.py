"""The score on past bugs: red before, green after, to the value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from ropecheck.conformance.cli import app as cli
from ropecheck.conformance.errors import UsageError
from ropecheck.conformance.judge.outcome import Difference, Failure, Outcome, Unrun
from ropecheck.conformance.selftest import history_score
from ropecheck.conformance.selftest.history_score import PastBug, Seen, WitnessShown
from ropecheck.conformance.targets import registry
from ropecheck.conformance.targets.pip_overlay import version_key
from ropecheck.spec.rules import all_rules

BUGS = [bug for bug in history_score.load() if not bug.missed]
WITNESS = BUGS[0].witness
ID = history_score.witness(WITNESS).id
RULE = "made.up"

BUG = PastBug(
    id="S8",
    title="draft extend",
    links=("https://example.org/1",),
    kind="mis-sized",
    wrong="0.5.13.post1",
    right="0.5.14",
    rule=RULE,
    mode="draft_extend_v2",
    signature="too few columns",
    witness=WITNESS,
    shows=WitnessShown(column=3, expected=7, observed=5),
)


def failing(column: int = 3, observed: int = 5, rule: str = RULE, signature: str = "too few columns") -> Outcome:
    difference = Difference("t", column, 0, 7, observed)
    failure = Failure(rule, "draft_extend_v2", signature, 2, "", "5 columns, must be 7", difference)
    return Outcome(scenario=ID, name=WITNESS, checked={RULE: 1}, failures=(failure,))


PASSING = Outcome(scenario=ID, name=WITNESS, checked={RULE: 2})
UNRUN = Outcome(scenario=ID, name=WITNESS, unrun=(Unrun(stage="adapter", message="KeyError: x"),))
UNREACHED = Outcome(scenario=ID, name=WITNESS, not_offered=(("draft_extend_v2", "no such mode"),))


def judged(before: Outcome | str, after: Outcome | str, **changes: Any) -> tuple[str, str]:
    seen: dict[str, Seen] = {}
    for version, outcome in (("0.5.13.post1", before), ("0.5.14", after)):
        seen[version] = outcome if isinstance(outcome, str) else {ID: outcome}
    found = history_score.judge(msgspec.structs.replace(BUG, **changes), seen)
    return found.state, found.why


def test_a_bug_is_caught_between_its_versions() -> None:
    assert judged(failing(), PASSING) == ("caught", "fails on 0.5.13.post1, right on 0.5.14")


def test_what_another_bug_still_shows_on_the_right_release_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    other = msgspec.structs.replace(BUG, id="another", signature="off by one")
    monkeypatch.setattr(history_score, "load", lambda: (BUG, other))
    after = failing(signature="off by one")
    assert judged(failing(), after)[0] == "missed"
    assert judged(failing(), after, beside=("another",))[0] == "caught"
    assert judged(failing(), failing(), beside=("another", BUG.id))[0] == "missed"


@pytest.mark.parametrize(
    ("wrong", "right", "state", "why"),
    [
        (failing(observed=6), PASSING, "missed", "does not fail so: made.up / draft_extend_v2 / too few columns"),
        (failing(column=4), PASSING, "missed", "does not fail so"),
        (failing(signature="too many columns"), PASSING, "missed", "does not fail so"),
        (failing(rule="another.rule"), PASSING, "missed", "does not fail so: another.rule"),
        (PASSING, PASSING, "missed", "0.5.13.post1 does not fail so: 2 checks pass"),
        (failing(), failing(), "missed", "0.5.14 is not right"),
        (failing(), failing(observed=6), "missed", "0.5.14 is not right"),
        (failing(), failing(rule="another.rule"), "missed", "0.5.14 is not right: another.rule"),
        (failing(), UNREACHED, "missed", "0.5.14 never reaches made.up: not offered: no such mode"),
        (UNREACHED, PASSING, "missed", "does not fail so: not offered"),
        (UNRUN, PASSING, "not run", "0.5.13.post1: adapter: KeyError: x"),
        (failing(), UNRUN, "not run", "0.5.14: adapter"),
        (failing(), "the worker died", "not run", "0.5.14: the worker died"),
    ],
)
def test_every_other_bug_says_why_it_is_not(wrong: Outcome, right: Outcome | str, state: str, why: str) -> None:
    found = judged(wrong, right)
    assert found[0] == state
    assert why in found[1]


def test_a_bug_that_no_release_mends_and_one_that_nothing_can_catch() -> None:
    assert judged(failing(), PASSING, right="") == ("caught", "fails on 0.5.13.post1; no release is right yet")
    assert judged(PASSING, PASSING, missed="needs an NPU") == ("missed", "needs an NPU")
    assert history_score.judge(BUG, {}).why == "0.5.13.post1: sglang==0.5.13.post1 is not provisioned"


def test_the_message_is_the_value_of_a_failure_without_one() -> None:
    failure = Failure(RULE, BUG.mode, BUG.signature, 0, "", "IndexError: index 3")
    outcome = Outcome(scenario=ID, name=WITNESS, failures=(failure,))
    assert judged(outcome, PASSING, shows=WitnessShown(message="IndexError: index 3"))[0] == "caught"
    assert judged(outcome, PASSING, shows=WitnessShown(message="IndexError: index 4"))[0] == "missed"


def test_the_score_counts_and_a_miss_fails() -> None:
    seen: dict[str, Seen] = {"0.5.13.post1": {ID: failing()}, "0.5.14": {ID: PASSING}}
    excused = msgspec.structs.replace(BUG, missed="x")
    other = msgspec.structs.replace(BUG, signature="other")
    found = [history_score.judge(bug, seen) for bug in (BUG, excused)]
    assert history_score.lines(found)[-1] == "caught 1 of 2 past bugs"
    assert history_score.exit_code(found) == 0
    assert history_score.exit_code([*found, history_score.judge(other, seen)]) == 1
    assert history_score.exit_code([*found, history_score.judge(BUG, {})]) == 3


def test_only_the_witnesses_run(tmp_path: Path) -> None:
    target = registry.find("reference", "cpu")
    witnesses = history_score.needed_on([bug for bug in BUGS if bug.mode != "prompt_table"][:2], BUGS[0].wrong)
    seen = history_score.run(target, witnesses, tmp_path)
    assert not isinstance(seen, str)
    assert set(seen) == {one.id for one in witnesses}
    assert all(outcome.state == "pass" for outcome in seen.values())


def test_a_release_that_does_not_start_is_not_run(tmp_path: Path) -> None:
    gone = registry.Target(name="gone", argv=("/nonexistent/python",))
    assert "cannot start" in str(history_score.run(gone, [history_score.witness(WITNESS)], tmp_path))


def test_the_shipped_history_is_sound() -> None:
    bugs = history_score.load()
    assert sum(bug.seed for bug in bugs) >= 3
    for bug in bugs:
        assert all(link.startswith("https://github.com/") for link in bug.links), bug.id
        assert bug.missed or bug.rule in all_rules(), f"{bug.id}: unknown rule {bug.rule}"
    for bug in BUGS:
        assert history_score.witness(bug.witness), bug.id
        assert not bug.right or version_key(bug.wrong) < version_key(bug.right), bug.id


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[[bug]]\nid = "a"', "missing required field `title`"),
        ("[[bug", "history.toml"),
        ('[[bug]]\nid = "a"\ntitle = "t"\nlinks = []\nkind = "k"', "witness and shows are needed"),
        ('[[bug]]\nid = "a"\ntitle = "t"\nlinks = []\nkind = "k"\nmissed = "m"\nsince = "soon"', "since: 'soon'"),
        ('[[bug]]\nid = "a"\ntitle = "t"\nlinks = []\nkind = "k"\nmissed = "m"\n' * 2, "bug a is there twice"),
    ],
)
def test_a_wrong_history_names_file_and_field(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "history.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"history\.toml") as caught:
        history_score.load(path)
    assert message in str(caught.value)


def test_a_bug_without_a_pinned_value_is_refused(tmp_path: Path) -> None:
    """Rule, mode and signature alone would be met by another bug."""
    fields = {name: value for name, value in msgspec.to_builtins(BUG).items() if value}
    del fields["shows"]
    lines = ["[[bug]]", *(f"{name} = {msgspec.json.encode(value).decode()}" for name, value in fields.items())]
    path = tmp_path / "history.toml"
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(UsageError, match="shows are needed"):
        history_score.load(path)
    path.write_text("\n".join([*lines, "[bug.shows]", "column = 3"]) + "\n")
    assert history_score.load(path)[0].shows == WitnessShown(column=3)


def test_an_unknown_bug_is_bad_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.execute(["score", "--history", "--bug", "nothing"]) == 2
    assert "no such bug" in capsys.readouterr().err

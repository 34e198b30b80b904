"""A known failure must stay exactly as it is listed, or the run fails."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ropecheck.conformance.cli import app as cli
from ropecheck.conformance.errors import UsageError
from ropecheck.conformance.judge.outcome import Outcome, Unrun
from ropecheck.conformance.known import failures as known
from ropecheck.conformance.scenario.operations import Scenario
from ropecheck.conformance.store.files import Stored, pretty, read_any
from tests.conformance import planted_worker as how
from tests.conformance.conftest import Run
from tests.conformance.support import RULE, failure, scenario

TODAY = datetime.date(2026, 11, 29)
PASSES, FAILS_A, FAILS_B = scenario(how.OK), scenario(how.FAIL_A), scenario(how.FAIL_B)


def add(folder: Path, witness: Scenario, signature: str = "A", **fields: Any) -> Path:
    values: dict[str, Any] = {
        "rule": RULE,
        "mode": "decode",
        "signature": signature,
        "target": "planted",
        "reason": "index 3 + delta 1 = 4",
        "link": "https://example.org/1",
        "first_seen": TODAY,
        "witness": f"{witness.id}.json",
    }
    return known.add(folder, known.Entry(**{**values, **fields}), witness)


@pytest.mark.parametrize(
    ("witness", "fields", "scenarios", "code", "words"),
    [
        (FAILS_A, {}, [PASSES, FAILS_A, scenario(0, how.FAIL_A)], 0, "2 expected to fail"),
        (PASSES, {}, [PASSES], 1, "STALE"),
        (FAILS_B, {}, [PASSES], 1, "CHANGED"),
        (FAILS_A, {"expires": datetime.date(2020, 1, 1)}, [PASSES], 1, "EXPIRED"),
        (FAILS_A, {"expires": datetime.date(2999, 1, 1)}, [PASSES], 0, "1 expected to fail"),
        (FAILS_A, {"versions": ">=1.4,<=1.5.0"}, [PASSES], 0, "1 expected to fail"),
        (PASSES, {"versions": ">=1.5.1"}, [PASSES], 0, "1 passed, 0 failed"),
        (FAILS_A, {"versions": ">=1.5.1"}, [FAILS_A], 1, "NEW"),
        (PASSES, {"target": "sglang"}, [PASSES], 0, "1 passed, 0 failed"),
        (PASSES, {"device": "cuda"}, [PASSES], 0, "1 passed, 0 failed"),
        (FAILS_A, {}, [FAILS_B], 1, "NEW"),
        (scenario(how.NOT_OFFERED), {}, [PASSES], 1, "STALE"),
        (scenario(how.KILLED), {}, [PASSES], 3, "UNRUN"),
        (FAILS_A, {"mode": "extend"}, [PASSES], 1, "CHANGED"),
        (FAILS_A, {"rule": "table.index"}, [PASSES], 1, "CHANGED"),
        (scenario(how.FAILS_LATER), {}, [PASSES], 1, "its answers are not always the same"),
    ],
)
def test_an_entry_must_fail_as_it_says(
    witness: Scenario,
    fields: dict[str, Any],
    scenarios: list[Scenario],
    code: int,
    words: str,
    ropecheck: Run,
    known_folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    add(known_folder, witness, **fields)
    assert ropecheck(scenarios) == code
    assert words in capsys.readouterr().out


def test_a_changed_entry_fails_the_run_even_where_the_other_failure_is_listed(
    ropecheck: Run, known_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add(known_folder, FAILS_B, signature="B")
    assert ropecheck([PASSES]) == 0
    add(known_folder, FAILS_B, signature="A")
    assert ropecheck([PASSES]) == 1
    assert "NEW" not in capsys.readouterr().out


@pytest.mark.parametrize("witness", ["../outside.json", "/etc/hosts", "deeper/one.json", "..", "."])
def test_a_witness_outside_the_folder_is_refused_and_kept(
    witness: str, known_folder: Path, ropecheck: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """`prune` would delete it: the entry's witness passes."""
    outside = known_folder.parent / "outside.json"
    outside.write_bytes(pretty(PASSES))
    path = add(known_folder, PASSES)
    path.write_text(path.read_text().replace(f"{PASSES.id}.json", witness))
    assert cli.execute(["known", "prune", "--target", "planted", "--known", str(known_folder)]) == 2
    error = capsys.readouterr().err
    assert f"{path}: witness: {witness!r} is no name of a file beside the entry" in error
    assert outside.exists() and path.exists()


def test_a_witness_of_two_entries_outlives_one_of_them(known_folder: Path) -> None:
    add(known_folder, FAILS_A, signature="A")
    add(known_folder, FAILS_A, signature="B")
    entries = known.load(known_folder)
    known.remove(entries[0], entries)
    assert [entry.witness for entry in known.load(known_folder)] == [FAILS_A]
    known.remove(entries[1], entries)
    assert list(known_folder.iterdir()) == []


def test_a_witness_runs_once_and_in_its_own_shard(ropecheck: Run, known_folder: Path, tmp_path: Path) -> None:
    add(known_folder, FAILS_A)
    codes = [ropecheck([FAILS_A, PASSES], "--shard", f"{shard}/2") for shard in (1, 2)]
    assert set(codes) <= {0, 4}
    assert ropecheck([FAILS_A, PASSES]) == 0


def test_the_message_of_a_witness_that_does_not_check_the_rule() -> None:
    entry = known.Known(Path("e.toml"), _entry(), FAILS_A)
    quiet = Outcome(scenario="x", name="x", not_offered=(("decode", "too old"),))
    assert known.check(entry, quiet, TODAY) == known.Check(
        entry, "stale", "its witness does not check the rule here: too old"
    )
    dead = Outcome(scenario="x", name="x", unrun=(Unrun(stage="run", message="gone"),))
    assert known.check(entry, dead, TODAY).state == "unrun"
    both = Outcome(scenario="x", name="x", unrun=dead.unrun, failures=(failure("A"),))
    assert known.check(entry, both, TODAY).state == "open"


def test_an_entry_is_good_on_its_last_day() -> None:
    entry = known.Known(Path("e.toml"), _entry(expires=TODAY), FAILS_A)
    outcome = Outcome(scenario="x", name="x", failures=(failure("A"),))
    assert known.check(entry, outcome, TODAY).state == "open"
    assert known.check(entry, outcome, TODAY + datetime.timedelta(days=1)).state == "expired"


def _entry(expires: datetime.date | None = None) -> known.Entry:
    return known.Entry(
        rule=RULE,
        mode="decode",
        signature="A",
        target="planted",
        reason="r",
        link="l",
        first_seen=TODAY,
        expires=expires,
        witness="w.json",
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text.replace("signature", "signatrue"), "signatrue"),
        (lambda text: text.replace('reason = "index 3 + delta 1 = 4"\n', ""), "reason"),
        (lambda text: text.replace("index 3 + delta 1 = 4", "  "), "reason is empty"),
        (lambda text: text.replace("2026-11-29", '"soon"'), "first_seen"),
        (lambda text: text + 'versions = "newer than 3"\n', "versions: 'newer than 3'"),
        (lambda text: text.replace('"A"', '"*"'), "wildcards"),
        (lambda text: text.replace(RULE, "table.idex"), "unknown rule 'table.idex' (did you mean table.index?)"),
        (lambda text: text.replace(".json", ".jsno"), ".jsno"),
        (lambda text: text + "= =", "not TOML"),
    ],
)
def test_a_bad_entry_is_one_line_that_names_file_and_field(
    change: Callable[[str], str], words: str, ropecheck: Run, known_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = add(known_folder, FAILS_A)
    path.write_text(change(path.read_text()))
    assert ropecheck([PASSES]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert str(known_folder) in error
    assert words in error


def test_two_entries_must_not_say_the_same(known_folder: Path) -> None:
    path = add(known_folder, FAILS_A)
    (known_folder / "copy.toml").write_text(path.read_text())
    with pytest.raises(UsageError, match="says the same"):
        known.load(known_folder)


def test_an_entry_survives_its_file(known_folder: Path) -> None:
    reason = 'tabs\tquotes " backslash \\ newline\nDEL \x7f and ünïcode'
    add(known_folder, FAILS_A, reason=reason, expires=TODAY, versions=">=1")
    (loaded,) = known.load(known_folder)
    assert loaded.entry.reason == reason
    assert (loaded.entry.expires, loaded.entry.versions) == (TODAY, ">=1")
    assert loaded.witness == FAILS_A


def test_add_check_and_prune(
    ropecheck: Run,
    known_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    both = scenario(how.FAIL_A, how.FAIL_B)
    assert ropecheck([both]) == 1
    failures = tmp_path / "out" / "failures"
    more = ["--reason", "index + delta", "--link", "https://example.org/2", "--known", str(known_folder)]
    for stored in sorted(failures.iterdir()):  # each failure's own, smaller witness
        assert cli.execute(["known", "add", str(stored), *more]) == 0
    assert {entry.entry.signature for entry in known.load(known_folder)} == {"A", "B"}
    assert {entry.entry.versions for entry in known.load(known_folder)} == {">=1.5.0"}
    assert ropecheck([both]) == 0
    for stored in sorted(failures.iterdir()):
        assert cli.execute(["known", "add", str(stored), *more]) == 0
    assert len(known.load(known_folder)) == 2, "adding twice adds nothing"

    planted = ["--target", "planted", "--known", str(known_folder)]
    assert cli.execute(["known", "check", *planted]) == 0
    assert cli.execute(["known", "prune", *planted]) == 0
    assert len(known.load(known_folder)) == 2, "nothing is stale"

    add(known_folder, PASSES, signature="C")
    add(known_folder, FAILS_B, signature="D")
    assert cli.execute(["known", "check", *planted]) == 1
    capsys.readouterr()
    assert cli.execute(["known", "prune", *planted]) == 1, "a changed entry needs a person"
    assert {entry.entry.signature for entry in known.load(known_folder)} == {"A", "B", "D"}
    assert not (known_folder / f"{PASSES.id}.json").exists()
    assert all((known_folder / entry.entry.witness).exists() for entry in known.load(known_folder))


def test_add_leaves_consequences_out(known_folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "stored.json"
    failures = (failure("A"), failure("follows from it", follows=RULE))
    stored = Stored(scenario=FAILS_A, target="planted", version="1.5.0", device="cpu", failures=failures)
    path.write_bytes(pretty(stored))
    more = ["--reason", "r", "--link", "l", "--known", str(known_folder)]
    assert cli.execute(["known", "add", str(path), *more]) == 0
    assert [entry.entry.signature for entry in known.load(known_folder)] == ["A"]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--reason", "", "--link", "x"], "--reason"),
        (["--reason", "x", "--link", " "], "--link"),
        (["--reason", "x"], "--link"),
        (["--reason", "x", "--link", "x", "--expires", "soon"], "--expires"),
        (["--reason", "x", "--link", "x", "--rule", "table.index"], "rule table.index"),
    ],
)
def test_add_needs_a_reason_and_a_link(
    more: list[str], words: str, ropecheck: Run, known_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ropecheck([FAILS_A]) == 1
    capsys.readouterr()
    stored = tmp_path / "out" / "failures" / f"{FAILS_A.id}.json"
    assert read_any(stored).failures
    assert cli.execute(["known", "add", str(stored), "--known", str(known_folder), *more]) == 2
    assert words in capsys.readouterr().err
    assert known.load(known_folder) == ()


def test_the_list_that_ships_can_be_read() -> None:
    known.load()


def test_another_fault_of_the_same_shape_does_not_hide(
    ropecheck: Run, known_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add(known_folder, FAILS_A, shows="t column 1: 7, must be 4")
    assert ropecheck([FAILS_A]) == 0
    add(known_folder, FAILS_B, signature="B", shows="t column 1: 8, must be 4")
    assert ropecheck([FAILS_B]) == 1
    assert "its witness shows 't column 1: 7, must be 4'" in capsys.readouterr().out


def test_in_code_that_is_no_release_a_fixed_entry_is_gone_and_fails_nothing(known_folder: Path) -> None:
    add(known_folder, PASSES)
    (entry,) = known.load(known_folder)
    passed = Outcome(scenario=PASSES.id, name=PASSES.name, checked={entry.rule: 1})
    assert known.check(entry, passed, TODAY).state == "stale"
    assert known.check(entry, passed, TODAY, released=False).state == "gone"
    unchecked = Outcome(scenario=PASSES.id, name=PASSES.name)
    assert known.check(entry, unchecked, TODAY, released=False).state == "stale"

"""A corpus: named by content, safe under many writers, minimal when asked to be, and what runs start from."""

from __future__ import annotations

import multiprocessing
import time
from pathlib import Path

import msgspec
import pytest

from ropecheck.conformance.cli import app as cli
from ropecheck.conformance.corpus.features import features
from ropecheck.conformance.corpus.guided import Guided
from ropecheck.conformance.corpus.store import Corpus, minimal, minimise
from ropecheck.conformance.errors import UsageError
from ropecheck.conformance.judge.outcome import Failure, Outcome
from ropecheck.conformance.plan.planner import plan
from ropecheck.conformance.results.read import read
from ropecheck.conformance.scenario.operations import Scenario
from ropecheck.conformance.scenarios.random import random_scenarios
from ropecheck.conformance.scenarios.random.grow import grown

SCENARIOS = list(random_scenarios(9, 24))
ENGINE = "sglang 9 cpu"


def _write(folder: Path, turn: int) -> None:
    """All scenarios, each writer in another order, while the others do the same."""
    corpus = Corpus(folder)
    for scenario in SCENARIOS[turn:] + SCENARIOS[:turn]:
        corpus.add(scenario, ENGINE, ["rule a", f"situation {scenario.id}"])


def test_many_writers_and_a_reader(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_write, args=(tmp_path, 6 * turn)) for turn in range(4)]
    for writer in writers:
        writer.start()
    deadline = time.monotonic() + 60
    while any(writer.is_alive() for writer in writers) and time.monotonic() < deadline:
        for subject in Corpus(tmp_path).subjects():
            assert subject.id in {scenario.id for scenario in SCENARIOS}, "never half a file"
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    assert Corpus(tmp_path).ids() == sorted(scenario.id for scenario in SCENARIOS)
    assert set(Corpus(tmp_path).reached(ENGINE)) == {scenario.id for scenario in SCENARIOS}
    assert not list(tmp_path.rglob(".*")), "no temporary is left"


def test_adding_twice_changes_nothing(tmp_path: Path) -> None:
    corpus = Corpus(tmp_path)
    assert corpus.add(SCENARIOS[0], ENGINE, ["rule a"])
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.json")}
    assert not corpus.add(Scenario(name="another name", ops=SCENARIOS[0].ops, family=SCENARIOS[0].family))
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.json")} == before


def test_a_file_that_is_not_its_name_is_refused(tmp_path: Path) -> None:
    corpus = Corpus(tmp_path)
    corpus.add(SCENARIOS[0])
    (path,) = tmp_path.rglob("*.json")
    path.write_bytes(msgspec.json.encode(SCENARIOS[1]))
    with pytest.raises(UsageError, match=f"its content has id {SCENARIOS[1].id}"):
        list(corpus.subjects())
    path.write_bytes(b"{")
    with pytest.raises(UsageError, match="not JSON"):
        list(corpus.subjects())


def test_minimal_keeps_all_that_is_reached() -> None:
    sizes = {"a": (1, 1, "a"), "b": (2, 1, "b"), "c": (3, 1, "c"), "d": (4, 1, "d")}
    reached = {
        "a": frozenset("x"),
        "b": frozenset("xy"),
        "c": frozenset("y"),
        "d": frozenset("xyz"),
    }
    kept = minimal(reached, sizes)
    assert frozenset().union(*(reached[id] for id in kept)) == frozenset("xyz")
    assert kept == {"d"}


def test_minimise_keeps_what_another_engine_needs_and_what_was_never_run(tmp_path: Path) -> None:
    corpus = Corpus(tmp_path)
    small, large, other, unknown = sorted(SCENARIOS, key=lambda one: len(one.ops))[:4]
    corpus.add(small, ENGINE, ["rule a"])
    corpus.add(large, ENGINE, ["rule a"])
    corpus.add(other, ENGINE, ["rule a"])
    corpus.add(other, "engine two", ["rule b"])
    corpus.add(unknown)
    assert minimise(corpus) == [large.id]
    assert corpus.ids() == sorted([small.id, other.id, unknown.id])
    assert large.id not in corpus.reached(ENGINE)


def test_the_verbs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    file = tmp_path / "one.json"
    file.write_bytes(msgspec.json.encode(SCENARIOS[0]))
    assert cli.execute(["corpus", "add", str(file), "--corpus", str(first)]) == 0
    Corpus(first).add(SCENARIOS[1], ENGINE, ["rule a"])
    assert cli.execute(["corpus", "add", str(first), "--corpus", str(second)]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("2 new of 2 scenarios; 2 in ")
    assert Corpus(second).reached(ENGINE) == {SCENARIOS[1].id: frozenset({"rule a"})}
    assert cli.execute(["corpus", "stats", "--corpus", str(second)]) == 0
    assert "1 were run, and reach 1 rules" in capsys.readouterr().out
    assert cli.execute(["corpus", "minimise", "--corpus", str(second)]) == 0
    assert cli.execute(["corpus", "stats", "--corpus", str(tmp_path / "nothing")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "no corpus is there" in line


def test_a_run_starts_from_the_corpus(tmp_path: Path) -> None:
    corpus = Corpus(tmp_path / "corpus")
    for scenario in SCENARIOS[:5]:
        corpus.add(scenario)
    argv = ["run", "--target", "reference", "--phase", "hypothesis", "--corpus", str(corpus.folder), "--workers", "1"]
    assert cli.execute([*argv, "--out", str(tmp_path / "out")]) == 0
    report = read(tmp_path / "out")
    assert report.part.covers[0].phases == ("corpus", "hypothesis")
    assert report.totals.scenarios == 125


def test_a_guided_search_keeps_what_reached_something_new(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    argv = ["fuzz", "--guided", "--target", "reference", "--max-time", "1", "--seed", "3", "--workers", "1"]
    assert cli.execute([*argv, "--corpus", str(corpus), "--out", str(tmp_path / "out")]) == 0
    (engine,) = Corpus(corpus).engines()
    reached = Corpus(corpus).reached(engine)
    report = read(tmp_path / "out")
    situations = {f"situation {name}" for name, count in report.situations.items() if count}
    assert situations <= frozenset().union(*reached.values()), "all that was reached can be reached again"


def test_a_search_is_the_same_again_and_follows_what_is_new() -> None:
    def names(scenario: Scenario) -> frozenset[str]:
        return frozenset(type(op).__name__ for op in scenario.ops)

    def search(follow: bool) -> list[list[str]]:
        made, ids = Guided(5), []
        for _ in range(3):
            scenarios = made.generation()
            ids.append([one.id for one in scenarios])
            made.learn((one, names(one) if follow else frozenset()) for one in scenarios)
        return ids

    assert search(True) == search(True)
    assert search(True)[0] == search(False)[0]
    assert search(True)[1] != search(False)[1]


def test_grown_scenarios_are_legal_and_like_their_parents() -> None:
    made = [grown(parent, f"{number}") for number, parent in enumerate(SCENARIOS)]
    for child in made:
        plan(child)
    assert len({child.id for child in made} - {parent.id for parent in SCENARIOS}) > len(SCENARIOS) // 2
    alike = sum(child.ops[:1] == parent.ops[:1] for child, parent in zip(made, SCENARIOS, strict=True))
    assert alike == len(SCENARIOS)


def test_every_scenario_of_a_search_runs_a_forward() -> None:
    made = Guided(1, [Scenario(name="short", ops=one.ops[:2], family=one.family) for one in SCENARIOS])
    for _ in range(6):
        for scenario in made.generation():
            plan(scenario)


def test_features_name_all_kinds() -> None:
    failure = Failure(rule="r", mode="m", signature="s", step=0, label="", message="")
    outcome = Outcome(
        scenario="x",
        name="x",
        checked={"r": 2, "never": 0},
        failures=(failure,),
        situations={"decode x media": 1, "none": 0},
        ran={"decode": {"f": 3}},
    )
    assert features(outcome, {"a.py": (3, 4)}) == {
        "rule r",
        "situation decode x media",
        "ran decode f",
        "failure r / m / s",
        "line a.py:3",
        "line a.py:4",
    }

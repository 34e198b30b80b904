"""The driver: nothing lost, nothing twice, whatever dies."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from ropecheck.conformance.campaign.blocks import Block, CampaignPlan, blocks
from ropecheck.conformance.campaign.driver import DEPTH, LOSSES, TRIES, CampaignDriver, Crew, LostBlock
from ropecheck.conformance.campaign.ledger import KEPT_POINTS, Ledger
from ropecheck.conformance.campaign.station import BlockDone, Station, identity
from ropecheck.conformance.corpus.store import Corpus
from ropecheck.conformance.errors import UsageError
from ropecheck.conformance.report.json_file import FindingReport, Report
from ropecheck.conformance.results.merge import merge
from ropecheck.conformance.scenario.operations import Scenario
from ropecheck.conformance.scenarios.random import random_scenarios
from ropecheck.conformance.scripts.script import Script, Step
from ropecheck.conformance.store.files import Stored, StoredScript, pretty, stored_of
from tests.campaign.here import Here
from tests.campaign.planted import DEAD, FAULTY
from tests.campaign.support import BLOCKS, PLAN, Scripted, merged, run_here, timeless

SGLANG = "sglang"

pytestmark = pytest.mark.xdist_group("campaign")  # what is slow to make is made once


@pytest.fixture(scope="session")
def whole(
    tmp_path_factory: pytest.TempPathFactory, long: tuple[Report, dict[int, BlockDone]]
) -> tuple[Report, dict[int, BlockDone], Path]:
    """The campaign's report when nothing dies, and what each block came to."""
    out = tmp_path_factory.mktemp("whole")
    alone = {block.number: long[1][block.number] for block in blocks(PLAN, FAULTY)}
    _drive(out, Scripted(alone))
    return merged(out), alone, out


def _drive(out: Path, crew: Crew, plan: CampaignPlan = PLAN, seconds: float = 600) -> CampaignDriver:
    ledger = Ledger(out, plan, identity())
    driver = CampaignDriver(plan=plan, ledger=ledger, crew=crew, seconds=seconds)
    driver.run()
    ledger.close()
    return driver


def test_blocks_add_up_to_the_campaign(
    whole: tuple[Report, dict[int, BlockDone], Path], long: tuple[Report, dict[int, BlockDone]]
) -> None:
    assert timeless(merge([done.report for done in long[1].values()])) == timeless(long[0])
    report, alone, out = whole
    assert len(alone) == BLOCKS
    assert report.findings
    assert timeless(merge([done.report for done in alone.values()])) == timeless(report)
    assert [covers.seeds for covers in report.part.covers] == ["4-7"]
    assert all(covers.whole for covers in report.part.covers)
    named = {finding.witness.file for finding in report.findings}
    assert {f"failures/{path.name}" for path in (out / FAULTY / "failures").iterdir()} == named


def test_lost_blocks_are_run_again(whole: tuple[Report, dict[int, BlockDone], Path], tmp_path: Path) -> None:
    report, alone, _ = whole
    crew = Scripted(alone, lose={2: "once", 3: "once", 7: "once"})
    driver = _drive(tmp_path, crew)
    assert driver.lost == 3
    assert timeless(merged(tmp_path)) == timeless(report)
    assert driver.given == BLOCKS + 3
    assert crew.most_held <= crew.size * DEPTH


@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize("die_at", [1, 2, 4, 6])
def test_a_killed_driver_is_resumed(
    whole: tuple[Report, dict[int, BlockDone], Path], tmp_path: Path, die_at: int, torn: bool
) -> None:
    report, alone, _ = whole
    with pytest.raises(KeyboardInterrupt):
        _drive(tmp_path, Scripted(alone, die_at=die_at))  # no checkpoint, no close: as after SIGKILL
    if torn:
        with (tmp_path / "journal.jsonl").open("ab") as journal:
            journal.write(b'{"target":"faulty","number":6,"seconds":1.0,"rep')
    crew = Scripted(alone)
    driver = _drive(tmp_path, crew)
    assert driver.given == BLOCKS - (die_at - 1), "blocks that were taken in are not run again"
    assert timeless(merged(tmp_path)) == timeless(report)


def test_a_driver_killed_between_sum_and_journal_counts_nothing_twice(
    whole: tuple[Report, dict[int, BlockDone], Path], tmp_path: Path
) -> None:
    report, alone, _ = whole
    with pytest.raises(KeyboardInterrupt):
        _drive(tmp_path, Scripted(alone, die_at=5))
    journal = (tmp_path / "journal.jsonl").read_bytes()
    assert journal.count(b"\n") == 4
    Ledger(tmp_path, PLAN, identity()).close()
    assert not (tmp_path / "journal.jsonl").read_bytes()
    (tmp_path / "journal.jsonl").write_bytes(journal)
    _drive(tmp_path, Scripted(alone))
    assert timeless(merged(tmp_path)) == timeless(report)


def test_a_block_that_always_takes_its_place_along_is_given_up(
    whole: tuple[Report, dict[int, BlockDone], Path], tmp_path: Path
) -> None:
    _, alone, _ = whole
    crew = Scripted(alone, size=1, lose=dict.fromkeys(range(1, 1000), "once"))
    plan = msgspec.structs.replace(PLAN, shards=1, rounds=0)
    driver = _drive(tmp_path, crew, plan)
    assert driver.given == LOSSES
    (failed,) = driver.ledger.state.columns[FAULTY].failed
    assert (failed.number, failed.why) == (0, "the node is gone")
    assert _drive(tmp_path, crew, plan).given == 0, "given up for good"


def test_bad_input_is_tried_once(whole: tuple[Report, dict[int, BlockDone], Path], tmp_path: Path) -> None:
    _, alone, _ = whole
    driver = _drive(tmp_path, Scripted(alone, lose={1: "bad"}))
    assert driver.given == BLOCKS
    assert [one.why for one in driver.ledger.state.columns[FAULTY].failed] == ["bad input"]
    assert not all(covers.whole for covers in merged(tmp_path).part.covers)


def test_a_target_that_does_not_start_is_given_up_after_some_tries(tmp_path: Path) -> None:
    plan = CampaignPlan(targets=(DEAD,), phases=("chosen",), shards=1, rounds=0)
    crew = Here(Station())
    driver = _drive(tmp_path, crew, plan)
    crew.close()
    assert driver.given == TRIES
    (failed,) = driver.ledger.state.columns[DEAD].failed
    assert "no worker of target dead started" in failed.why


def test_the_time_of_all_drivers_counts(whole: tuple[Report, dict[int, BlockDone], Path], tmp_path: Path) -> None:
    _, alone, _ = whole
    ledger = Ledger(tmp_path, PLAN, identity())
    ledger.close(seconds=3600.0)
    driver = _drive(tmp_path, Scripted(alone), seconds=3600.0)
    assert driver.given == 0
    assert driver.ledger.state.seconds >= 3600.0


@pytest.mark.parametrize("guided", [False, True])
def test_each_seed_draws_scenarios_and_scripts_anew(guided: bool) -> None:
    plan = CampaignPlan(targets=(SGLANG,), shards=1, rounds=2, guided=guided)
    first, *later = blocks(plan, SGLANG)
    assert "scheduler" in first.phases
    drawn = ("guided", "families") if guided else ("hypothesis", "stateful", "families")
    assert [(one.number, one.seed, one.phases) for one in later] == [
        (1, 1, drawn),
        (2, 1, ("drawn-scripts",)),
        (3, 2, drawn),
        (4, 2, ("drawn-scripts",)),
    ]


@pytest.mark.parametrize("change", [{"seed": 5}, {"shards": 5}, {"rounds": None}])
def test_another_plan_does_not_go_on(change: dict[str, object], tmp_path: Path) -> None:
    Ledger(tmp_path, PLAN, identity()).close()
    before = (tmp_path / "state.json").read_bytes()
    other = msgspec.structs.replace(PLAN, **change)
    with pytest.raises(UsageError, match=f"another plan .{next(iter(change))}"):
        Ledger(tmp_path, other, identity())
    with pytest.raises(UsageError, match="a campaign of suite"):
        Ledger(tmp_path, PLAN, "another suite")
    assert (tmp_path / "state.json").read_bytes() == before


def test_the_curve_stays_short_and_grows(whole: tuple[Report, dict[int, BlockDone], Path], tmp_path: Path) -> None:
    _, alone, _ = whole
    plan = msgspec.structs.replace(PLAN, rounds=2 * KEPT_POINTS)
    ledger = Ledger(tmp_path, plan, identity())
    block = alone[BLOCKS - 1]
    for number in range(PLAN.shards, PLAN.shards + KEPT_POINTS + 50):
        seeds = msgspec.structs.replace(block.report.part.covers[0], seeds=str(number))
        part = msgspec.structs.replace(block.report.part, covers=(seeds,))
        report = msgspec.structs.replace(block.report, part=part)
        ledger.record(msgspec.structs.replace(block, number=number, report=report), float(number))
    curve = ledger.state.curve
    assert len(curve) <= KEPT_POINTS
    assert curve[-1].blocks == KEPT_POINTS + 50
    assert [point.blocks for point in curve] == sorted(point.blocks for point in curve)
    (covers,) = ledger.state.columns[FAULTY].report.part.covers  # type: ignore[union-attr]
    assert covers.seeds == f"{PLAN.shards}-{PLAN.shards + KEPT_POINTS + 49}"
    ledger.close()


def test_targets_take_turns_and_a_place_stays_with_one(tmp_path: Path) -> None:
    plan = CampaignPlan(targets=("reference", FAULTY), phases=("hypothesis",), shards=40, rounds=0)
    given: list[str] = []

    class Recording(Scripted):
        def wait(self, seconds: float) -> list[BlockDone | LostBlock]:
            for queue in self.queues.values():
                if queue:
                    block = queue.popleft()
                    given.append(block.target)
                    driver.ledger.give_up(block.target, block.number, "not run here", 0.0)
                    return []
            return []

    driver = CampaignDriver(
        plan=plan, ledger=Ledger(tmp_path, plan, identity()), crew=Recording({}, size=1), seconds=600
    )
    driver.run()
    changes = sum(1 for one, other in pairwise(given) if one != other)
    assert (given.count("reference"), given.count(FAULTY)) == (40, 40)
    assert 1 <= changes <= 6


def test_a_guided_campaign_starts_from_a_corpus_and_keeps_what_reached_something_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ropecheck.conformance.campaign.station.GENERATIONS", 1)
    monkeypatch.setattr("ropecheck.conformance.run.phases.RANDOM_COUNT", 12)
    start = Corpus(tmp_path / "start")
    given = list(random_scenarios(77, 3))
    for scenario in given:
        start.add(scenario)
    plan = CampaignPlan(targets=("reference",), phases=("hypothesis",), shards=1, rounds=1, guided=True)
    plan = msgspec.structs.replace(plan, corpus=str(start.folder))
    out = tmp_path / "out"
    report = run_here(out, plan)
    assert [covers.phases for covers in report.part.covers] == [("corpus", "hypothesis"), ("guided",)]
    assert report.totals.scenarios > 12 + len(given)
    kept = Corpus(out / "corpus")
    assert len(kept.ids()) >= 2
    (engine,) = kept.engines()
    situations = {name for names in kept.reached(engine).values() for name in names if name.startswith("situation ")}
    assert len(situations) > 10
    assert Corpus(start.folder).ids() == sorted(scenario.id for scenario in given), "what was given stays as it is"


def test_guided_blocks_go_on_from_what_the_campaign_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Block] = []

    class Noting(Here):
        def give(self, place: int, block: Block) -> None:
            given.append(block)
            super().give(place, block)

    monkeypatch.setattr("ropecheck.conformance.campaign.station.GENERATIONS", 1)
    monkeypatch.setattr("ropecheck.conformance.corpus.guided.GENERATION", 6)
    monkeypatch.setattr("ropecheck.conformance.run.phases.STATEFUL_COUNT", 2)
    plan = CampaignPlan(targets=("reference",), phases=("stateful",), shards=1, rounds=4, guided=True)
    run_here(tmp_path, plan, Noting(Station()))
    assert [block.phases for block in given] == [("stateful",), *[("guided",)] * 4]
    counts = [(len(block.start), len(block.seen)) for block in given]
    assert counts == sorted(counts)
    assert counts[0] == (0, 0) and min(counts[-1]) > 5, "the first ones were given out before anything was done"
    ledger = Ledger(tmp_path, plan, identity())
    assert {msgspec.json.decode(one, type=Scenario).id for one in ledger.start("reference")[0]} == set(
        Corpus(tmp_path / "corpus").ids()
    ), "a driver that goes on has them too"
    cpu = [point.cpu for point in ledger.state.curve]
    assert cpu[0] > 0 and cpu == sorted(cpu)
    ledger.close()


def test_a_campaign_ends_with_smaller_witnesses(
    whole: tuple[Report, dict[int, BlockDone], Path], tmp_path: Path
) -> None:
    report, alone, _ = whole
    ledger, crew = Ledger(tmp_path, PLAN, identity()), Here(Station())
    for done in alone.values():
        ledger.record(done, 1.0)
    CampaignDriver(plan=PLAN, ledger=ledger, crew=crew, seconds=600).shrink()
    ledger.close()
    smaller = merged(tmp_path)
    assert [one.count for one in smaller.findings] == [one.count for one in report.findings]
    assert [one.witness.found for one in smaller.findings] == [one.witness.found for one in report.findings]
    assert timeless(smaller).totals == timeless(report).totals
    pairs = [(one, other) for one, other in zip(smaller.findings, report.findings, strict=True) if not one.follows]
    assert all(len(_operations(tmp_path, one)) < other.witness.found[0] for one, other in pairs)
    assert not ledger.unshrunk(FAULTY), "once"


def _operations(out: Path, finding: FindingReport) -> list[object]:
    stored = msgspec.json.decode((out / FAULTY / finding.witness.file).read_bytes())
    operations: list[object] = stored["scenario"]["ops"]
    return operations


def test_witnesses_of_scripts_are_made_smaller_as_well() -> None:
    script = Script(name="one", server="plain", actions=(Step(),))
    scenario = next(random_scenarios(0, 1))
    stored = (
        StoredScript(target=SGLANG, version="1", device="cpu", script=script),
        Stored(target=SGLANG, version="1", device="cpu", scenario=scenario),
    )
    assert [stored_of(pretty(one)) for one in stored] == list(stored)

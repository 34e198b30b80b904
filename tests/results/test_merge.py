"""Reports of shards add up to exactly the report of one run."""

from __future__ import annotations

import itertools
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ropecheck.conformance.cli import app as cli
from ropecheck.conformance.errors import UsageError
from ropecheck.conformance.report import ranges
from ropecheck.conformance.report.json_file import Report, listener
from ropecheck.conformance.results.merge import add, merge
from ropecheck.conformance.results.read import read
from ropecheck.conformance.results.state import exit_code
from ropecheck.conformance.run import baseline, phases
from ropecheck.conformance.run.baseline import Baseline
from ropecheck.conformance.run.phases import Options
from ropecheck.conformance.run.session import Settings, pool_of, run
from ropecheck.conformance.run.warm import Warm
from ropecheck.conformance.scenarios.chosen import chosen
from ropecheck.conformance.targets import registry
from tests.results.support import timeless

pytestmark = pytest.mark.xdist_group("shards")  # what is slow to make is made once

MUTANT = "decode one column short"
PHASES = ("chosen", "laws", "exhaustive", "hypothesis")
FEW = 20
"""Drawn scenarios a run."""


@pytest.fixture(scope="session")
def parts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Report, list[Report]]:
    """A run of a reference with a planted fault, and the same run in three shards."""
    folder = tmp_path_factory.mktemp("shards")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(phases, "RANDOM_COUNT", FEW)
        some = chosen()[::4]
        patch.setattr("ropecheck.conformance.scenarios.chosen.chosen", lambda: some)
        return folder, _run(folder / "all", (1, 1)), [_run(folder / str(n), (n, 3), workers=1) for n in (1, 2, 3)]


def _run(out: Path, shard: tuple[int, int], seed: int = 3, mutant: str = MUTANT, **more: Any) -> Report:
    reference = registry.find("reference", "cpu")
    settings = Settings(
        target=replace(reference, argv=(*reference.argv, "--mutant", mutant)) if mutant else reference,
        out=out,
        phases=phases.select(PHASES),
        options=Options(seed=seed, bound="small"),
        shard=shard,
        workers=2,
        shrink_seconds=0,
    )
    run(replace(settings, **more), [partial(listener, out / "report.json")])
    return read(out)


def test_shards_make_the_report_of_one_run(parts: tuple[Path, Report, list[Report]]) -> None:
    _, whole, shards = parts
    assert whole.findings
    assert whole.scope.certificate
    assert whole.totals.failed
    assert all(shard.scope.certificate is None for shard in shards)
    for order in itertools.permutations(shards):
        assert timeless(merge(order)) == timeless(whole)
    assert timeless(add(shards[0], add(shards[1], shards[2]))) == timeless(whole)


def test_shards_that_reached_less_are_as_their_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A right run reaches an idle batch; its scenarios are lost here."""
    monkeypatch.setattr(baseline, "FOLDER", tmp_path)
    reached: dict[str, tuple[str, ...]] = {"table.width": ("decode", "idle")}
    wanted = Baseline(target="reference", version="0", device="cpu", phases={"chosen": reached})
    baseline.write(wanted)
    left = [scenario for scenario in chosen() if "idle" not in scenario.name][:30]
    monkeypatch.setattr("ropecheck.conformance.scenarios.chosen.chosen", lambda: left)
    small: dict[str, Any] = {
        "phases": phases.select(["chosen"]),
        "mutant": "",
        "seed": 0,
        "witnesses": False,
        "workers": 1,
    }
    whole, *shards = (_run(tmp_path / str(of), of, **small) for of in ((1, 1), (1, 2), (2, 2)))
    assert timeless(merge(shards)) == timeless(whole)
    assert whole.part.below == ("chosen: table.width in idle",)
    assert "reached less than the baseline of reference 0 (1): chosen: table.width in idle" in whole.warnings
    assert [exit_code(one) for one in (whole, merge(shards), *shards)] == [4, 4, 0, 0]


def test_a_missing_shard_is_no_certificate(parts: tuple[Path, Report, list[Report]]) -> None:
    _, whole, shards = parts
    two = merge(shards[:2])
    assert two.scope.certificate is None
    assert (two.part.covers[0].shards, two.part.covers[0].of) == ("1-2", 3)
    assert two.totals.scenarios < whole.totals.scenarios


def test_a_shard_that_could_not_run_something_is_no_certificate(parts: tuple[Path, Report, list[Report]]) -> None:
    _, _, shards = parts
    covers = msgspec.structs.replace(shards[0].part.covers[0], certificate=None)
    torn = msgspec.structs.replace(shards[0], part=msgspec.structs.replace(shards[0].part, covers=(covers,)))
    assert merge([torn, *shards[1:]]).scope.certificate is None


def test_the_same_shard_twice_is_refused(parts: tuple[Path, Report, list[Report]]) -> None:
    _, whole, shards = parts
    with pytest.raises(UsageError, match=r"the same scenarios twice: .*shard 2 is in both"):
        merge([shards[0], shards[1], shards[1]])
    with pytest.raises(UsageError, match=r"the same scenarios twice: .*seed 3 is in both"):
        merge([whole, *shards])


@pytest.mark.parametrize("field", ["suite", "version", "device"])
def test_reports_of_different_runs_do_not_add_up(parts: tuple[Path, Report, list[Report]], field: str) -> None:
    _, _, shards = parts
    if field == "suite":
        other = msgspec.structs.replace(shards[1], suite="another")
    else:
        target = msgspec.structs.replace(shards[1].target, **{field: "another"})
        other = msgspec.structs.replace(shards[1], target=target)
    with pytest.raises(UsageError, match=f"do not add up: {field}"):
        merge([shards[0], other])


def test_seeds_add_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(phases, "RANDOM_COUNT", FEW)
    small = {"phases": phases.select(["hypothesis"]), "witnesses": False}
    reports = [_run(tmp_path / str(seed), (1, 1), seed, "", **small) for seed in (5, 7, 6)]
    merged = merge(reports)
    (covers,) = merged.part.covers
    assert (covers.seeds, covers.of) == ("5-7", 1)
    assert merged.totals.scenarios == sum(one.totals.scenarios for one in reports)
    assert merged.seed == 5


def test_the_verb_copies_the_witnesses_and_exits_as_the_run(
    parts: tuple[Path, Report, list[Report]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, whole, _ = parts
    out = tmp_path / "merged"
    assert cli.execute(["report", "merge", *(str(folder / n) for n in "123"), "--out", str(out)]) == 1
    assert exit_code(whole) == 1
    assert timeless(read(out)) == timeless(whole)
    assert {path.name for path in (out / "failures").iterdir()} == {
        path.name for path in (folder / "all" / "failures").iterdir()
    }
    text = capsys.readouterr().out
    assert "NEW: " in text
    assert cli.execute(["report", "show", str(out)]) == 1
    assert capsys.readouterr().out.splitlines()[-1].endswith("could not run")


def test_merging_into_a_part_is_refused(
    parts: tuple[Path, Report, list[Report]], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _, _ = parts
    before = (folder / "1" / "report.json").read_bytes()
    assert cli.execute(["report", "merge", str(folder / "1"), str(folder / "2"), "--out", str(folder / "1")]) == 2
    assert "one of the reports is there" in capsys.readouterr().err
    assert (folder / "1" / "report.json").read_bytes() == before


@pytest.mark.parametrize(
    ("body", "why"),
    [(b"", "not a whole report"), (b'{"schema": 3}', "schema 3"), (b'{"schema": 5, "sui', "not a whole report")],
)
def test_a_torn_report_is_one_line(body: bytes, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "report.json"
    path.write_bytes(body)
    assert cli.execute(["report", "show", str(path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert str(path) in line
    assert why in line


def test_ranges_are_sets() -> None:
    assert ranges.text_of([7, 1, 3, 2, 2]) == "1-3,7"
    assert ranges.united("1-3,7", "4-6,9") == "1-7,9"
    assert ranges.size("1-3,7") == 4
    assert (ranges.holds("1-3,7", 3), ranges.holds("1-3,7", 4)) == (True, False)
    with pytest.raises(ValueError, match="3 is in both"):
        ranges.united("1-3", "3-4")


@pytest.mark.engine
def test_shards_of_the_real_engine(tmp_path: Path) -> None:
    target = registry.find(registry.DEFAULT, "cpu")
    warm = Warm(target, tmp_path / "imports.log")  # for three runs, each with a worker of its own

    def one(name: str, shard: tuple[int, int]) -> Report:
        laws = phases.select(["laws"])
        settings = Settings(target=target, out=tmp_path / name, phases=laws, shard=shard, complete=False)
        with pool_of(settings, warm=warm) as pool:
            run(settings, [partial(listener, settings.out / "report.json")], pool)
        return read(settings.out)

    with closing(warm):
        whole = one("all", (1, 1))
        assert whole.findings
        assert timeless(merge([one("1", (1, 2)), one("2", (2, 2))])) == timeless(whole)

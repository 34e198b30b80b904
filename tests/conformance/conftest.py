"""The command line against the planted worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ropecheck.conformance.cli import app as cli
from ropecheck.conformance.run import phases
from ropecheck.conformance.scenario.operations import Scenario
from ropecheck.conformance.targets import registry as targets
from tests.conformance.support import planted, stub

Run = Callable[..., int]


@pytest.fixture
def known_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "known"
    folder.mkdir()
    return folder


@pytest.fixture
def stubs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[dict[str, list[Scenario]]]:
    """Targets "planted" and "planted-HOW", and a phase "codes" over the scenarios that a test puts into the value."""
    scenarios: dict[str, list[Scenario]] = {"codes": []}
    stub(monkeypatch.setattr)
    monkeypatch.setattr(
        targets,
        "_SOURCES",
        [lambda: (planted(flag=tmp_path / "flag"), *map(_named, ("unknown-mode", "wrong-protocol", "lost")))],
    )
    codes = phases.Phase(name="codes", summary="", drive=lambda driver: driver.check_all(scenarios["codes"]))
    monkeypatch.setattr(phases, "_PHASES", {"codes": codes})
    yield scenarios


def _named(how: str) -> targets.Target:
    target = planted(how)
    return targets.Target(name=f"planted-{how}", argv=target.argv, env=target.env, devices=target.devices)


@pytest.fixture
def ropecheck(stubs: dict[str, list[Scenario]], tmp_path: Path, known_folder: Path) -> Run:
    """`ropecheck run` over scenarios; returns the exit code. The report is in tmp_path / "out"."""

    def run(scenarios: list[Scenario], *more: str, target: str = "planted", workers: int = 1) -> int:
        stubs["codes"] = scenarios
        argv = ["run", "--target", target, "--out", str(tmp_path / "out"), "--workers", str(workers)]
        return cli.execute([*argv, "--known", str(known_folder), *more])

    return run

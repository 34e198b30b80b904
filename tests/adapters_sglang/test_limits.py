"""The checks at function level, on the real engine without a GPU: right as it is, wrong with a planted fault."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ropecheck.adapters import protocol
from ropecheck.conformance.device.limits import limit_jobs
from ropecheck.conformance.run.ask import StartedWorker
from ropecheck.conformance.targets.registry import DEFAULT, find
from tests.adapters_sglang.support import Worker

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("planted")]


class Shared:
    """The worker that tests share, as the checks ask theirs."""

    device = "cpu"

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def ask(self, job: protocol.Job) -> tuple[protocol.Result, ...]:
        return self._worker.run(job).results


def looked(worker: Any) -> set[str]:
    """Whose lengths that are not contiguous are read wrongly."""
    found = {one.what: (one.problem, one.note or one.unrun) for one in limit_jobs(worker)}
    strided = {what: said for what, said in found.items() if "strided" in what}
    assert len(strided) == 12 and all(note == "" for _, note in strided.values())
    empty = [said for what, said in found.items() if "empty" in what]
    assert empty == [("", ""), ("", "")]
    return {what.partition(" of ")[0] for what, (problem, _) in strided.items() if problem}


def test_lengths_that_are_not_contiguous(planted_worker: Worker) -> None:
    assert looked(Shared(planted_worker)) == set()


def test_a_stride_that_is_ignored_is_seen(tmp_path: Path) -> None:
    """A fault that a variable plants in a worker of its own, as on a GPU."""
    target = find(DEFAULT, "cpu")
    planted = replace(target, env={**target.env, "ROPECHECK_FAULT": "ignored_stride"})
    with StartedWorker(planted, "cpu", tmp_path / "log") as worker:
        assert looked(worker) == {"draft extend"}

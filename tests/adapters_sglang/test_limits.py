"""The checks at function level, on the real engine without a GPU: right as it is, wrong with a planted fault."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ropecheck.conformance.device.limits import limit_jobs
from ropecheck.conformance.run.ask import StartedWorker
from ropecheck.conformance.targets.registry import DEFAULT, find

pytestmark = pytest.mark.engine


@pytest.mark.parametrize(("fault", "wrong"), [("", set()), ("ignored_stride", {"draft extend"})])
def test_lengths_that_are_not_contiguous(fault: str, wrong: set[str], tmp_path: Path) -> None:
    pytest.importorskip("sglang")
    target = find(DEFAULT, "cpu")
    planted = replace(target, env={**target.env, "ROPECHECK_FAULT": fault})
    with StartedWorker(planted, "cpu", tmp_path / "log") as worker:
        found = {one.what: (one.problem, one.note or one.unrun) for one in limit_jobs(worker)}
    strided = {what: said for what, said in found.items() if "strided" in what}
    assert len(strided) == 12 and all(note == "" for _, note in strided.values())
    assert {what.partition(" of ")[0] for what, (problem, _) in strided.items() if problem} == wrong
    empty = [said for what, said in found.items() if "empty" in what]
    assert empty == [("", ""), ("", "")]

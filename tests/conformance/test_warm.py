"""One process imports, every worker is its fork."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from ropecheck.adapters import forking
from ropecheck.conformance.run.pool import Pool
from ropecheck.conformance.run.warm import Warm
from tests.conformance import planted_worker as how
from tests.conformance.support import StubPlan, planted, scenario, stub_plan


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_workers_of_two_pools_have_one_parent_and_outlive_no_pool(tmp_path: Path) -> None:
    target = planted(forks=True)
    warm = Warm(target, tmp_path / "log")
    pids = []
    for name in ("one", "two"):
        with Pool[StubPlan](target, device="cpu", workers=2, out=tmp_path / name, warm=warm) as pool:
            pool.start()
            pids += [seat.process.pid for seat in pool._seats if seat.process is not None]
            parents = {parent_of(pid) for pid in pids[-2:]}
            assert len(list(pool.answers(map(stub_plan, [scenario(how.OK)])))) == 1
        assert all(not Path(f"/proc/{pid}").exists() for pid in pids)
    parent = parents.pop()
    assert not parents
    assert Path(f"/proc/{parent}").exists()
    warm.close()
    assert not Path(f"/proc/{parent}").exists()


def test_a_fork_keeps_no_pipe_but_its_own() -> None:
    """Else nobody would ever read the end of another fork's pipe."""

    def life(requests: socket.socket) -> None:
        def child(note: bytes, own: list[int]) -> None:
            os.read(own[0], 1)

        forking.serve(requests, child)

    _, server = forking.start(life)
    ends = [os.pipe() for _ in range(2)]
    asked = [forking.Forked(server, b"x", (read,)) for read, _ in ends]
    for one in asked:
        assert one.hear(20)
    os.close(ends[0][1])  # the end of the first one's pipe, though the second was forked beside it
    assert asked[0].hear(20)
    assert asked[0].code == 0
    assert not asked[1].hear(0.05)
    os.close(ends[1][1])
    assert asked[1].hear(20)
    server.close()

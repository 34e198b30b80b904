"""A worker that builds every prompt table right, but for one cell of one case on demand.

Arguments: engine name, version, name of the case with a wrong cell ("" for none), family that is not offered ("" for
none). Jobs are known by their ids, which are the cases'.
"""

from __future__ import annotations

import os
import sys

import msgspec

from ropecheck.adapters import protocol
from ropecheck.conformance.families.case import Case
from ropecheck.conformance.families.cases import all_cases
from ropecheck.conformance.selftest.builder import right
from ropecheck.reference.blocks import Table

SEEDS = (0, 7)


def wrong_cell(table: Table) -> Table:
    table[1, 4] += 100
    return table


def result(case: Case, wrong: str, lacking: str) -> protocol.Result:
    if case.family == lacking:
        return protocol.NotOfferedAnswer("it was never written")
    return right(case, wrong_cell if case.name == wrong else None)


def main() -> None:
    engine, version, wrong, lacking = sys.argv[1:5]
    arguments = dict(zip(sys.argv[5::2], sys.argv[6::2], strict=True))
    jobs = os.fdopen(int(arguments["--in-fd"]), "rb")
    answers = os.fdopen(int(arguments["--out-fd"]), "wb")
    cases = {case.id: case for seed in SEEDS for case in [*all_cases(engine, seed, 2)][::-1]}
    hello = protocol.Hello(
        protocol=protocol.PROTOCOL,
        target=engine,
        version=version,
        device="cpu",
        torch="none",
        python="3",
        pid=os.getpid(),
        modes={},
        covered={},
        uncovered={},
        capabilities={},
    )
    protocol.send(answers, hello)
    while (body := protocol.receive(jobs)) is not None:
        job = msgspec.msgpack.decode(body, type=protocol.Job | protocol.Shutdown)
        if isinstance(job, protocol.Shutdown):
            return
        assert all(isinstance(step, protocol.PromptTable) for step in job.steps)
        results = tuple(result(cases[job.id], wrong, lacking) for _ in job.steps)
        protocol.send(answers, protocol.JobAnswer(job.id, results, engine_ns=1000, forwards=0))


if __name__ == "__main__":
    main()

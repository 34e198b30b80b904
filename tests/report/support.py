"""Runs to report on: the reference engine with planted faults, in this process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from ropecheck.adapters import protocol
from ropecheck.conformance.judge.outcome import Outcome
from ropecheck.conformance.judge.verdict import judge
from ropecheck.conformance.plan.planner import plan
from ropecheck.conformance.reference_engine import answer
from ropecheck.conformance.run.events import Finding, Header, ScenarioDone, Summary
from ropecheck.conformance.run.tally import Tally
from ropecheck.conformance.scenario.operations import Scenario
from ropecheck.conformance.scenarios.chosen import chosen
from ropecheck.conformance.selftest.mutants import MUTANTS

HELLO = protocol.Hello(
    protocol=protocol.PROTOCOL,
    target="reference",
    version="1.0",
    device="cpu",
    torch="",
    python="3.11",
    pid=1,
    modes={},
    covered={},
    uncovered={},
    capabilities={},
)


def header(out: Path) -> Header:
    return Header(
        suite="1.0",
        spec="0" * 12,
        target="reference",
        hello=HELLO,
        device="cpu",
        seed=0,
        workers=1,
        phases=("chosen",),
        shard="1/1",
        out=out,
        known_folder=out,
        known=(),
    )


def outcome(scenario: Scenario, fault: str) -> Outcome:
    """What the reference with a planted fault comes to."""
    planned = plan(scenario)
    return judge(planned, answer(planned.job, MUTANTS[fault].make()))


def run(out: Path, *faults: str, scenarios: Sequence[Scenario] = ()) -> Summary:
    """Every fault on every chosen scenario that it breaks first, one fault after another."""
    tally = Tally(header(out))
    for fault in faults:
        for scenario in scenarios or chosen():
            done = outcome(scenario, fault)
            if done.failures:
                tally.add(ScenarioDone("chosen", scenario, done))
    tally.summary.sort()
    return tally.summary


def many(summary: Summary, count: int) -> Summary:
    """The same run with `count` findings, no two of one key, none of them a consequence."""
    first = [finding for finding in summary.findings if not finding.failure.follows]
    findings = []
    for number in range(count):
        one = first[number % len(first)]
        rule, mode, signature = one.key
        failure = msgspec.structs.replace(one.failure, signature=f"{signature} {number}")
        findings.append(
            Finding(
                key=(rule, mode, failure.signature),
                known=None,
                count=1,
                unexpected=1,
                scenario=one.scenario,
                failure=failure,
                size=one.size,
                file=one.file,
            )
        )
    summary.findings = findings
    return summary

"""The real scheduler: it starts in every configuration, runs every mode it makes by itself, and shows planted faults.

One process imports the engine for all of it; each configuration is a fork.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from bench import position_statements
from ropecheck.adapters import play, protocol
from ropecheck.adapters.sglang import mends
from ropecheck.adapters.sglang.scheduler import entered
from ropecheck.adapters.sglang.scheduler.faults import FAULTS, VARIABLE
from ropecheck.adapters.sglang.scheduler.host import Hosts, Told
from ropecheck.adapters.sglang_routes import sources
from ropecheck.conformance.cards.build import cards
from ropecheck.conformance.cards.render import as_text
from ropecheck.conformance.cards.text import card_lines
from ropecheck.conformance.cli import check
from ropecheck.conformance.judge.outcome import Failure, Outcome
from ropecheck.conformance.known.failures import Known, applying, entries_for, load
from ropecheck.conformance.known.stream import predicted
from ropecheck.conformance.run import notices
from ropecheck.conformance.run.session import Runner, Settings
from ropecheck.conformance.scripts.chosen import all_scripts
from ropecheck.conformance.scripts.plan import play_of
from ropecheck.conformance.scripts.script import Arrive, Script
from ropecheck.conformance.scripts.servers import servers
from ropecheck.conformance.store.files import Stored, read_any
from ropecheck.conformance.subject import AnyPlan, ScriptPlan
from ropecheck.conformance.targets.registry import find
from ropecheck.conformance.trace.verdict import judge_script
from ropecheck.conformance.versions import NEWEST_KNOWN
from ropecheck.spec.history import text
from ropecheck.spec.rules import all_rules
from tests.adapters_sglang.support import Worker
from tests.report.support import header
from tests.scheduler import planted

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("scheduler")]

WORD = (text(1),)
ENTRIES = applying(load(), "sglang", NEWEST_KNOWN["sglang"], "cpu")
KNOWN = [known for known in ENTRIES if isinstance(known.witness, Script)]
BUGS = frozenset(known.entry.cause for known in ENTRIES)


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    made = Hosts(afresh=True)
    yield made
    made.close()


def told(hosts: Hosts, script: Script, patch: str = "", variable: str = VARIABLE) -> Told:
    planned = play_of(script)
    server = planned.server
    if patch:
        server = play.ServerConfig(server.name, server.arguments, {**server.environment, variable: patch}, server.draft)
    return hosts.play(msgspec.msgpack.encode(msgspec.structs.replace(planned, server=server)))


def outcome(hosts: Hosts, script: Script, patch: str = "", variable: str = VARIABLE) -> Outcome:
    answer = told(hosts, script, patch, variable)
    assert not answer.problem, answer.problem
    return judge_script(script, protocol.Played(answer.trace))


@pytest.mark.parametrize("server", list(servers()))
def test_every_configuration_starts_and_makes_its_modes(hosts: Hosts, server: str) -> None:
    """What some of them show there is known."""
    seen: set[str] = set()
    few = ("chunks beside", "one image", "one text", "two images")
    scripts = [one for one in all_scripts() if one.server == server]
    for script in [one for one in scripts if one.name.startswith(few)] or scripts:
        trace = told(hosts, script).trace
        found = judge_script(script, protocol.Played(trace))
        assert not news(script, trace), script.name
        seen |= {mode.removeprefix("scheduler.") for mode in found.modes}
    wanted = {*servers()[server].modes, "decode" if server == "decode_only" else "extend"}
    assert wanted <= seen or server == "frozen_kv_in_step"


def test_a_player_of_its_own_says_the_same(hosts: Hosts) -> None:
    """As on a GPU, whose context outlives no fork."""
    script = next(one for one in all_scripts() if one.name == "two images, one text (overlap)")
    alone = Hosts(alone="cpu")
    mine, theirs = told(alone, script), told(hosts, script)
    assert (mine.trace, mine.problem, mine.dead) == (theirs.trace, theirs.problem, theirs.dead)
    alone.close()


@functools.cache
def _scripts(server: str) -> tuple[Script, ...]:
    return tuple(sorted((one for one in all_scripts() if one.server == server), key=lambda one: len(one.actions)))


SERVERS = {
    "top-up per attempt": "retracting",
    "length not committed": "ngram",
    "halves swapped": "mixed",
    "second half as the first": "two_batches",
    "stage's tree one on": "stages_eagle",
    "stage's answers changed": "stages",
    "sampled drafts two on": "two_batches_eagle",
    "memory kept": "no_prefix_cache",
}

BREAKS = {
    "rows after a filter": {"table.past_table"},
    "delta by slot": {"table.past_table"},
    "top-up per attempt": {"table.past_table"},
    "length not committed": {"table.index"},
    "halves swapped": {"schedule.counts", "schedule.window"},
    "prefix counted twice": {"table.inside_table"},
    "second half as the first": {"table.inside_table"},
    "table shared after a merge": {"table.past_table"},
    "another name": {"schedule.members"},
    "abort not told": {"schedule.at_rest"},
    "prompt cut short": {"schedule.newest"},
    "session closed too early": {"schedule.survives"},
    "stage's tree one on": {"table.index"},
    "stage's answers changed": {"schedule.reply"},
    "sampled drafts two on": {"table.index"},
    "table moved in a chunk": {"table.inside_table"},
    "memory kept": {"schedule.survives"},  # the engine's own check ends it
    "reply left out": {"schedule.reply"},
}
"""Fault -> rules that must see it."""


@pytest.mark.parametrize("fault", list(FAULTS))
def test_a_fault_in_the_schedulers_own_source_is_caught(hosts: Hosts, fault: str) -> None:
    """By chosen scripts of at most six actions, in a way in which the unchanged engine does not fail them."""
    left = set(BREAKS[fault])
    for script in _scripts(SERVERS.get(fault, "plain")):
        if not left or len(script.actions) > 6:
            break
        keys = {failure.key for failure in outcome(hosts, script, fault).failures}
        if any(rule in left for rule, _, _ in keys):
            usual = {failure.key for failure in outcome(hosts, script).failures}
            left -= {rule for rule, _, _ in keys - usual}
    assert not left, "not caught"


@pytest.mark.parametrize(
    ("fault", "name", "line"),
    [
        ("prefix counted twice", "chunks beside a decode (plain)", "also at function level: ropecheck replay "),
        ("rows after a filter", "stop tokens (plain)", "not at function level: the same forwards are right there"),
        (
            "prefix counted twice",
            "close under a waiting turn (plain)",
            "cannot be said at function level: no operation",
        ),
    ],
    ids=["both", "the scheduler alone", "cannot be said"],
)
def test_a_fault_in_a_schedulers_source_is_asked_for_at_function_level(
    hosts: Hosts, planted_worker: Worker, tmp_path: Path, fault: str, name: str, line: str
) -> None:
    """In the code that builds tables, in the scheduler's own, and where a client does what no operation does."""

    class WithFault:
        def answers(self, plans: Iterable[AnyPlan]) -> Iterator[tuple[AnyPlan, protocol.JobAnswer]]:
            for planned in plans:
                if isinstance(planned, ScriptPlan):
                    played = protocol.Played(told(hosts, planned.scenario, fault).trace)
                    yield planned, protocol.JobAnswer(planned.job.id, (played,), 0, 0)
                else:
                    job = msgspec.structs.replace(planned.job, id=f"patch:{fault}")
                    yield planned, planted_worker.run(job)

    target = find("sglang", "cpu")
    runner = Runner(Settings(target=target, out=tmp_path), cast(Any, WithFault()), header(tmp_path), ())
    runner.check_all([by_name(name)])
    runner.say_at_function_level(known=False, seconds=60)
    shown = next(card for card in cards(runner.tally.summary) if card.rule in BREAKS[fault])
    assert shown.level.startswith(line)
    assert shown.level in as_text(card_lines(shown))
    for finding in runner.tally.summary.findings:
        if finding.level_file:
            stored = read_any(tmp_path / finding.level_file)
            assert isinstance(stored, Stored)
            assert stored.failures


def test_a_check_of_the_function_that_splits_a_batch_looks_where_its_fault_is_caught() -> None:
    looked = {script.server for step in check._FURTHER for script in step() if isinstance(script, Script)}
    assert SERVERS["second half as the first"] in looked and "two_batches_eagle" in looked


def test_every_rule_of_schedules_catches_one() -> None:
    assert {rule for rule in all_rules() if rule.startswith("schedule.")} <= set().union(*BREAKS.values())


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: known.path.stem)
def test_a_finding_is_gone_once_its_cause_is_mended(hosts: Hosts, known: Known) -> None:
    assert isinstance(known.witness, Script)
    assert known.entry.key in {failure.key for failure in outcome(hosts, known.witness).failures}
    assert not outcome(hosts, known.witness, known.entry.cause, mends.VARIABLE).failures


def news(script: Script, trace: bytes) -> list[Failure]:
    """What no entry expects of a trace."""
    played = protocol.Played(trace)
    failures = judge_script(script, played).failures
    expected = entries_for(failures, KNOWN, predicted(script, played, failures, BUGS))
    return [failure for failure, known in zip(failures, expected, strict=True) if known is None]


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: known.path.stem)
def test_a_cause_predicts_its_witness_to_the_number(hosts: Hosts, known: Known) -> None:
    """All of it, by entries of its own; and nothing of it without this cause."""
    assert isinstance(known.witness, Script)
    played = protocol.Played(told(hosts, known.witness).trace)
    failures = judge_script(known.witness, played).failures
    must = predicted(known.witness, played, failures, BUGS)
    assert len(must) == len(failures)
    assert known in entries_for(failures, KNOWN, must)
    for cause in known.entry.cause, "":
        without = BUGS - {cause} if cause else frozenset[str]()
        assert len(predicted(known.witness, played, failures, without)) < len(failures)


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: known.path.stem)
def test_three_other_faults_in_its_place_are_new(hosts: Hosts, known: Known) -> None:
    """Another number, another request, another step: planted in the engine for one script each."""
    changes = planted.PLACES[known.entry.cause]
    assert len(changes) >= 3
    for change, script in changes:
        played = by_name(script or known.witness.id)
        planned = play_of(played)
        header = msgspec.structs.replace(planned.header, engine=change)
        server = planned.server
        server = msgspec.structs.replace(server, environment={**server.environment, VARIABLE: planted.HERE})
        answer = hosts.play(msgspec.msgpack.encode(msgspec.structs.replace(planned, header=header, server=server)))
        assert not answer.problem, answer.problem
        assert news(played, answer.trace), change


@functools.cache
def by_name(name: str) -> Script:
    witnesses = [known.witness for known in KNOWN if isinstance(known.witness, Script)]
    every = [*all_scripts(), *witnesses, planted.OTHER_SESSION, planted.STREAM_CUT]
    return next(script for script in every if name in (script.name, script.id))


def test_the_same_script_gives_the_same_trace(hosts: Hosts) -> None:
    for script in [*_scripts("overlap_mixed")[:8], *_scripts("retracting")[:8]]:
        assert told(hosts, script).trace == told(hosts, script).trace


def test_a_server_that_cannot_start_is_the_suites_own_problem(hosts: Hosts) -> None:
    planned = play_of(Script("x", "plain", (Arrive(0, WORD),)))
    lacking = msgspec.structs.replace(planned, server=play.ServerConfig("odd", {"no_such_argument": 1}))
    answer = hosts.play(msgspec.msgpack.encode(lacking))
    assert answer.stage == "not offered"
    assert "no_such_argument" in answer.problem
    wrong = msgspec.structs.replace(planned, server=play.ServerConfig("odd", {"attention_backend": "nothing"}))
    assert hosts.play(msgspec.msgpack.encode(wrong)).stage == "adapter"
    assert not told(hosts, Script("x", "plain", (Arrive(0, WORD),))).problem


def test_every_reason_names_position_functions_of_the_engine() -> None:
    """And with its class or module alone, no function that has a reason of its own."""
    found = {entered.told(*one) for one in entered.found()}
    assert found
    found |= {name.replace("/", ".").replace(".py:", ":") for name in sources.listed()}
    holders = {name[:end] for name in found for end in _ends(name)}
    assert not set(notices.elsewhere()) - holders


def test_every_statement_with_a_reason_is_in_the_engines_source() -> None:
    functions = position_statements.wanted(
        {one for one in entered.found() if not notices.unreachable(entered.told(*one))}
    )
    every = {
        statement
        for (module, name), (file, spans) in functions.items()
        for statement in position_statements.said(entered.told(module, name), file, spans)
    }
    assert every
    assert not set(position_statements.reasons()) - every


def _ends(name: str) -> list[int]:
    return [at for at, sign in enumerate(name) if sign in ".:"] + [len(name)]

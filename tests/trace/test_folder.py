"""A folder of recorded streams, a script's answer and a monitor's follower: what they come to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ropecheck.adapters import events, protocol
from ropecheck.adapters.events import Aborted, Closed, Died, Event, Opened, Output, PromptRun, Rest, TraceHeader
from ropecheck.conformance.judge.outcome import Unrun
from ropecheck.conformance.scripts.script import Arrive, Script
from ropecheck.conformance.trace.check import check_lines
from ropecheck.conformance.trace.folder import FolderSummary, streams, summary, told
from ropecheck.conformance.trace.follow import TraceFollower
from ropecheck.conformance.trace.verdict import judge_script
from ropecheck.spec.history import text
from tests.trace.test_judge import RIGHT, arrive, decode

END = (Output("a", (52,), "length"), Rest())
WRONG = decode("a", 6, positions=(7,))
LATER = decode("a", 8, rows=((8,),) * 3, answer=53)
OTHER = decode("a", 7, rows=((7,),) * 3, answer=52)


def lines(*stream: Event, part: int = 0) -> bytes:
    header = TraceHeader(events.VERSION, "qwen2_vl", part=part)
    return b"".join(events.line(event) for event in (header, *stream))


def put(folder: Path, name: str, *stream: Event, part: int = 0) -> Path:
    path = folder / name
    path.write_bytes(lines(*stream, part=part))
    return path


def test_streams_are_named_and_their_parts_in_order(tmp_path: Path) -> None:
    names = ("b.0002.ndjson", "b.0000.ndjson", "b.10001.ndjson", "a.ndjson", "c.1.0001.ndjson", "d.12.ndjson", "x.txt")
    for name in names:
        (tmp_path / name).touch()
    found = {name: [path.name for path in paths] for name, paths in streams(tmp_path).items()}
    assert list(found.items()) == [
        ("a", ["a.ndjson"]),
        ("b", ["b.0000.ndjson", "b.0002.ndjson", "b.10001.ndjson"]),
        ("c.1", ["c.1.0001.ndjson"]),
        ("d.12", ["d.12.ndjson"]),
    ]
    (tmp_path / "a.0001.ndjson").touch()
    assert [path.name for path in streams(tmp_path)["a"]] == ["a.ndjson", "a.0001.ndjson"]


def test_everything_in_a_folder_is_summed(tmp_path: Path) -> None:
    put(tmp_path, "one.0000.ndjson", *RIGHT[:3])
    put(tmp_path, "one.0001.ndjson", *RIGHT[3:], *END, part=1)
    put(tmp_path, "two.ndjson", *RIGHT[:3], WRONG, OTHER)
    put(tmp_path, "torn.ndjson", Rest(), TraceHeader(99, "qwen2_vl"))
    (tmp_path / "void.ndjson").write_bytes(b"")
    for name, forwards, looked, wrong in (("monitor-1", 9, {"extend": 2, "decode": 3}, 4), ("monitor-2", 5, {}, 1)):
        monitor = {"forwards": forwards, "looked_at": looked, "wrong": wrong}
        (tmp_path / f"{name}.json").write_text(json.dumps(monitor))
    for name in ("a", "b"):
        (tmp_path / f"{name}.error.txt").write_text(f"OSError {name}\n")
    found = summary(tmp_path)
    assert (found.streams, found.forwards, found.failures, found.exit_code) == (6, 3 + 3 + 5, 2 + 4 + 1, 1)
    assert len(found.unread) == 4
    assert found.unread[2:] == ["a.error.txt: OSError a", "b.error.txt: OSError b"]
    assert "version 99" in found.unread[0] and "no header" in found.unread[1]
    assert found.lines[0].startswith("one: 10 events, 3 forwards (decode 2, extend 1), ")
    assert found.lines[1] == "one: 0 failures of 0 kinds"
    assert [line for line in found.lines if "not judged" in line] == [
        f"torn: not judged: {found.unread[0]}",
        f"void: not judged: {found.unread[1]}",
    ]
    assert found.lines[-4:] == [
        "monitor-1: looked at 5 of 9 forwards, wrong: 4",
        "monitor-2: looked at 0 of 5 forwards, wrong: 1",
        "the recorder failed: a.error.txt: OSError a",
        "the recorder failed: b.error.txt: OSError b",
    ]


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (FolderSummary(), 4),
        (FolderSummary(forwards=1), 0),
        (FolderSummary(forwards=1, unread=["x"]), 3),
        (FolderSummary(unread=["x"]), 3),
        (FolderSummary(failures=2, forwards=1, unread=["x"]), 1),
    ],
)
def test_exit_codes(found: FolderSummary, code: int) -> None:
    assert found.exit_code == code


def test_a_stream_in_lines() -> None:
    wrong = lines(*RIGHT[:3], WRONG, decode("a", 7, positions=(8,), answer=52), LATER).splitlines(keepends=True)
    checked = check_lines([*wrong, b'{"type":"re'])
    found = told(checked)
    assert found[0].startswith("table.index  decode: off by one")
    assert [line for line in found if "times" in line] == [
        f"  {checked.counts[one.key]} times, first at event {one.step}" for one in checked.failures
    ]
    assert checked.counts[checked.failures[0].key] == 2
    checks = sum(checked.judge.checked.values())
    assert found[-3:] == [
        "the last line is torn; everything before it was judged",
        f"7 events, 4 forwards (decode 3, extend 1), {checks} checks",
        f"{sum(checked.counts.values())} failures of {len(checked.failures)} kinds",
    ]
    right = told(check_lines(lines(events.Dropped(2), events.Dropped(3)).splitlines(keepends=True)))
    assert right == [
        "3 events, 0 forwards (none), 0 checks",
        "5 events were dropped by the recorder",
        "0 failures of 0 kinds",
    ]


# ---------------------------------------------------------------- a script's answer

SCRIPT = Script("named", "plain", (Arrive(0, (text(1),)),))


def test_what_is_no_stream_is_no_verdict() -> None:
    absent = judge_script(SCRIPT, protocol.NotOfferedAnswer("none"))
    assert (absent.state, absent.not_offered) == ("not_offered", (("scheduler", "none"),))
    raised = judge_script(SCRIPT, protocol.Raised("adapter", "OSError", "no", ""))
    assert raised.unrun == (Unrun("adapter", "no"),) and raised.state == "could_not_run"
    other = judge_script(SCRIPT, protocol.Done())
    assert other.unrun == (Unrun("decode", "a script was answered with Done"),)
    assert {one.name for one in (absent, raised, other)} == {"named"}
    assert {one.scenario for one in (absent, raised, other)} == {SCRIPT.id}


def test_a_scripts_stream_is_judged_with_every_failure_and_causes_first() -> None:
    stream = lines(*RIGHT[:3], WRONG, decode("a", 7, positions=(8,), answer=52))
    found = judge_script(SCRIPT, protocol.Played(stream, {"f": True}))
    assert [(one.rule, one.mode, one.step, one.follows) for one in found.failures] == [
        ("table.index", "scheduler.decode", 4, ""),
        ("table.index", "scheduler.decode", 5, "table.index"),
    ]
    assert (found.forwards, found.modes, found.functions) == (
        3,
        {"scheduler.extend": 1, "scheduler.decode": 2},
        {"f": True},
    )
    assert found.situations == {"scheduler x request (plain)": 1}
    assert found.checked["table.index"] == 3 and found.by_mode["table.index"]["scheduler.decode"] == 2


# ---------------------------------------------------------------- following without judging


def follower(*stream: Event) -> TraceFollower:
    made = TraceFollower("qwen2_vl")
    for event in stream:
        made.feed(event)
    return made


WORDS = (PromptRun("text", 2),)


def turn(name: str, **how: Any) -> Event:
    return arrive(name, WORDS, session="s", **how)


def width(made: TraceFollower, name: str) -> int:
    place = made.place(name)
    return 0 if place is None else len(place.rows[0])


def test_a_follower_counts_what_clients_were_told() -> None:
    first = (Opened("s"), turn("a"), Output("a", (5,)), Output("b", (5,)), Output("a", (6, 7)))
    running = follower(*first)
    (live,) = running._histories.live.values()
    assert live.delivered == 3 and not live.finished and running.place("b") is None
    assert follower(*first, turn("b", parent="a")).place("b") is None  # a still runs
    assert width(follower(*first, Output("a", (), "length"), turn("b", parent="a")), "b") == 2 + 3 + 2


def test_a_follower_hears_of_ends() -> None:
    session = (Opened("s"), turn("a"), Output("a", (), "length"))
    assert width(follower(*session, turn("b", parent="a")), "b") == 4
    assert follower(*session, Closed("s"), turn("b", parent="a")).place("b") is None
    for end in (Rest(), Died("Error", "no")):
        assert follower(arrive(), end).place("a") is None
    assert follower(arrive(), events.Retracted("a")).place("a") is not None
    streaming = (Opened("s", True), turn("a"), Aborted("a"))
    assert follower(*streaming, turn("b")).place("b") is None  # its history cannot be known
    given_up = (Opened("s"), turn("a"), Aborted("a"), turn("b", parent="a"))
    assert width(follower(*given_up), "b") == 4
    assert follower(*given_up[:2], given_up[3]).place("b") is None

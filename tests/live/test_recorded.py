"""Streams of a real SGLang server (docs/live.md says how they were made): clean as they are, judged rightly when
something in them is changed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from ropecheck.adapters import events
from ropecheck.conformance.trace.check import Checked, check_lines

FILES = sorted((Path(__file__).parent / "data").glob("*.ndjson"))
decode = msgspec.json.Decoder(events.Event).decode


@pytest.fixture(scope="module", params=FILES, ids=lambda path: path.stem)
def stream(request: pytest.FixtureRequest) -> list[events.Event]:
    return [decode(line) for line in request.param.read_bytes().splitlines()]


def judged(stream: list[events.Event]) -> Checked:
    return check_lines(map(events.line, stream))


def forwards(stream: list[events.Event], mode: str, most: int = 10_000) -> Iterator[tuple[int, events.Forward]]:
    found = ((at, one) for at, one in enumerate(stream) if isinstance(one, events.Forward) and one.mode == mode)
    return itertools.islice(found, most)


def test_there_are_some() -> None:
    assert FILES


def test_it_is_clean_and_has_what_a_server_makes(stream: list[events.Event]) -> None:
    found = judged(stream)
    assert not found.failures, found.failures[0]
    assert found.judge.forwards > 100
    assert {"extend", "decode"} <= found.judge.modes.keys()
    assert any(run.kind == "image" for one in stream if isinstance(one, events.Arrived) for run in one.prompt)


@pytest.mark.parametrize("mode", ["extend", "decode"])
def test_a_wrong_column_anywhere_is_seen(stream: list[events.Event], mode: str) -> None:
    for at, one in forwards(stream, mode, 30):
        assert one.rows is not None
        rows = tuple((*row[:-1], row[-1] + 1) for row in one.rows)
        changed = [*stream[:at], msgspec.structs.replace(one, rows=rows), *stream[at + 1 :]]
        found = judged(changed[: at + 1])
        assert [failure.rule.split(".")[0] for failure in found.failures] == ["table"] * len(found.failures) != []
        assert all(failure.step == at for failure in found.failures)


def test_a_forward_that_is_missing_is_seen(stream: list[events.Event]) -> None:
    last: dict[str, int] = {}
    for at, one in enumerate(stream):
        last |= dict.fromkeys(one.reqs, at) if isinstance(one, events.Forward) else {}
    tried = 0
    for at, one in forwards(stream, "decode"):
        if tried == 25:
            break
        if any(last[req] > at for req in one.reqs):  # of a request's last forward only the reply tells
            tried += 1
            end = min(last[req] for req in one.reqs if last[req] > at) + 1
            assert judged([*stream[:at], *stream[at + 1 : end]]).failures, at
    assert tried


def test_an_arrival_that_is_missing_is_seen(stream: list[events.Event]) -> None:
    arrivals = [at for at, one in enumerate(stream) if isinstance(one, events.Arrived) and not one.session]
    for at in arrivals[:6]:
        found = judged([*stream[:at], *stream[at + 1 : at + 60]])
        assert any(failure.rule == "schedule.members" for failure in found.failures)


def test_two_requests_that_change_places_are_seen(stream: list[events.Event]) -> None:
    tried = 0
    for at, one in forwards(stream, "decode"):
        if len(one.reqs) < 2 or one.rows is None or one.rows[0][0] == one.rows[0][1]:
            continue
        tried += 1
        reqs = (one.reqs[1], one.reqs[0], *one.reqs[2:])
        found = judged([*stream[:at], msgspec.structs.replace(one, reqs=reqs)])
        assert found.failures, at
        if tried == 10:
            break
    assert tried


def test_a_torn_end_is_normal_and_a_torn_middle_is_not(stream: list[events.Event]) -> None:
    lines = list(map(events.line, stream))
    at = len(lines) - 2
    found = check_lines([*lines[:at], lines[at][:-9]])
    assert found.torn and not found.failures
    with pytest.raises(Exception, match="not an event"):
        check_lines([*lines[:at], lines[at][:-9] + b"\n", lines[-1]])

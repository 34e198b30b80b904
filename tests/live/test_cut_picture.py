"""Why a server whose draft sees ends at a picture that a chunk cuts: on the CPU, by the engine's own functions."""

from __future__ import annotations

import pytest

from ropecheck.adapters import protocol
from ropecheck.adapters.events import Event, Opened, Output
from ropecheck.conformance.judge.outcome import Failure
from ropecheck.conformance.known.endings import SILENT
from ropecheck.conformance.known.failures import CAUSES, FOLDER, load
from ropecheck.conformance.known.model import OFFSET
from ropecheck.conformance.known.scheduler import CUT, LOOKED_UP
from ropecheck.conformance.known.stream import SURVIVES, expected
from tests.adapters_sglang.support import Worker
from tests.known.test_stream import HEADER, IMAGE, ROWS, arrive, decode, extend
from tests.live.cut_picture import FIRST, TOKENS

INSIDE = (FIRST, FIRST + 4, FIRST + TOKENS - 1)
OUTSIDE = (FIRST - 1, FIRST + TOKENS)
STANDALONE = {"speculative_algorithm": "STANDALONE"}
EAGLE = {"speculative_algorithm": "EAGLE"}
END = Failure(rule=SURVIVES, mode="scheduler", signature=SILENT, step=0, label="", message="Aborted")


@pytest.mark.engine
@pytest.mark.xdist_group("planted")
@pytest.mark.parametrize("begin", [*INSIDE, *OUTSIDE])
def test_a_window_that_begins_in_a_picture_has_a_row_too_many_once_it_is_turned(
    begin: int, planted_worker: Worker
) -> None:
    """The target's window is right wherever it begins."""
    (target,), (draft,) = (planted_worker.run(protocol.Job(f"{how}:{begin}", ())).results for how in ("cut", "turned"))
    assert isinstance(target, protocol.Done)
    assert isinstance(draft, protocol.Raised) == (begin in INSIDE)


CHUNK = tuple(row[:3] for row in ROWS)
PART = extend(0, CHUNK)
"""Three of five tokens: one of text, two of four of the picture."""


@pytest.mark.parametrize(
    ("stream", "so"),
    [
        ((arrive(), PART), True),
        ((arrive(), extend(0, ROWS)), False),  # the whole prompt
        ((arrive(), PART, extend(3, tuple(row[3:] for row in ROWS))), True),  # the draft reads behind the target
        ((arrive(prompt=IMAGE[1:]),), True),  # its first token is the picture's
        ((arrive(),), False),
        ((arrive(prompt=IMAGE[:1]),), False),
    ],
)
def test_a_silent_end_is_expected_there_alone(stream: tuple[Event, ...], so: bool) -> None:
    """Of a server whose draft sees, with this bug, and of no other end."""
    told, bugs = (HEADER, *stream), frozenset(CAUSES)
    assert [one.causes for one in expected(told, [END], bugs, STANDALONE)] == [(CUT,)] * so
    assert not expected(told, [END], bugs - {CUT}, STANDALONE)
    assert not expected(told, [END], bugs, {"speculative_algorithm": "EAGLE3"})


@pytest.mark.parametrize(
    ("stream", "so"),
    [
        ((arrive(),), True),
        ((arrive(), extend(0, ROWS)), True),  # the draft reads behind the target
        ((arrive(), extend(0, ROWS), decode(5, 3)), False),
        ((arrive(prompt=IMAGE[:1]),), False),
    ],
)
def test_a_draft_that_sees_nothing_ends_with_a_picture(stream: tuple[Event, ...], so: bool) -> None:
    told, bugs = (HEADER, *stream), frozenset(CAUSES)
    assert [one.causes for one in expected(told, [END], bugs, EAGLE)] == [(LOOKED_UP,)] * so
    assert not expected(told, [END], bugs - {LOOKED_UP}, EAGLE)


@pytest.mark.parametrize(("offset", "so"), [(2, True), (None, False)])
def test_an_offset_before_a_picture_ends_a_gpu_silently(offset: int | None, so: bool) -> None:
    """On a CPU the same window raises IndexError (ENDINGS)."""
    first = arrive("a", session="s")
    told = (
        HEADER,
        Opened("s"),
        first,
        extend(0, ROWS),
        Output("a", (7,), "length"),
        arrive("b", session="s", parent="a", offset=offset),
    )
    bugs = frozenset({OFFSET})
    assert [one.causes for one in expected(told, [END], bugs, {})] == [(OFFSET,)] * so


def test_what_a_whole_server_alone_shows_names_its_cause() -> None:
    assert {known.entry.cause for known in load(FOLDER / "live")} <= CAUSES.keys()

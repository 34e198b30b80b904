"""A scheduler with the known bugs, beside streams written by hand: what it gives is expected, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import pytest
from msgspec.structs import replace

from ropecheck.adapters import events, protocol
from ropecheck.adapters.events import Arrived, Closed, Died, Event, Forward, Opened, Output, PromptRun, Retracted
from ropecheck.conformance.judge.outcome import Failure
from ropecheck.conformance.known.endings import SILENT
from ropecheck.conformance.known.failures import CAUSES
from ropecheck.conformance.known.model import FROM_T
from ropecheck.conformance.known.scheduler import CUT, KnownHistories
from ropecheck.conformance.known.stream import SURVIVES, expected, predicted
from ropecheck.conformance.scripts.chosen import all_scripts
from ropecheck.conformance.trace.check import check_lines
from ropecheck.conformance.trace.verdict import PREFIX, each

HEADER = events.TraceHeader(events.VERSION, "qwen2_vl")
IMAGE = (PromptRun("text", 1), PromptRun("image", grid=(1, 4, 4)))
"""Five tokens: t 0 1 1 1 1, h 0 1 1 2 2, w 0 1 2 1 2; text goes on at 3, and behind the t row at 2."""
ROWS = ((0, 1, 1, 1, 1), (0, 1, 1, 2, 2), (0, 1, 2, 1, 2))


def arrive(req: str = "a", prompt: Sequence[PromptRun] = IMAGE, **more: object) -> Arrived:
    return replace(Arrived(req, tuple(prompt), 9), **more)


def extend(start: int, columns: Sequence[Sequence[int]], req: str = "a", answer: int = 7) -> Forward:
    stop = start + len(columns[0])
    return Forward(
        mode="extend",
        reqs=(req,),
        tokens=(stop - start,),
        positions=tuple(range(start, stop)),
        rows=tuple(map(tuple, columns)),
        answers=((answer,),),
        seq_lens=(stop,),
        prefix_lens=(start,),
    )


def decode(index: int, position: int, req: str = "a") -> Forward:
    return replace(extend(index, ((position,),) * 3, req), mode="decode", prefix_lens=(), seq_lens=(index + 1,))


def told(
    *stream: Event, bugs: frozenset[str] = frozenset(CAUSES), server: Mapping[str, object] = MappingProxyType({})
) -> list[tuple[int, bool]]:
    """Of each failure its place in the stream, and whether it is expected."""
    whole = [HEADER, *stream]
    failures = check_lines(map(events.line, whole), prefix=PREFIX, kind=each).failures
    known = {(one.step, one.message) for one in expected(whole, failures, bugs, server)}
    return [(one.step - 1, (one.step, one.message) in known) for one in failures]


TWO_ANSWERS = (arrive(), extend(0, ROWS), Output("a", (7,)), decode(5, 3), Output("a", (7,)), Retracted("a"))


def after_it(*positions: int) -> tuple[Forward, ...]:
    """It comes back with its two answers at 2 and 3, or as the first position says, and is decoded."""
    first, *rest = positions
    return (extend(5, ((first, first + 1),) * 3), *(decode(7 + n, position) for n, position in enumerate(rest)))


@pytest.mark.parametrize(
    ("forwards", "found"),
    [
        (after_it(3, 5, 6), []),
        (after_it(2, 5, 6), [(6, True)]),  # considered once: the table ends with its answers
        (after_it(2, 4, 5, 7), [(6, True), (7, True), (8, True)]),  # twice: two more
        (after_it(2, 4, 5, 6), [(6, True), (7, True), (8, True), (9, True)]),  # three times
        (after_it(2, 5, 5), [(6, True), (8, False)]),  # it cannot have ended before
        (after_it(1, 5), [(6, False)]),
        (after_it(2, 6), [(6, True), (7, False)]),
    ],
)
def test_how_often_it_was_considered_follows_from_what_it_reads(
    forwards: Sequence[Event], found: list[tuple[int, bool]]
) -> None:
    assert told(*TWO_ANSWERS, *forwards) == found


def test_without_the_bug_or_without_a_retraction_the_same_is_new() -> None:
    none = frozenset[str]()
    assert told(*TWO_ANSWERS, *after_it(2, 5), bugs=none) == [(6, False)]
    assert told(*TWO_ANSWERS[:3], decode(5, 2)) == [(3, False)]


PLAIN = extend(0, ((0, 1, 2, 3, 4),) * 3)


def test_a_close_takes_the_media_of_its_own_turns_that_wait() -> None:
    turns = (Opened("s"), Opened("other"), arrive(session="s"))
    assert told(*turns, Closed("s"), PLAIN) == [(4, True)]
    assert told(*turns, Closed("other"), PLAIN) == [(4, False)]
    assert told(*turns, PLAIN, Closed("s")) == [(3, False)]


def test_the_loop_ends_where_what_lets_it_has_just_come() -> None:
    words = "dictionary changed size during iteration"
    died = Died("RuntimeError", words, "session_controller.py:245 create_req")
    afresh = (Opened("s"), arrive(session="s"), arrive("b", session="s", replace=True))
    assert told(*afresh, died) == [(3, True)]
    assert told(*afresh[:2], died) == [(2, False)]
    assert told(*afresh, extend(0, ROWS), died) == [(4, False)]
    assert told(*afresh, replace(died, message="another")) == [(3, False)]
    assert told(*afresh, replace(died, error="KeyError")) == [(3, False)]
    assert told(*afresh, replace(died, where="session_controller.py:1 close")) == [(3, False)]


def test_a_search_that_is_given_up_after_a_pause_never_gives_its_rows_back() -> None:
    def died(free: int, held: int = 0) -> Died:
        words = f"req_to_token_pool memory leak detected!available_size={free}, session_held={held}, total_size=64"
        return Died("ValueError", words, "common.py:5066 raise_error_or_warn")

    paused = events.Control("pause retract")
    over = (events.Control("continue"), events.Aborted("a"), Output("a", finished="abort"))
    search = (arrive(beams=3), extend(0, ROWS), Output("a", (7,)), paused, Retracted("a"), *over)
    assert told(*search, died(62)) == [(8, True)]
    assert told(*search, died(61, held=1)) == [(8, True)]
    assert told(*search, died(63)) == [(8, False)]
    assert told(*search, died(61)) == [(8, False)]
    assert told(*search[:-1], died(62)) == [(7, False)], "it may still give them back"
    assert told(arrive(), *search[1:], died(62)) == [(8, False)]
    assert told(*search, died(62), bugs=frozenset(CAUSES) - {"pause-retracts-a-search"}) == [(8, False)]


def draft(step: int, position: int) -> Forward:
    return replace(decode(5 + step, position), mode="draft_decode", draft=True, step=step, answers=(), seq_lens=())


def test_rows_that_stand_still_read_the_first_draft_forward_s_columns() -> None:
    start = (arrive(), extend(0, ROWS))
    assert told(*start, draft(0, 3), draft(1, 3), draft(2, 3)) == [(3, True), (4, True)]
    assert told(*start, draft(0, 3), draft(1, 2)) == [(3, False)]
    assert told(*start, draft(0, 2)) == [(2, False)]


def test_a_session_s_turn_on_a_decode_server_loses_its_transfer() -> None:
    died = Died("AttributeError", "'NoneType' object has no attribute 'startswith'", "network.py:458 __post_init__")
    decodes = {"disaggregation_mode": "decode"}
    assert told(Opened("s"), arrive(session="s"), died, server=decodes) == [(2, True)]
    assert told(Opened("s"), arrive(), died, server=decodes) == [(2, False)]
    assert told(Opened("s"), arrive(session="s"), died) == [(2, False)]


def test_of_two_turns_at_once_the_second_to_end_has_another_record() -> None:
    died = Died("AssertionError", "", "streaming_session.py:302 try_cache_finished_req")
    turn = (Opened("s", streaming=True), arrive(session="s"))
    assert told(*turn, arrive("b", session="s"), died) == [(3, True)]
    assert told(*turn, died) == [(2, False)]


def test_a_turn_that_was_given_up_before_it_ran_stays_in_flight() -> None:
    words = "Streaming session already has an active request."
    turns = (arrive(session="s"), events.Aborted("a"), Output("a", finished="abort"), arrive("b", session="s"))
    refused = Output("b", finished="abort", message=words)
    assert told(Opened("s", streaming=True), *turns, refused) == [(5, True)]
    ran = (turns[0], extend(0, ROWS), *turns[1:])
    assert told(Opened("s", streaming=True), *ran, refused) == [(6, False)]


def test_numbers_that_fit_no_table_are_expected_by_nothing() -> None:
    far = replace(PLAIN, prefix_lens=(-2,))
    found = told(Opened("s"), arrive(session="s"), Closed("s"), far)
    assert found and not any(so for _, so in found)


def test_without_its_bug_a_cut_takes_the_media_behind_it() -> None:
    """And keeps those before it: what is held is what the next turn's media are put behind."""
    for offset, width in ((1, 0), (5, 5), (3, 3)):
        known = KnownHistories("qwen2_vl", frozenset(), {})
        known.open(Opened("s"))
        first = known.arrive(arrive(session="s"))
        assert first is not None
        known.finish(first, "length")
        known.arrive(arrive("b", (PromptRun("text", 2),), session="s", parent="a", offset=offset))
        assert [one.width for one in known.held("b").options] == [width]


def test_of_two_rows_each_is_its_own_requests() -> None:
    """One reads what a retraction made of its table; what is wrong with the other beside it is new."""
    beside = (arrive("b", (PromptRun("text", 5),)), extend(0, ((0, 1, 2, 3, 4),) * 3, "b"))
    rows = {"reqs": ("a", "b"), "tokens": (2, 1), "positions": (5, 6, 5), "seq_lens": (7, 6), "answers": ((7,), (7,))}
    both = replace(extend(5, ((2, 3),) * 3), mode="mixed", prefix_lens=(5, 5), **rows)
    for other, more in ((5, []), (4, [False])):
        forward = replace(both, rows=((2, 3, other),) * 3)
        found = told(*TWO_ANSWERS, *beside, forward)
        assert found == [(8, True), *((8, so) for so in more)]


def test_what_a_script_on_a_scheduler_with_the_bugs_fails_in() -> None:
    script = all_scripts()[0]
    stream: list[Event] = [HEADER, *TWO_ANSWERS, *after_it(2, 5)]
    failures = check_lines(map(events.line, stream), prefix=PREFIX, kind=each).failures
    played = protocol.Played(b"".join(map(events.line, stream)))
    found = predicted(script, played, failures, frozenset(CAUSES))
    assert [(one.key, one.causes) for one in found] == [(failures[0].key, (FROM_T,))]
    assert predicted(script, played, (), frozenset(CAUSES)) == () == predicted(script, played, failures, frozenset())
    assert predicted(script, protocol.Done(), failures, frozenset(CAUSES)) == ()


def test_an_end_without_a_word_is_expected_where_a_bug_ends_it_so() -> None:
    """A draft that sees, and a window that begins in a picture."""
    stream: list[Event] = [HEADER, arrive(), extend(0, tuple(row[:3] for row in ROWS))]
    end = Failure(rule=SURVIVES, mode="scheduler", signature=SILENT, step=2, label="", message="")
    sees, blind = {"speculative_algorithm": "STANDALONE"}, {"speculative_algorithm": "EAGLE3"}

    def causes(failure: Failure, server: Mapping[str, object], *more: Event) -> list[tuple[str, ...]]:
        return [one.causes for one in expected([*stream, *more], [failure], frozenset(CAUSES), server)]

    assert causes(end, sees) == [(CUT,)] and causes(end, blind) == []
    assert causes(replace(end, signature="raises IndexError in embed"), sees) == []
    assert causes(end, sees, extend(3, tuple(row[3:] for row in ROWS)), decode(5, 3)) == []

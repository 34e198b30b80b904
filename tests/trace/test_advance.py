"""How a stream moves its requests on, and what is counted: the judge beyond single rules."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ropecheck.adapters import events
from ropecheck.adapters.events import (
    Aborted,
    Closed,
    Died,
    Dropped,
    Event,
    Forward,
    Opened,
    Output,
    PromptRun,
    Rest,
    Retracted,
)
from ropecheck.conformance.judge.outcome import Difference, TableView
from ropecheck.conformance.trace.judge import BadTrace, Judge
from tests.trace.test_judge import RIGHT, ROWS, WORD, arrive, checked, decode, keys, prefill

TEXT = (PromptRun("text", 2),)


def words(req: str, start: int, count: int, answer: int = 60, mode: str = "extend", **changed: object) -> Forward:
    """A forward of text: a window, or the newest token."""
    at = tuple(range(start, start + count))
    event = Forward(
        mode, (req,), (count,), at, (at,) * 3, ((answer,),), seq_lens=(start + count,), prefix_lens=(start,)
    )
    return msgspec.structs.replace(event, **changed)


def newest(req: str, at: int, answer: int = 60, **changed: object) -> Forward:
    return words(req, at, 1, answer, "decode", **changed)


END = Output("a", (52,), "length")
RULES = {
    "schedule.members": {"extend": 1, "decode": 2},
    "schedule.window": {"extend": 1},
    "schedule.counts": {"extend": 1, "decode": 2},
    "schedule.newest": {"decode": 2},
    "table.present": {"extend": 1, "decode": 2},
    "table.dtype": {"extend": 1, "decode": 2},
    "table.three_rows": {"extend": 1, "decode": 2},
    "table.width": {"extend": 1, "decode": 2},
    "table.index": {"extend": 1, "decode": 2},
    "table.inside_table": {"extend": 1},
    "table.past_table": {"decode": 2},
    "schedule.reply": {"scheduler": 3},
    "schedule.at_rest": {"scheduler": 1},
    "schedule.survives": {"scheduler": 1},
}


def test_every_rule_is_counted_where_it_was_asked() -> None:
    judge = checked(*RIGHT, END, Rest()).judge
    assert judge.by_mode == RULES
    assert judge.checked == {rule: sum(modes.values()) for rule, modes in RULES.items()}
    assert (judge.events, judge.forwards, judge.live, judge.dropped) == (9, 3, 0, 0)
    assert judge.situations == {"scheduler x request": 1}


def test_what_a_stream_shows_is_counted() -> None:
    judge = checked(
        Opened("s"),
        arrive("t", TEXT, session="s"),
        arrive("a"),
        arrive("b"),
        prefill("a"),
        prefill("b", 4, 6),
        Retracted("a"),
        Retracted("b"),
        events.Transfer("a", (50,)),
        Dropped(3),
        Dropped(4),
    ).judge
    assert judge.situations == {
        "scheduler x turn": 1,
        "scheduler x request": 2,
        "scheduler x prefix hit": 1,
        "scheduler x retraction": 2,
        "scheduler x transfer": 1,
        "scheduler x gap": 2,
    }
    assert judge.dropped == 7


def test_a_judge_of_nothing_holds_nothing() -> None:
    assert (Judge().live, Judge().events) == (0, 0)
    with pytest.raises(BadTrace, match="no header"):
        list(Judge().feed(Rest()))


def test_parts_of_a_stream_follow_each_other() -> None:
    def header(part: int, version: int = events.VERSION) -> events.TraceHeader:
        return events.TraceHeader(version, "qwen2_vl", part=part)

    judge = Judge()
    for event in (header(0), RIGHT[0], header(1), *RIGHT[1:], header(2), END):
        assert not list(judge.feed(event))
    assert judge.header == header(2) and judge.forwards == 3
    for part in (2, 4, 0):
        with pytest.raises(BadTrace, match=f"part {part} after part 2"):
            list(judge.feed(header(part)))
    late = Judge()
    list(late.feed(header(3)))
    assert not list(late.feed(decode("a", 9)))  # whoever was there before is not judged
    assert [one.rule for one in checked(decode("a", 9)).failures][:1] == ["schedule.members"]
    with pytest.raises(BadTrace, match="version 3; this suite reads 1 and 2"):
        list(Judge().feed(header(0, 3)))


def test_a_failure_is_told_in_full() -> None:
    (failure,) = checked(RIGHT[0], RIGHT[1], decode("a", 6, rows=((6,), (4,), (4,)))).failures
    assert (failure.rule, failure.mode, failure.step, failure.label) == ("table.past_table", "decode", 3, "")
    assert failure.message == "request a: t is 6, must be 4"
    assert failure.difference == Difference("t", 0, 0, 4, 6)
    assert failure.expected == TableView((6,), ((4,),) * 3)
    assert failure.observed == TableView((6,), ((6,), (4,), (4,)))
    (index,) = checked(RIGHT[0], RIGHT[1], decode("a", 6, positions=(7,))).failures
    assert index.message == "request a: 1d is 7, must be 6"
    (window,) = checked(arrive(), prefill("a", 0, 4), prefill("a", 5, 6, seq_lens=(6,))).failures
    assert (window.expected, window.observed) == (None, None)
    (leak,) = checked(Rest(leak="two pages")).failures
    assert (leak.message, leak.step) == ("two pages", 1)


def test_what_comes_after_a_requests_first_failure_follows() -> None:
    wrong = decode("a", 6, positions=(7,), rows=((6,),) * 3)
    found = checked(RIGHT[0], RIGHT[1], wrong, Output("a", (50, 9))).failures
    assert [(one.rule, one.follows) for one in found] == [
        ("table.index", ""),
        ("table.past_table", "table.index"),
        ("schedule.reply", "table.index"),
    ]


@pytest.mark.parametrize(
    ("where", "shape"),
    [("", "raises Error"), ("a/b.py:3 step", "raises Error in step"), ("a b.py:3 x.y", "raises Error in x.y")],
)
def test_where_a_loop_ended(where: str, shape: str) -> None:
    (failure,) = checked(Died("Error", "no", where)).failures
    assert (failure.signature, failure.message, failure.where) == (shape, "Error: no", where)
    stream = checked(arrive(), Died("Error", "no", where), Rest())
    assert [one.rule for one in stream.failures] == ["schedule.survives"] and stream.judge.live == 0


def test_at_rest_every_request_has_ended() -> None:
    two = (arrive("x"), arrive("y"), Output("x", (), "abort"), Rest())
    (failure,) = checked(*two).failures
    assert failure.message == "request never ended: y"
    assert not checked(arrive(), Output("a", (), "abort"), Rest(), Rest()).failures


# ---------------------------------------------------------------- the end of requests


OTHERS: list[Event] = [arrive("b", TEXT, 9), words("b", 0, 2), *(newest("b", at) for at in range(2, 8))]
"""Forwards that a is not in: after the first of them come others."""


@pytest.mark.parametrize(
    ("without", "rides", "found"),
    [
        (0, 4, []),
        (1, 1, []),
        (1, 2, ["ended before"]),
        (2, 1, ["ended before"]),
        (3, 1, ["never arrived"]),
        (4, 1, ["never arrived"]),
    ],
)
def test_how_long_an_ended_request_may_ride_along(without: int, rides: int, found: list[str]) -> None:
    ride: list[Event] = [decode("a", 8 + n, answer=60) for n in range(rides)]
    end = checked(*RIGHT, END, *OTHERS[: without + 1], *ride)
    assert [one.signature for one in end.failures if one.rule == "schedule.members"] == found
    assert end.judge.live == 1 + (without < 3)


def test_each_ended_request_is_forgotten_for_itself() -> None:
    pair: list[Event] = [arrive("c", TEXT, 1), arrive("d", TEXT, 1), words("c", 0, 2), words("d", 0, 2)]
    ends: list[Event] = [Output("c", (60,), "length"), Output("d", (60,), "length")]
    assert checked(*pair, *ends, *OTHERS[:4]).judge.live == 1
    assert checked(*pair, *ends, *OTHERS[:3]).judge.live == 3
    draft = newest("b", 7, draft=True)
    assert (
        checked(*pair, *ends, *OTHERS[:2], *[msgspec.structs.replace(draft, mode="draft_decode")] * 5).judge.live == 3
    )


def test_an_aborted_request_may_end_with_a_token_that_nobody_answered() -> None:
    begun = (arrive("a", new=2), prefill("a"))
    assert not keys(*begun, Output("a", (9,), "abort"))
    assert not keys(*begun, Output("a", (50,), "abort"))
    assert ("schedule.reply", "scheduler", "wrong token") in keys(*begun, Output("a", (9,), "stop"))


def test_what_an_aborted_turn_was_answered_is_kept() -> None:
    """Both of its tokens where its client got the model's, the first alone where the last was a dummy."""
    session = (Opened("s"), arrive("a", TEXT, 9, session="s"), words("a", 0, 2), Output("a", (60,)), newest("a", 2, 61))
    turn = arrive("b", WORD, session="s", parent="a")
    for last, width in ((61, 5), (9, 4)):
        stream = (*session, Output("a", (last,), "abort", "Aborted"), turn)
        assert not keys(*stream, words("b", 0, width, 70), Output("b", (70,), "length"), Rest())
        longer = words("b", 0, width + 1, 70)
        assert keys(*stream, longer, Output("b", (70,), "length"))[0][0] == "schedule.window"


def test_a_turn_that_goes_on_for_two_forwards_after_it_was_replaced_has_ended_in_time() -> None:
    session = (Opened("s"), arrive("a", TEXT, 9, session="s"), words("a", 0, 2), Output("a", (60,)))
    replaced = (*session, arrive("b", WORD, 1, session="s", parent="a", replace=True), words("b", 0, 4, 70))
    for more, found in ((2, []), (3, [("schedule.members", "scheduler", "was replaced")])):
        on: list[Event] = [newest("a", 2 + n, 61 + n) for n in range(more)]
        told = Output("a", tuple(61 + n for n in range(more)), "abort", "Aborted")
        assert keys(*replaced, *on, told, Output("b", (70,), "length"), Rest()) == found


# ---------------------------------------------------------------- refused turns


def test_what_is_fed_for_a_refused_turn_is_not_looked_at() -> None:
    running = (Opened("s"), arrive("a", TEXT, session="s"), words("a", 0, 2))
    turn = arrive("b", TEXT, session="s", parent="a")
    pair = Forward("decode", ("b", "a"), (1, 1), (0, 2), ((77, 2),) * 3, ((1,), (61,)), seq_lens=(1, 3))
    refused = Output("b", (), "abort", "the session says no")
    assert not keys(*running, turn, pair, refused)
    assert checked(*running, turn, pair).judge.by_mode["table.index"] == {"extend": 1, "decode": 1}
    wrong = msgspec.structs.replace(pair, rows=((77, 3),) * 3)
    assert keys(*running, turn, wrong) == [("table.text_only", "decode", "off by one")]


def test_a_refused_turn_has_ended() -> None:
    late = arrive("b", session="s")
    closed = (Opened("s"), Closed("s"), late)
    dummy = Output("b", (1,))
    told = checked(*closed, dummy, Output("b", (), "abort", "session s does not exist"), Rest())
    assert not told.failures and told.judge.checked["session.refused"] == 1
    once = checked(*closed, Output("b", (1,), "length"), Output("b", (2,), "length"), Rest())
    assert [one.signature for one in once.failures] == ["accepted", "token of nowhere"]


def test_whether_a_turn_was_taken_is_asked_once() -> None:
    turn = (Opened("s"), arrive("a", TEXT, session="s"), words("a", 0, 2), Output("a", (60,)), newest("a", 2, 61))
    assert checked(*turn, Output("a", (61,))).judge.checked["session.refused"] == 1


@pytest.mark.parametrize("message", ["the input exceeds the maximum allowed length", "The input is too long"])
def test_a_turn_without_room_is_no_refusal(message: str) -> None:
    first = (Opened("s"), arrive("a", TEXT, 1, session="s"), words("a", 0, 2), Output("a", (60,), "length"))
    turn = arrive("b", TEXT, session="s", parent="a")
    stream = (*first, turn, Output("b", (), "abort", message))
    assert not keys(*stream, Rest())
    child = arrive("c", TEXT, session="s", parent="b")
    assert not keys(*stream, child, Output("c", (), "abort", "the session says no"))
    taken = Output("c", (60,), "length")
    assert keys(*stream, child, taken) == [("session.refused", "session", "accepted")]
    plain = (arrive("p"), Output("p", (), "abort", message), Rest())
    assert not keys(*plain)
    other = (*first, turn, Output("b", (), "abort", "the client is gone"))
    assert keys(*other, child, Output("c", (), "abort", "the session says no")) == []


# ---------------------------------------------------------------- windows, verifies, beams


def test_a_window_again_from_the_beginning_is_laid_beside_its_own_tokens() -> None:
    twice = prefill("a", 0, 6)
    (failure,) = checked(arrive(), prefill("a", 0, 4), twice).failures
    assert failure.key == ("schedule.window", "extend", "computes tokens twice")
    begins = prefill("a", 4, 6, prefix_lens=(-1,))
    assert [key[0] for key in keys(arrive(), prefill("a", 0, 4), begins)] == ["schedule.window"]


def test_an_answer_that_was_thrown_away_is_not_the_history() -> None:
    columns = tuple((*row, 4) for row in ROWS)
    shorter = prefill("a", 0, 7, 77, rows=columns, positions=tuple(range(7)))
    begun = (arrive(new=9), prefill("a"), Output("a", (50,)), decode("a", 6), Retracted("a"), shorter)
    assert not keys(
        *begun, decode("a", 7, answer=78), Output("a", (77, 78)), decode("a", 8, answer=79), Output("a", (79,))
    )
    assert ("schedule.reply", "scheduler", "wrong token") in keys(
        *begun, decode("a", 7, answer=78), Output("a", (51, 78))
    )
    empty = msgspec.structs.replace(shorter, answers=())
    assert not keys(*begun[:-1], empty, decode("a", 7))


def test_a_shorter_window_answers_nothing() -> None:
    """It does not reach what its client has."""
    part = prefill("a", 0, 6, 77)
    again = prefill("a", 6, 8, 52, rows=((4, 5),) * 3)
    begun = (arrive(new=9), prefill("a"), decode("a", 6), Output("a", (50, 51)), Retracted("a"), part)
    assert not keys(*begun, again, decode("a", 8, answer=53), Output("a", (52, 53)))
    assert keys(*begun, decode("a", 7, answer=53)) == [("schedule.newest", "decode", "prompt not computed")]


def test_a_row_of_one_token_beside_windows_goes_on() -> None:
    rows = ((0, 1, 4),) * 3
    both = Forward("mixed", ("b", "a"), (2, 1), (0, 1, 6), rows, ((60,), (51,)), seq_lens=(2, 7), prefix_lens=(0, 6))
    stream = (arrive(), prefill("a"), arrive("b", TEXT), both)
    assert not keys(*stream)
    assert checked(*stream).judge.by_mode["schedule.newest"] == {"mixed": 1}
    one = msgspec.structs.replace(both, tokens=(1, 1), positions=(0, 6), rows=((0, 4),) * 3, seq_lens=(1, 7))
    assert checked(*stream[:3], one).judge.by_mode["schedule.window"] == {"extend": 1, "mixed": 1}
    two = msgspec.structs.replace(
        both,
        reqs=("a",),
        tokens=(2,),
        positions=(6, 7),
        rows=((4, 5),) * 3,
        seq_lens=(8,),
        prefix_lens=(6,),
        answers=((51,),),
    )
    assert keys(*stream[:2], two)[0] == ("schedule.window", "mixed", "ends past the history")


def verified(answers: tuple[int, ...], **changed: object) -> Forward:
    event = Forward(
        "target_verify", ("a",), (3,), (6, 7, 8), ((4, 5, 6),) * 3, (answers,), parents=((0, 1),), seq_lens=(6,)
    )
    return msgspec.structs.replace(event, **changed)


def test_after_a_verify_the_accepted_tokens_are_computed() -> None:
    start = (arrive(new=9), prefill("a"))
    for answers, at in (((51, 52), 8), ((51,), 7), ((51, 52, 53), 9)):
        assert not keys(*start, verified(answers), decode("a", at, answer=60), Output("a", (50, *answers, 60)))
    assert not keys(*start, verified((51, 52)), verified((53,), positions=(8, 9, 10), rows=((6, 7, 8),) * 3))
    assert not keys(*start, verified((51,), parents=()))
    short = verified((51,), parents=(), tokens=(2,), positions=(6, 7), rows=((4, 5),) * 3)
    assert not keys(*start, short)
    assert not keys(*start, msgspec.structs.replace(verified(()), answers=()), Output("a", (50,)))


def test_a_draft_model_reads_the_targets_window() -> None:
    draft = prefill("a", draft=True, answers=(), seq_lens=(9,))
    assert not keys(arrive(), prefill("a"), draft)
    chunk = prefill("a", 4, 6)
    assert not keys(arrive(), prefill("a", 0, 4), prefill("a", 0, 4, draft=True), chunk, prefill("a", 4, 6, draft=True))
    late = keys(arrive(), prefill("a", 0, 4), chunk, prefill("a", 0, 4, draft=True))
    assert late and {key[0].split(".")[0] for key in late} == {"table"}
    behind = verified((51, 52))
    block = Forward("draft_context", ("a",), (3,), (6, 7, 8), ((4, 5, 6),) * 3, draft=True)
    assert not keys(arrive(new=9), prefill("a"), behind, block)
    wider = Forward("draft_context", ("a",), (4,), (6, 7, 8, 9), ((4, 5, 6, 7),) * 3, draft=True)
    assert not keys(arrive(new=9), prefill("a"), behind, wider)


def test_a_searchs_further_rows_are_as_long_as_its_first() -> None:
    start = (arrive(beams=2, new=4), prefill("a"))
    rows = Forward("beam_decode", ("a", "a"), (1, 1), (6, 6), ((4, 4),) * 3, ((51,), (52,)), seq_lens=(7, 7))
    assert not keys(*start, rows)
    further = msgspec.structs.replace(rows, positions=(7, 7), rows=((5, 5),) * 3, seq_lens=(8, 8))
    assert not keys(*start, rows, further, Output("a", (9, 8, 7), "length"))
    assert keys(*start, msgspec.structs.replace(rows, seq_lens=(7, 8))) == [
        ("schedule.counts", "beam_decode", "length too large")
    ]
    wrong = msgspec.structs.replace(rows, positions=(6, 7), rows=((4, 5),) * 3)
    assert keys(*start, wrong) == [("table.index", "beam_decode", "off by one")]
    assert ("schedule.reply", "scheduler", "token of nowhere") in keys(*start, rows, Output("a", (1, 2, 3)))


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({"dtypes": ("int32", "int64")}, "dtype int32"),
        ({"rows": ()}, "wrong number of rows"),
        ({"rows": ((), (), ())}, "no columns"),
        ({"rows": ((4,),) * 2}, "wrong number of rows"),
        ({"positions": ()}, "no columns"),
        ({"positions": None}, "table missing"),
    ],
)
def test_what_is_no_table(changed: dict[str, Any], found: str) -> None:
    failure = checked(RIGHT[0], RIGHT[1], decode("a", 6, **changed)).failures[0]
    assert failure.signature == found
    if changed == {"rows": ()}:
        assert failure.message == "shape [0, 0], not [3, T]"


def test_aborted_alone_is_told_apart() -> None:
    stream: tuple[Event, ...] = (arrive("a"), arrive("b"), Aborted("a"), Output("a", (), "abort", "Aborted"))
    assert [one.message for one in checked(*stream, Rest()).failures] == ["request never ended: b"]


def test_a_gap_is_a_begin_of_its_own_and_a_transfer_a_prefill() -> None:
    assert not keys(arrive(), Dropped(1), decode("z", 4))
    assert not keys(arrive(), events.Transfer("a", (50,)), decode("a", 6), Output("a", (50, 51)))


def test_every_row_of_a_batch_moves_on() -> None:
    both = (arrive(), arrive("b", TEXT), prefill("a"), words("b", 0, 2))
    pair = Forward("decode", ("b", "a"), (1, 1), (2, 6), ((2, 4),) * 3, ((61,), (51,)), seq_lens=(3, 7))
    later = Forward("decode", ("b", "a"), (1, 1), (3, 7), ((3, 5),) * 3, ((62,), (52,)), seq_lens=(4, 8))
    assert not keys(*both, pair, later, Output("a", (50, 51, 52)), Output("b", (60, 61, 62)))


def test_a_replaced_turn_whose_last_answer_was_not_read_yet_is_known() -> None:
    session = (Opened("s"), arrive("a", TEXT, 9, session="s"), words("a", 0, 2), Output("a", (60,)), newest("a", 2, 61))
    turn = (arrive("b", WORD, 1, session="s", parent="a", replace=True), words("b", 0, 4, 70, positions=(1, 1, 2, 3)))
    assert keys(*session, *turn, Output("b", (70,), "length")) == [("table.index", "extend", "other values")]

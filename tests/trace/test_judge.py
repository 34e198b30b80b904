"""The judge of event streams: a right stream passes, and every rule is broken once by a stream written by hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from ropecheck.adapters import events
from ropecheck.adapters.events import (
    Arrived,
    Closed,
    Died,
    Event,
    Forward,
    Opened,
    Output,
    PromptRun,
    Rest,
    Retracted,
    TraceHeader,
)
from ropecheck.conformance.errors import UsageError
from ropecheck.conformance.trace.check import Checked, check_files, check_lines
from ropecheck.conformance.trace.judge import Judge
from ropecheck.conformance.trace.live import Histories
from ropecheck.spec.modes import all_modes

IMAGE = (PromptRun("text", 1), PromptRun("image", grid=(1, 4, 4)), PromptRun("text", 1))
"""Six tokens: t 0 1 1 1 1 3, h 0 1 1 2 2 3, w 0 1 2 1 2 3; delta -2."""
ROWS = ((0, 1, 1, 1, 1, 3), (0, 1, 1, 2, 2, 3), (0, 1, 2, 1, 2, 3))


def checked(*stream: Event, family: str = "qwen2_vl") -> Checked:
    return check_lines([events.line(event) for event in (TraceHeader(events.VERSION, family), *stream)])


def keys(*stream: Event) -> list[tuple[str, str, str]]:
    return [failure.key for failure in checked(*stream).failures if not failure.follows]


def prefill(req: str, start: int = 0, stop: int = 6, answer: int = 50, **changed: object) -> Forward:
    event = Forward(
        mode="extend",
        reqs=(req,),
        tokens=(stop - start,),
        positions=tuple(range(start, stop)),
        rows=tuple(row[start:stop] for row in ROWS),
        answers=((answer,),),
        seq_lens=(stop,),
        prefix_lens=(start,),
    )
    return msgspec.structs.replace(event, **changed)


def decode(req: str, index: int, delta: int = -2, answer: int = 51, **changed: object) -> Forward:
    event = Forward(
        mode="decode",
        reqs=(req,),
        tokens=(1,),
        positions=(index,),
        rows=((index + delta,),) * 3,
        answers=((answer,),),
        seq_lens=(index + 1,),
    )
    return msgspec.structs.replace(event, **changed)


def arrive(req: str = "a", prompt: Sequence[PromptRun] = IMAGE, new: int = 3, **more: object) -> Arrived:
    return msgspec.structs.replace(Arrived(req, tuple(prompt), new), **more)


RIGHT = (arrive(), prefill("a"), Output("a", (50,)), decode("a", 6), Output("a", (51,)), decode("a", 7, answer=52))


def test_a_right_stream_passes_and_is_counted() -> None:
    done = checked(*RIGHT, Output("a", (52,), "length"), Rest())
    assert not done.failures
    assert done.judge.forwards == 3
    assert done.judge.modes == {"extend": 1, "decode": 2}
    assert done.judge.live == 0


def test_chunks_and_a_prefix_hit_pass() -> None:
    second = (arrive("b"), prefill("b", 4, 6), Output("b", (50,), "length"))
    assert not keys(arrive(), prefill("a", 0, 4), prefill("a", 4, 6), Output("a", (50,), "length"), *second, Rest())


@pytest.mark.parametrize(
    ("key", "stream"),
    [
        (("table.index", "decode", "off by one"), (arrive(), prefill("a"), decode("a", 6, positions=(7,)))),
        (("table.past_table", "decode", "delta missing"), (arrive(), prefill("a"), decode("a", 6, rows=((6,),) * 3))),
        (("table.inside_table", "extend", "one row repeated"), (arrive(), prefill("a", rows=(ROWS[0],) * 3))),
        (("table.width", "extend", "too few columns"), (arrive(), prefill("a", rows=tuple(r[:5] for r in ROWS)))),
        (("table.present", "extend", "table missing"), (arrive(), prefill("a", rows=None))),
        (("table.dtype", "extend", "dtype int32"), (arrive(), prefill("a", dtypes=("int64", "int32")))),
        (("schedule.counts", "decode", "length too large"), (arrive(), prefill("a"), decode("a", 6, seq_lens=(8,)))),
        (("schedule.window", "extend", "skips tokens"), (arrive(), prefill("a", 0, 2), prefill("a", 4, 6))),
        (("schedule.window", "extend", "computes tokens twice"), (arrive(), prefill("a", 0, 4), prefill("a", 2, 6))),
        (("schedule.newest", "decode", "prompt not computed"), (arrive(), prefill("a", 0, 4), decode("a", 5))),
        (("schedule.members", "extend", "never arrived"), (arrive(), prefill("b"))),
        (("schedule.reply", "scheduler", "wrong token"), (arrive(), prefill("a"), Output("a", (9,)))),
        (("schedule.reply", "scheduler", "token of nowhere"), (arrive(), prefill("a"), Output("a", (50, 51)))),
        (
            ("schedule.reply", "scheduler", "too many tokens"),
            (arrive(new=1), prefill("a"), decode("a", 6), Output("a", (50, 51))),
        ),
        (("schedule.at_rest", "scheduler", "request never ended"), (arrive(), prefill("a"), Rest())),
        (("schedule.at_rest", "scheduler", "request still held"), (Rest(retained=("a",)),)),
        (("schedule.at_rest", "scheduler", "memory leak"), (Rest(leak="12 tokens of 4000 are not free"),)),
        (
            ("schedule.survives", "scheduler", "raises KeyError in step"),
            (Died("KeyError", "'a'", "sglang/srt/managers/scheduler.py:1 step"),),
        ),
    ],
)
def test_each_rule_is_broken_once(key: tuple[str, str, str], stream: tuple[Event, ...]) -> None:
    assert key in keys(*stream)


@pytest.mark.parametrize("start", [-1, -3, -100, -(2**40)])
def test_a_window_that_begins_before_the_history_is_a_failure(start: int) -> None:
    wrong = keys(arrive(), prefill("a", prefix_lens=(start,)))
    assert [key for key in wrong if key[0] == "schedule.window"], wrong


def test_an_ended_request_may_ride_along_once_and_no_longer() -> None:
    end = (*RIGHT, Output("a", (52,), "length"))
    other: list[Event] = [arrive("b", (PromptRun("text", 2),)), *(_text("b", n) for n in range(5))]
    assert not keys(*end, decode("a", 8), *other[:2])
    late: list[Event] = [*end, other[0], other[1], other[2], other[3], decode("a", 8)]
    assert ("schedule.members", "decode", "never arrived") in keys(*late)


def _text(req: str, step: int) -> Forward:
    if step == 0:
        return prefill(req, 0, 2, rows=((0, 1),) * 3, answer=60)
    return decode(req, 1 + step, 0, 60 + step)


def test_rows_follow_the_batches_own_order() -> None:
    both = (arrive("a"), arrive("b", (PromptRun("text", 2),)), prefill("a"), _text("b", 0))
    pair = Forward(
        mode="decode", reqs=("b", "a"), tokens=(1, 1), positions=(2, 6), rows=((2, 4),) * 3, answers=((61,), (51,))
    )
    assert not keys(*both, pair)
    swapped = msgspec.structs.replace(pair, reqs=("a", "b"))
    assert keys(*both, swapped)


def test_a_retracted_request_is_computed_again_with_its_outputs() -> None:
    columns = tuple((*row, 4, 5) for row in ROWS)
    again = prefill("a", 0, 8, 52, rows=columns, positions=tuple(range(8)))
    assert not keys(*RIGHT[:4], Output("a", (51,)), Retracted("a"), again, decode("a", 8, answer=53))
    wrong = msgspec.structs.replace(again, rows=tuple((*row, 3, 4) for row in ROWS))
    assert keys(*RIGHT[:4], Output("a", (51,)), Retracted("a"), wrong) == [("table.past_table", "extend", "off by one")]


def test_an_answer_that_a_retraction_threw_away_is_answered_again() -> None:
    columns = tuple((*row, 4) for row in ROWS)
    shorter = prefill("a", 0, 7, 51, rows=columns, positions=tuple(range(7)))
    stream = (
        arrive(),
        prefill("a"),
        Output("a", (50,)),
        decode("a", 6),
        Retracted("a"),
        shorter,
        decode("a", 7, answer=52),
    )
    assert not keys(*stream)


def test_a_verify_commits_what_was_answered() -> None:
    verify = Forward(
        mode="target_verify",
        reqs=("a",),
        tokens=(3,),
        positions=(6, 7, 8),
        rows=((4, 5, 6),) * 3,
        answers=((51, 52),),
        parents=((0, 1),),
        seq_lens=(6,),
    )
    extend = Forward(
        mode="draft_extend_v2", reqs=("a",), tokens=(3,), positions=(6, 7, 8), rows=((4, 5, 6),) * 3, draft=True
    )
    draft = Forward(mode="draft_decode", reqs=("a",), tokens=(1,), positions=(8,), rows=((6,),) * 3, draft=True)
    start = (arrive(new=9), prefill("a"), verify)
    assert not keys(*start, extend, draft)
    late = msgspec.structs.replace(draft, positions=(9,), rows=((7,),) * 3)
    assert ("table.index", "draft_decode", "off by one") in keys(*start, extend, late)
    rivals = msgspec.structs.replace(verify, parents=((0, 0),))
    assert ("table.index", "target_verify", "other values") in keys(arrive(new=9), prefill("a"), rivals)


def test_turns_continue_their_parents_history() -> None:
    turn = arrive("b", (PromptRun("text", 1),), session="s", parent="a")
    first = (Opened("s"), arrive(session="s", new=1), prefill("a"), Output("a", (50,), "length"))
    second = prefill("b", 6, 8, rows=((4, 5),) * 3, positions=(6, 7))
    assert not keys(*first, turn, second)
    lost = msgspec.structs.replace(second, rows=((6, 7),) * 3)
    assert keys(*first, turn, lost) == [("table.past_table", "extend", "delta missing")]


@pytest.mark.parametrize("end", ["length", "abort"])
def test_a_turn_on_an_unfinished_or_unknown_turn_is_refused(end: str) -> None:
    told = Output("b", (), end, "the session says no" if end == "abort" else "")
    running = (Opened("s"), arrive(session="s"), prefill("a"))
    turn = arrive("b", (PromptRun("text", 1),), session="s", parent="a")
    wanted = [] if end == "abort" else [("session.refused", "session", "accepted")]
    assert keys(*running, turn, told) == wanted


@pytest.mark.parametrize("end", ["length", "abort"])
def test_after_an_abort_a_stream_may_take_the_next_turn_or_not(end: str) -> None:
    """The client cannot know whether the engine has ended the aborted one already."""
    first = (Opened("s", True), arrive(session="s"), events.Aborted("a"))
    told = Output("b", (), end, "the session says no" if end == "abort" else "")
    assert not keys(*first, arrive("b", (PromptRun("text", 1),), session="s"), told)


WORD = (PromptRun("text", 1),)
GIVEN_UP = (
    *(Opened("s"), arrive(session="s"), prefill("a"), Output("a", (50,)), events.Aborted("a")),
    *(decode("a", 6), Output("a", (51,), "abort", "Aborted")),
    arrive("b", WORD, 1, session="s", parent="a"),
)
TAKEN = Output("b", (50,), "length")
REFUSED = Output("b", (50,), "abort", "the session says no")
DUMMY = prefill("b", 0, 1)


@pytest.mark.parametrize(
    ("columns", "wrong"),
    [
        ((5, 6), []),
        ((7, 8), [("table.past_table", "extend", "media given up")]),
        ((8, 9), [("table.past_table", "extend", "shifted by a constant")]),
    ],
)
def test_a_turn_on_one_that_was_given_up_has_its_whole_history(columns: tuple[int, int], wrong: list[object]) -> None:
    """Its prompt with the picture, the two answers that its client got, its own token."""
    window = prefill("b", 7, 9, rows=(columns,) * 3)
    assert keys(*GIVEN_UP, window, TAKEN, Rest()) == wrong
    died = ("schedule.survives", "scheduler", "raises Error")
    assert keys(*GIVEN_UP, window, Died("Error", "no")) == [*wrong, died]


def test_or_it_is_refused() -> None:
    assert not keys(*GIVEN_UP, DUMMY, REFUSED, Rest())
    assert not keys(*GIVEN_UP, DUMMY, events.Aborted("b"), Output("b", (50,), "abort", "Aborted"), Rest())
    child = arrive("c", WORD, 1, session="s", parent="b")
    taken = [("session.refused", "session", "accepted")]
    assert keys(*GIVEN_UP, DUMMY, REFUSED, child, Output("c", (50,), "length")) == taken


def test_a_first_turn_of_one_token_may_not_be_refused() -> None:
    """The forward of a refused turn's dummy token looks like its own."""
    turn = (Opened("s"), arrive("a", WORD, session="s"), prefill("a", 0, 1))
    refused = Output("a", (50,), "abort", "the session says no")
    assert keys(*turn, refused) == [("session.refused", "session", "refused")]
    assert not keys(*turn, Output("a", (50,), "length"))


REPLACED = (
    *(Opened("s"), arrive(session="s", new=4), prefill("a"), Output("a", (50,))),
    arrive("b", WORD, 1, session="s", parent="a", replace=True),
)


WENT_ON = ("schedule.members", "scheduler", "was replaced")


@pytest.mark.parametrize(("told", "wrong"), [(TAKEN, [WENT_ON]), (REFUSED, [])])
def test_a_running_turn_ends_when_another_replaces_it(told: Output, wrong: list[object]) -> None:
    window = prefill("b", 6, 8, rows=((4, 5),) * 3) if wrong else DUMMY
    ends = (decode("a", 6), Output("a", (51,), "abort", "Aborted"))
    further = (decode("a", 6), decode("a", 7, answer=52), decode("a", 8, answer=53))
    goes_on = (*further, Output("a", (51, 52, 53), "length"))
    if wrong:
        assert not keys(*REPLACED, window, *ends, told, Rest())
    assert keys(*REPLACED, window, *goes_on, told, Rest()) == wrong


def test_what_a_replaced_turn_keeps_is_not_known_where_its_client_is_told_at_the_end() -> None:
    running = (Opened("s"), arrive(session="s", new=4), prefill("a"), decode("a", 6), decode("a", 7))
    anything = prefill("b", 6, 9, rows=((9, 9, 9),) * 3)
    assert not keys(*running, arrive("b", WORD, 1, session="s", parent="a", replace=True), anything, TAKEN)


def test_a_session_that_is_closed_takes_no_turn() -> None:
    late = arrive("b", session="s")
    assert not keys(Opened("s"), Closed("s"), late, Output("b", (), "abort", "session s does not exist"))


def test_memory_is_bounded_by_live_requests() -> None:
    most = 0
    judge = Judge()

    def stream() -> Iterator[Event]:
        yield TraceHeader(events.VERSION, "qwen2_vl")
        for n in range(300):
            name = f"r{n}"
            yield from (arrive(name, new=1), prefill(name), Output(name, (50,), "length"))

    for event in stream():
        assert not list(judge.feed(event))
        most = max(most, judge.live)
    assert judge.forwards == 300
    assert most < 10


def test_a_torn_last_line_is_normal_and_any_other_is_named(tmp_path: Path) -> None:
    whole = b"".join(events.line(event) for event in (TraceHeader(events.VERSION, "qwen2_vl"), *RIGHT))
    file = tmp_path / "trace.ndjson"
    file.write_bytes(whole[:-20])
    assert check_files((file,)).torn
    lines = whole.splitlines(keepends=True)
    file.write_bytes(b"".join([*lines[:2], b'{"type": "forward", "mode\n', *lines[2:]]))
    with pytest.raises(UsageError, match=r"trace\.ndjson:3"):
        check_files((file,))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "no header"),
        (b'{"type":"rest"}\n', "no header"),
        (b'{"type":"header","version":99,"family":"qwen2_vl"}\n', "version 99"),
        (b'{"type":"header","version":1,"family":"nothing"}\n', "nothing"),
    ],
)
def test_what_is_no_trace_gets_one_line(tmp_path: Path, content: bytes, says: str) -> None:
    file = tmp_path / "t.ndjson"
    file.write_bytes(content)
    with pytest.raises(UsageError, match=says):
        check_files((file,))


def test_every_mode_that_the_trace_names_is_declared() -> None:
    assert {"extend", "decode", "mixed", "target_verify", "draft_extend_v2", "draft_decode"} <= set(all_modes())


def test_failures_of_one_kind_are_counted_together() -> None:
    longer = [decode("a", index, answer=50 + index, seq_lens=(index + 2,)) for index in (6, 7)]
    found = checked(arrive(), prefill("a"), *longer)
    assert found.counts == {("schedule.counts", "decode", "length too large"): 2} and len(found.failures) == 1


def test_nothing_of_a_retracted_request_is_computed() -> None:
    histories = Histories("qwen2_vl")
    live = histories.arrive(arrive())
    assert live is not None
    live.computed, live.running, live.free = 6, True, False
    histories.retract("a")
    assert (live.computed, live.running, live.free) == (0, False, True)


def test_a_turn_of_text_goes_on_behind_the_reply() -> None:
    histories = Histories("qwen2_vl")
    histories.open(Opened("s"))
    first = histories.arrive(arrive(session="s"))
    assert first is not None
    first.outputs, first.delivered = [50, 51], 2
    histories.finish(first, "length")
    turn = histories.arrive(arrive("b", prompt=(PromptRun("text", 3),), session="s", parent="a"))
    assert turn is not None
    assert (turn.width, turn.place.tabulated, turn.place.delta) == (11, 6, -2)


def test_of_a_transferred_request_all_but_the_newest_token_is_computed() -> None:
    histories = Histories("qwen2_vl")
    live = histories.arrive(arrive())
    assert live is not None
    histories.transfer("a", (50, 51))
    assert (live.computed, live.running, live.free, live.outputs) == (7, True, False, [50, 51])

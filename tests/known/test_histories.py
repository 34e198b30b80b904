"""What a scheduler with the known bugs holds, event by event."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from ropecheck.adapters.events import (
    Arrived,
    Closed,
    Control,
    Died,
    Event,
    Forward,
    Opened,
    Output,
    PromptRun,
    Retracted,
    Transfer,
)
from ropecheck.conformance.known.inputs import ENDED, NOTHING, Inputs
from ropecheck.conformance.known.model import (
    ABORTED,
    DRAFTED,
    FROM_T,
    MEMBERS,
    MERGED,
    OFFSET,
    REPLACE,
    SHARES,
    STILL,
)
from ropecheck.conformance.known.scheduler import (
    CLOSED,
    EMBEDS,
    ENDS,
    FAILED,
    IN_FLIGHT,
    PAUSED,
    PREEMPTED,
    REFUSED,
    STAYS,
    UNKEPT,
    WAITED,
    ZERO,
    KnownHistories,
    Media,
    columns_of,
    grown,
)
from ropecheck.conformance.known.stream import in_order, named
from ropecheck.conformance.trace.live import LiveRequest
from ropecheck.reference.timeline import IntArray
from ropecheck.spec.history import text
from ropecheck.spec.modes.declaration import Tokens
from tests.known.test_entries import FAILURE
from tests.known.test_stream import ROWS, arrive, decode, extend

WORDS = (PromptRun("text", 2),)
PICTURE = (PromptRun("image", grid=(1, 4, 4)),)


def histories(*bugs: str, **server: object) -> KnownHistories:
    return KnownHistories("qwen2_vl", bugs, server)


def taken(known: KnownHistories, event: Arrived) -> LiveRequest:
    live = known.arrive(event)
    assert live is not None
    return live


def session(*bugs: str, streaming: bool = False, end: str = "length", mode: str = "") -> KnownHistories:
    """A session whose first turn, with a picture, has ended; its client has two answers."""
    known = histories(*bugs, disaggregation_mode=mode)
    known.open(Opened("s", streaming=streaming))
    live = taken(known, arrive(session="s"))
    live.outputs, live.delivered, live.computed, live.running = [7, 7], 2, 6, True
    known.finish(live, end)
    return known


def turn(req: str = "b", prompt: tuple[PromptRun, ...] = WORDS, **more: object) -> Arrived:
    return arrive(req, prompt, session="s", **{"parent": "a", **more})


def widths(known: KnownHistories, req: str) -> list[int]:
    return [one.width for one in known.held(req).options]


# ---------------------------------------------------------------- what a request holds


def test_a_request_holds_its_own_media() -> None:
    known = histories()
    assert (known.told, known.unkept, known.kept_rows, known.pausing) == (0, 0, 0, False)
    taken(known, arrive())
    (one,) = known.held("a").options
    assert one.table.tolist() == [list(row) for row in ROWS] and (one.delta, one.items) == (-2, ((1, 5),))
    taken(known, arrive("b", WORDS))
    assert known.held("b").options == [NOTHING] and known.held("nobody").options == [NOTHING]
    taken(known, arrive("c", (*PICTURE, *WORDS, *PICTURE)))
    assert known.held("c").options[0].items == ((0, 4), (6, 10))


def test_a_turn_shares_its_parents_or_has_its_own_behind_them() -> None:
    known = session()
    taken(known, turn())
    assert known.held("b") is known.held("a")
    taken(known, turn("c", (*WORDS, *PICTURE)))
    (one,) = known.held("c").options
    assert one is not known.held("a").options[0] and one.items == ((1, 5), (9, 13)) and one.width == 13
    assert one.table[:, 9].tolist() == [7] * 3  # text 0, the picture 1 .. 2, two answers and two words 3 .. 6
    assert widths(known, "a") == [5]


def test_media_that_join_are_whoever_holds_the_parents() -> None:
    known = session(MERGED)
    taken(known, turn(prompt=PICTURE))
    assert known.held("b") is known.held("a") and widths(known, "a") == [9] and known.held("b").causes == {MERGED}
    assert known.held("a").options[0].more == (-2,) and known.held("a").options[0].items == ((1, 5), (7, 11))
    alone = histories(MERGED)
    taken(alone, arrive())
    assert widths(alone, "a") == [5] and alone.held("a").causes == set()
    silent = session(MERGED)
    silent.media["a"] = Media([NOTHING])
    taken(silent, turn(prompt=PICTURE))
    assert widths(silent, "b") == [4] and widths(silent, "a") == [0]


def test_a_cut() -> None:
    for bugs, offset, found in (((), 3, [3]), ((), 1, [0]), ((OFFSET,), 3, [5]), ((OFFSET,), 1, [5])):
        known = session(*bugs)
        taken(known, turn(offset=offset))
        assert widths(known, "b") == found and widths(known, "a") == [5]
        assert known.causes.get("b") == {OFFSET}
    zero = session(ZERO)
    taken(zero, turn(offset=0))
    assert zero.held("b") is zero.held("a") and zero.causes["b"] == {ZERO}
    right = session()
    taken(right, turn(offset=0))
    assert widths(right, "b") == [0]
    plain = session(OFFSET, ZERO)
    taken(plain, turn())
    assert plain.causes.get("b", set()) == set()


def test_what_a_turn_on_one_that_was_given_up_holds() -> None:
    known = session(ABORTED, end="abort")
    assert known.held("a").options == [NOTHING] and known.held("a").causes == {ABORTED}
    taken(known, turn())
    assert known.held("b").causes == {ABORTED}
    kept = session(end="abort")
    assert widths(kept, "a") == [5] and kept.held("a").causes == set()
    early = histories(ABORTED)
    early.open(Opened("s"))
    first = taken(early, arrive(session="s"))
    first.given_up = True
    first.delivered, first.outputs, first.newest = 1, [7], 1
    taken(early, turn())
    assert widths(early, "b") == [5, 0] and early.held("b").causes == {ABORTED}  # it may have come before


def test_a_close_takes_media_of_its_turns_that_are_not_streamed() -> None:
    for bugs, streaming, found in (((CLOSED,), False, [0]), ((), False, [5]), ((CLOSED,), True, [5])):
        known = session(*bugs, streaming=streaming)
        if not streaming:
            taken(known, turn(prompt=PICTURE))
            known.close("s")
            assert widths(known, "b") == (found if bugs else [11])
        known.close("s")
        assert widths(known, "a") == found and "s" not in known.sessions
        assert known.held("a").causes == ({CLOSED} if found == [0] else set())
    known.close("nobody")


def test_what_a_message_lets_end_the_loop() -> None:
    known = session()
    taken(known, turn())
    assert known.due == set() and known.beside == set()
    taken(known, arrive("c", WORDS, session="s", replace=True))
    assert known.due == {REPLACE}
    known.see(extend(0, ROWS), 7)
    assert known.due == set() and known.at == 7
    for event, due in (
        (arrive("d", WORDS, embeds=True), set[str]()),
        (turn("e", embeds=True, parent=""), {EMBEDS}),
        (turn("f", PICTURE, parent=""), set[str]()),
        (turn("g", PICTURE, parent="nobody"), {REFUSED}),
        (turn("h", parent="nobody"), set[str]()),
        (turn("i", (PromptRun("image", grid=(1, 2, 2)),), parent="nobody"), set[str]()),  # of one token
        (turn("j", parent="nobody", replace=True), set[str]()),
        (arrive("k", PICTURE, session="closed"), set[str]()),
    ):
        known.due.clear()
        known.arrive(event)
        assert known.due == due, event
    streaming = session(streaming=True)
    streaming.arrive(turn(parent="", replace=True))
    assert streaming.due == set() and streaming.beside == {"s"}
    empty = histories()
    empty.open(Opened("s"))
    taken(empty, arrive("a", WORDS, session="s", replace=True))
    assert empty.due == set()  # it has no turn


# ---------------------------------------------------------------- retractions and ends


def test_a_retraction_lets_a_table_grow() -> None:
    known = histories(FROM_T)
    live = taken(known, arrive())
    known.retract("a")
    assert known.held("a").growing == {} and known.held("a").causes == set()  # it has no answers
    live.outputs, live.delivered = [7, 7, 7], 2
    known.retract("a")
    assert known.held("a").growing == {"a": range(2, 4)} and known.held("a").causes == {FROM_T}
    right = histories()
    taken(right, arrive()).outputs = [7]
    right.retract("a")
    assert right.held("a").growing == {}
    right.retract("nobody")


@pytest.mark.parametrize(("pausing", "bug"), [(True, PAUSED), (False, PREEMPTED)])
def test_a_search_that_is_sent_back_keeps_its_rows(pausing: bool, bug: str) -> None:
    known = histories()
    if pausing:
        known.see(Control("pause retract"), 1)
    search = taken(known, arrive(beams=3))
    known.retract("a")
    assert known.sent_back == {} and known.kept_rows == 0  # it has no rows yet
    search.running = True
    known.retract("a")
    assert known.sent_back == {"a": bug} and known.kept_rows == 2
    taken(known, arrive("b")).running = True
    taken(known, arrive("c", beams=2)).running = True
    known.retract("b")
    known.retract("c")
    assert set(known.sent_back) == {"a", "c"} and known.kept_rows == 3
    known.see(Control("continue"), 2)
    assert known.pausing is pausing


def streaming(*bugs: str) -> tuple[KnownHistories, LiveRequest]:
    """A streaming session whose second turn runs, with an answer."""
    known = session(*bugs, streaming=True)
    live = taken(known, turn(parent=""))
    live.outputs, live.delivered, live.running, live.computed = [7, 8], 1, True, 9
    return known, live


def test_a_turn_that_is_retracted_counts_as_ended() -> None:
    known, live = streaming(ENDS)
    known.retract("b")
    assert known.retracted == {"b": 1} and known.causes["b"] == {ENDS}
    session_, saved = known.sessions["s"], known.sessions["s"].turns["b"]
    assert (session_.in_flight, session_.last, saved.finished, saved.outputs) == ("", "b", "length", 1)
    third = taken(known, turn("c", parent=""))
    assert third.refuse is False and known.shared == {"s": ("b", "c")} and live.width == third.width
    assert known.causes["c"] == known.causes["b"] == {ENDS}
    known.retract("b")
    assert known.retracted == {"b": 2} and session_.in_flight == "c"
    for bugs in ((), (FROM_T,)):
        other, _ = streaming(*bugs)
        other.retract("b")
        assert other.retracted == {} and other.sessions["s"].in_flight == "b"


def test_a_turn_that_ended_twice_leaves_its_session() -> None:
    known, live = streaming(ENDS)
    known.retract("b")
    taken(known, turn("c", parent=""))
    known.finish(live, "stop")
    assert known.sessions["s"].turns["b"].finished == "length" and known.held("b").causes == {ENDS}
    assert known.sessions["s"].in_flight == "" and known.ended["b"] == live.total
    twice, live = streaming(ENDS)
    twice.retract("b")
    taken(twice, turn("c", parent=""))
    twice.retract("b")
    twice.finish(live, "stop")
    assert twice.sessions["s"].in_flight == "c"


def test_tokens_of_what_has_ended() -> None:
    known = session()
    assert known.ended == {"a": 7}
    search = taken(known, arrive("b", WORDS, beams=3))
    search.outputs = [7]
    known.finish(search, "length")
    assert known.ended == {"a": 7, "b": 9}


def test_a_turn_that_is_too_long() -> None:
    for bugs, stays in (((STAYS,), True), ((), False)):
        known = session(*bugs)
        live = taken(known, turn(prompt=PICTURE))
        known.told = 3
        known.too_long(live)
        saved = known.sessions["s"].turns.get("b")
        assert (saved is not None) is stays and live.finished == "abort"
        if saved is not None:
            assert (saved.history, saved.width, saved.tabulated) == ((text(1),), 1, 1)
            assert (saved.finished, saved.outputs) == ("abort", 3)
            assert known.held("b").causes == {STAYS} and known.causes["b"] == {STAYS}
            known.arrive(turn("c", parent="b"))
            assert "c" not in known.media
    alone = histories(STAYS)
    known_alone = taken(alone, arrive())
    alone.too_long(known_alone)
    assert widths(alone, "a") == [5]


@pytest.mark.parametrize(
    ("bugs", "mode", "came", "ran", "stays"),
    [
        ((WAITED,), "", False, False, WAITED),
        ((WAITED,), "", False, True, ""),
        ((), "", False, False, ""),
        ((FAILED,), "decode", False, True, FAILED),
        ((FAILED,), "decode", True, True, ""),
        ((FAILED,), "prefill", False, True, ""),
        ((FAILED, WAITED), "decode", False, False, FAILED),
    ],
)
def test_a_turn_that_was_given_up_stays_in_flight(
    bugs: tuple[str, ...], mode: str, came: bool, ran: bool, stays: str
) -> None:
    known = session(*bugs, streaming=True, mode=mode)
    known.failed.clear()
    live = taken(known, turn(parent=""))
    live.computed = 3 if ran else 0
    if came:
        known.see(Transfer("b", (7,)), 1)
    known.finish(live, "abort")
    assert known.failed == ({"b": stays} if stays else {})
    assert known.sessions["s"].in_flight == ("b" if stays else "")
    after = known.arrive(turn("c", parent=""))
    assert after is not None and known.turned_away("c") is bool(stays)
    known.see(replace(extend(0, ROWS, "c")), 5)
    assert ((5, 0) in known.looked) is bool(stays)
    for message, at in ((IN_FLIGHT, 6), ("another", 7)):
        known.see(Output("c", finished="abort", message=message), at)
    assert ((6, None) in known.looked) and ((7, None) in known.looked) is not bool(stays)


@pytest.mark.parametrize("given_up", [False, True])
@pytest.mark.parametrize("bug", ["", REFUSED])
def test_a_refused_turn_takes_the_one_that_runs_out_of_flight(bug: str, given_up: bool) -> None:
    """Once; the next turn is accepted then, and has the running one's record."""
    known = session(bug, streaming=True)
    taken(known, arrive("b", session="s"))
    refused = taken(known, arrive("c", session="s"))
    assert refused.refuse and known.sessions["s"].in_flight == "b"
    known.abort("c") if given_up else known.finish(refused, "abort")
    assert known.sessions["s"].in_flight == ("" if bug else "b")
    following = taken(known, arrive("d", session="s"))
    assert bool(following.refuse) is not bool(bug)
    assert known.paired(REFUSED) == [("b", "d")] * bool(bug) and known.paired(ENDS) == []
    assert (REFUSED in known.causes.get("d", ())) is bool(bug)
    known.finish(refused, "abort")
    assert known.sessions["s"].in_flight == ("d" if bug else "b"), "a turn that has left its session ends nothing"


def test_a_refused_turn_of_another_session_or_beside_none_takes_nothing() -> None:
    known = session(REFUSED, streaming=True)
    known.open(Opened("t", streaming=True))
    refused = taken(known, arrive("c", session="s", offset=1))
    assert refused.refuse
    known.finish(refused, "abort")
    assert not known.loosened
    taken(known, arrive("b", session="s"))
    other = taken(known, arrive("d", session="t", offset=1))
    known.abort("")
    known.finish(other, "abort")
    assert known.sessions["s"].in_flight == "b" and known.paired(REFUSED) == []


def test_a_turn_that_ends_as_it_should_is_not_in_flight() -> None:
    known = session(WAITED, streaming=True)
    live = taken(known, turn(parent=""))
    known.finish(live, "stop")
    assert known.failed == {} and known.sessions["s"].in_flight == ""


# ---------------------------------------------------------------- events


def test_where_something_is_known() -> None:
    known = histories()
    taken(known, arrive())
    known.see(Output("a", (7,)), 3)
    assert known.looked == {(3, None)}
    known.see(Output("nobody", (7,)), 4)
    known.unsettled.add("a")
    known.see(Output("a", (7,)), 5)
    assert known.looked == {(3, None)}
    known.unsettled.clear()
    known.live["a"].refuse = True
    known.see(Output("a", (7,)), 6)
    assert known.looked == {(3, None)}
    known.see(Output("a", finished="abort"), 7)
    assert known.looked == {(3, None), (7, None)}


def test_how_many_of_the_answers_were_told() -> None:
    known = histories()
    taken(known, arrive())
    known.see(Output("a", (7,)), 1)
    assert known.told == 0  # nothing was answered
    known.see(replace(extend(0, ROWS), answers=((7, 8),)), 2)
    for told, count in (((7, 8), 2), ((7,), 0), ((), 0), ((7, 8), 2)):
        known.see(Output("a", told), 3)
        assert known.told == count
    known.see(Output("b", (7, 8)), 4)
    assert known.told == 0


def test_rows_that_hang_on_the_batch() -> None:
    known = histories()
    for req in "ab":
        taken(known, arrive(req))
    beams = replace(decode(5, 3), mode="beam_decode", reqs=("a", "b", "a"))
    known.see(beams, 1)
    assert known.tail == {"a"} and known.last == beams
    known.see(extend(0, ROWS, "b"), 2)
    assert known.tail == {"a"}  # a prefill has no rows of searches
    known.see(replace(decode(6, 4), draft=True), 3)
    assert known.last is not None and known.last.mode == "extend"
    known.see(decode(6, 4), 4)
    assert known.tail == set()


def test_a_record_from_elsewhere() -> None:
    known = session()
    live = taken(known, turn())
    known.see(Transfer("b", (7,)), 1)
    known.see(Transfer("b", (7,)), 2)
    assert known.recorded == {"s": 2} and known.batched["b"] is known.held("b")
    taken(known, arrive("c"))
    known.see(Transfer("c", (7,)), 3)
    known.see(Transfer("nobody", (7,)), 4)
    assert known.recorded == {"s": 2} and live.session == "s"


def test_a_search_forgets_a_chunk() -> None:
    def after(bugs: tuple[str, ...] = (UNKEPT,), beams: int = 2, running: bool = False, window: int = 3) -> LiveRequest:
        known = histories(*bugs)
        live = taken(known, arrive(beams=beams))
        live.computed, live.window, live.running = window, (0, window), running
        known.see(replace(extend(0, ROWS), reqs=("a", "a", "nobody")), 1)
        assert known.unkept == window - live.computed
        assert known.causes.get("a") == ({UNKEPT} if live.computed != window else None)
        return live

    assert after().computed == 0
    assert after(bugs=()).computed == after(beams=1).computed == after(running=True).computed == 3
    assert after(window=0).computed == 0


def test_what_is_going() -> None:
    known = histories()
    for name, running, beams, finished in (
        ("a", True, 1, ""),
        ("b", True, 2, ""),
        ("c", False, 2, ""),
        ("d", True, 2, "x"),
    ):
        live = taken(known, arrive(name, beams=beams))
        live.running, live.finished = running, finished
    assert [live.name for live in known.going] == ["a", "b", "c"] and known.running == 2
    assert [live.name for live in known.searches()] == ["b"]


def test_whether_a_session_has_a_turn_that_waits() -> None:
    known = session()
    live = taken(known, turn())
    assert known.second_turn("s", False) and not known.second_turn("s", True) and not known.second_turn("t", False)
    live.refuse = True
    assert known.second_turn("s", True) and not known.second_turn("s", False)
    live.computed = 1
    assert not known.second_turn("s", True)


# ---------------------------------------------------------------- forms


def inputs(width: int) -> Inputs:
    return Inputs(np.arange(width, dtype=np.int64) + np.zeros((3, 1), dtype=np.int64), 0, ())


def forms(media: Media, considered: str = "", most: int = 20) -> list[int]:
    return [one.width for one in grown(media, considered, most, ())]


def test_forms_that_a_table_may_have() -> None:
    """Whenever a request is considered its table gains as many columns as it has answers."""
    assert forms(Media([inputs(3), inputs(5)])) == [3, 5]
    media = Media([inputs(3)], growing={"a": range(2, 3)})
    assert forms(media, most=8) == [3, 5, 7, 9]  # one that is longer than anybody reads, and no more
    assert forms(media, "a", most=8) == [5, 7, 9] and media.growing == {}
    either = Media([inputs(3)], growing={"a": range(0, 2)})  # it may have none
    assert forms(either, "a", most=4) == [3, 4, 5]
    several = Media([inputs(3)], growing={"a": range(1, 3)})
    assert sorted(forms(several, most=4)) == [3, 4, 5] and set(several.growing) == {"a"}
    assert forms(Media([inputs(1)], growing={"a": range(1, 2)}), most=2) == [1, 2, 3]
    nothing = Media([NOTHING], growing={"a": range(2, 3)})
    assert grown(nothing, "a", 20, ()) == [NOTHING]
    two = Media([inputs(3)], growing={"a": range(2, 3), "b": range(3, 4)})
    assert sorted(forms(two, "a", most=6)) == [5, 7, 8] and set(two.growing) == {"b"}
    assert grown(Media([inputs(3)], growing={"a": range(1, 2)}), "a", 3, {FROM_T})[0].table[:, 3].tolist() == [3] * 3


def test_a_table_as_it_came() -> None:
    found = columns_of(extend(0, ROWS))
    assert found is not None and found.tolist() == [list(row) for row in ROWS]
    assert columns_of(replace(extend(0, ROWS), rows=None)) is None


# ---------------------------------------------------------------- rows of forwards


def read(
    known: KnownHistories, event: Forward, row: int, tokens: Tokens, columns: list[tuple[int, ...]], at: int = 9
) -> list[list[int]]:
    """The columns that the row must read, token by token."""
    known.at = at
    place = known.read(known.live[event.reqs[row]], event, row, tokens, columns)
    assert place.tabulated == len(place.rows[0]) and (place.has_media or place.delta == 0)
    return [list(place.column(index)) for index in tokens]


def both(*bugs: str) -> KnownHistories:
    """A picture's request and one of words, both decoding."""
    known = histories(*bugs)
    for live in (taken(known, arrive()), taken(known, arrive("b", (PromptRun("text", 5),)))):
        live.outputs, live.running, live.computed = [7, 7], True, 6
    return known


TWO = replace(decode(6, 4), reqs=("a", "b"), tokens=(1, 1), positions=(6, 6), rows=((4, 6),) * 3, seq_lens=(7, 7))


def test_a_row_reads_what_its_request_holds() -> None:
    known = both()
    assert read(known, TWO, 0, Tokens(6, 1), [(4,)] * 3) == [[4, 4, 4]]
    assert read(known, TWO, 1, Tokens(6, 1), [(6,)] * 3) == [[6, 6, 6]]
    assert known.looked == {(9, None), (9, 0), (9, 1)} and known.causes.get("a") == set()


def test_members_have_no_delta() -> None:
    beams = replace(TWO, mode="beam_decode", reqs=("a", "b", "a"), tokens=(1, 1, 1), positions=(6,) * 3)
    for bugs, column in (((MEMBERS,), [6, 6, 6]), ((), [4, 4, 4])):
        known = both(*bugs)
        assert read(known, beams, 0, Tokens(6, 1), [(4,)] * 3) == [[4, 4, 4]]
        assert read(known, beams, 2, Tokens(6, 1), [(4,)] * 3) == [column]
        assert known.causes["a"] == set(bugs)


def test_draft_rows_that_stand_still() -> None:
    later = replace(TWO, mode="draft_decode", draft=True, step=2)
    for bugs, column in (((STILL,), [4, 4, 4]), ((), [6, 6, 6])):
        known = both(*bugs)
        assert read(known, later, 0, Tokens(8, 1), [(6,)] * 3) == [column]
        assert known.causes["a"] == set(bugs)
        first = read(known, replace(later, step=0), 0, Tokens(6, 1), [(4,)] * 3, at=10)
        assert first == [[4, 4, 4]]


def test_a_draft_that_reads_the_prompt() -> None:
    """Token 3 of the picture: by delta it stands at 1."""
    frozen = replace(TWO, mode="frozen_kv_draft", draft=True)
    for bugs, column in (((DRAFTED,), [1, 1, 1]), ((), [1, 2, 1])):
        known = both(*bugs)
        assert read(known, frozen, 0, Tokens(3, 1), [(1,)] * 3) == [column]
        assert known.causes["a"] == set(bugs)
        first = read(both(*bugs), frozen, 0, Tokens(0, 1), [(-2,)] * 3)
        assert first == [[-2 if bugs else 0] * 3]
        other = both(*bugs)
        read(other, frozen, 0, Tokens(5, 1), [(3,)] * 3)
        assert other.causes["a"] == set()  # behind the table
    verify = replace(TWO, mode="target_verify", parents=((), ()))
    assert read(both(), verify, 0, Tokens(3, 1), [(1,)] * 3) == [[1, 1, 1]]


def test_packed_columns_in_equal_shares() -> None:
    """Three nodes and one: the last of the three gets the other request's delta, 0."""
    packed = replace(
        TWO, mode="ragged_verify", tokens=(3, 1), positions=(6, 7, 8, 6), rows=((4, 5, 8, 6),) * 3, parents=((0, 1), ())
    )
    for bugs, columns in (((SHARES,), [[4] * 3, [5] * 3, [8] * 3]), ((), [[4] * 3, [5] * 3, [6] * 3])):
        known = both(*bugs)
        assert read(known, packed, 0, Tokens(6, 3), [(4, 5, 8)] * 3) == columns
        assert read(known, packed, 1, Tokens(6, 1), [(6,)] * 3) == [[6] * 3]
        assert known.causes["a"] == known.causes["b"] == set(bugs)


def test_forms_that_do_not_fit_what_was_read_are_left_out() -> None:
    known = both()
    known.media["a"] = Media([inputs(3), inputs(5), inputs(8)], {FROM_T})
    assert read(known, TWO, 0, Tokens(6, 1), [(6,)] * 3) == [[6, 6, 6]]
    assert widths(known, "a") == [3, 5, 8] and known.causes["a"] == {FROM_T}
    two = Media([Inputs(np.array(ROWS, dtype=np.int64), -2, ()), inputs(8)])
    known.media["a"] = known.batched["a"] = two
    read(known, TWO, 0, Tokens(6, 1), [(4,)] * 3, at=10)
    assert [one.width for one in two.options] == [5]
    read(known, TWO, 0, Tokens(6, 1), [(99,)] * 3, at=11)
    assert [one.width for one in two.options] == [5]  # none does: all stay


def test_a_request_reads_what_it_held_when_it_joined_the_batch() -> None:
    known = both()
    window = extend(0, ROWS)
    known.live["a"].running = False
    known.row(window, 0)
    joined = known.batched["a"]
    known.drop("a", CLOSED)
    assert known.row(TWO, 0) is joined and known.held("a") is not joined
    assert known.row(replace(window, draft=True), 0) is joined
    assert known.row(window, 0) is known.held("a")  # it joins anew
    mixed = replace(window, mode="mixed")
    known.live["a"].running = True
    known.media["a"] = Media([inputs(2)])
    assert known.row(mixed, 0) is not known.held("a")  # in a mixed batch it goes on
    assert known.row(replace(TWO, reqs=("nobody",)), 0).options == [NOTHING]


def test_a_form_ends_where_its_request_is_admitted() -> None:
    known = both()
    known.media["a"] = Media([inputs(5)], growing={"a": range(2, 3)})
    known.live["a"].running = False
    media = known.row(extend(0, ROWS), 0)
    assert media.growing == {} and media.options[0].width == 7
    longest = 2 * known.live["a"].total + 64
    assert longest < media.options[-1].width <= longest + 2


def odd(known: KnownHistories, event: Forward, seen: tuple[tuple[int, ...], ...]) -> list[list[int]] | None:
    known.rows = [known.row(event, n) for n in range(len(event.reqs))]
    table: IntArray | None = known.odd(event, np.array(seen, dtype=np.int64))
    return None if table is None else table.tolist()


def test_windows_that_end_with_the_table() -> None:
    """The picture's table has five columns; a window from token 3 of four tokens has two of them, beside a decode."""
    window = replace(
        extend(3, ((0,) * 4,) * 3), reqs=("a", "b"), tokens=(4, 2), positions=(3, 4, 5, 6, 5, 6), prefix_lens=(3, 5)
    )
    known = both(ENDED)
    short = [[1, 1, 5, 6], [2, 2, 5, 6], [1, 2, 5, 6]]
    assert odd(known, window, tuple(map(tuple, short))) == short
    assert known.causes["a"] == known.causes["b"] == {ENDED}
    unsure = both(ENDED)
    for name, two in (("a", [inputs(9), *unsure.held("a").options]), ("b", [NOTHING, inputs(3)])):
        unsure.media[name] = Media(two)
    assert odd(unsure, window, tuple(map(tuple, short))) == short
    assert (widths(unsure, "a"), widths(unsure, "b")) == ([5], [0])  # in these forms
    assert odd(both(ENDED), window, ((0,) * 6,) * 3) == short  # another table: what it should have been
    assert odd(both(), window, ((0,) * 6,) * 3) is None
    inside = replace(window, tokens=(2, 2), positions=(3, 4, 5, 6))
    assert odd(both(ENDED), inside, ((0,) * 4,) * 3) is None  # as many as it has tokens
    assert odd(both(ENDED), replace(window, positions=None), ((0,) * 6,) * 3) is None
    assert odd(both(ENDED), replace(window, mode="idle"), ((0,) * 6,) * 3) is None


def test_a_forward_that_did_not_fit() -> None:
    window = replace(extend(3, ((1, 1), (2, 2), (1, 2))), tokens=(4,), positions=(3, 4, 5, 6))
    known = both(ENDED)
    assert not known.unfit()
    known.fatal = window
    assert known.unfit()
    known.fatal = replace(window, rows=((1, 1), (2, 2), (1, 3)))
    assert not known.unfit()
    known.fatal = replace(window, rows=None)
    assert not known.unfit()
    known.fatal = extend(3, ((1, 1), (2, 2), (1, 2)))
    assert not known.unfit()


def test_a_forward_whose_columns_are_spread() -> None:
    """One column over four tokens; with two batches overlapped, zeros behind."""
    behind = replace(extend(5, ((0,) * 3,) * 3), tokens=(3,), positions=(5, 6, 7), prefix_lens=(5,))
    assert odd(both(ENDED), behind, ((5,) * 3,) * 3) == [[5, 5, 5]] * 3
    across = replace(behind, positions=(3, 4, 5), prefix_lens=(3,))
    known = histories(ENDED, enable_two_batch_overlap=True)
    taken(known, arrive())
    padded = [[1, 1, 0], [2, 2, 0], [1, 2, 0]]
    assert odd(known, across, tuple(map(tuple, padded))) == padded
    assert read(known, replace(across, rows=tuple(map(tuple, padded))), 0, Tokens(3, 3), [(0,) * 3] * 3) == [
        [1, 2, 1],
        [1, 2, 2],
        [0, 0, 0],
    ]
    place = known.read(known.live["a"], across, 0, Tokens(3, 3), [(0,) * 3] * 3)
    assert (place.tabulated, place.delta, place.has_media) == (6, 0, True)


def test_a_forward_that_should_have_raised() -> None:
    """Two deltas and a decode: no table is made."""
    known = both(MERGED)
    known.media["a"] = Media([Inputs(np.array(ROWS, dtype=np.int64), -2, (), (-3,))])
    assert odd(known, TWO, ((4, 6),) * 3) == [[-1, -1]] * 3


# ---------------------------------------------------------------- the order of a stream


def test_a_pauses_retractions_come_behind_it() -> None:
    pause, late, early = Control("pause retract"), arrive("late"), arrive("early")
    stream: list[Event] = [early, pause, late, Output("early", (7,)), Output("late"), Retracted("early"), Output("x")]
    assert [place for place, _ in in_order(stream)] == [0, 1, 3, 5, 2, 4, 6]
    assert [place for place, _ in in_order([*stream[:5], extend(0, ROWS), stream[5]])] == list(range(7))
    assert [one for _, one in in_order(stream[2:])] == stream[2:]  # no pause
    assert [place for place, _ in in_order([pause, Closed("s"), Retracted("a"), Died("e", "m"), pause])] == [
        0,
        2,
        1,
        3,
        4,
    ]
    assert [place for place, _ in in_order([pause, late, Output("early")])] == [0, 1, 2]  # nothing was retracted


def test_whose_failure_it_is() -> None:
    assert named(replace(FAILURE, message="request a1: token 3")) == "a1"
    assert named(replace(FAILURE, message="of request a1: token 3")) == "" == named(FAILURE)

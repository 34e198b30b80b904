"""What a client's history says: of requests, and of the turns of its sessions."""

from __future__ import annotations

from typing import Any

import pytest

from ropecheck.adapters.events import Arrived, Opened, PromptRun
from ropecheck.conformance.trace.live import Histories, LiveRequest, joined
from ropecheck.spec.history import image, text
from tests.trace.test_judge import IMAGE, WORD, arrive

WORDS = (PromptRun("text", 2),)
PICTURE = (text(1), image(1, 4, 4), text(1))


def session(streaming: bool = False) -> Histories:
    histories = Histories("qwen2_vl")
    histories.open(Opened("s", streaming))
    return histories


def turn(histories: Histories, name: str, prompt: tuple[PromptRun, ...] = WORDS, **how: Any) -> LiveRequest:
    live = histories.arrive(arrive(name, prompt, session="s", **how))
    assert live is not None
    return live


def ended(histories: Histories, name: str, reply: int = 2, end: str = "length", **how: Any) -> LiveRequest:
    """A turn that its client has the whole reply of."""
    live = turn(histories, name, **how)
    live.outputs, live.delivered = list(range(50, 50 + reply)), reply
    histories.finish(live, end)
    return live


def known(histories: Histories) -> set[str]:
    return set(histories.sessions["s"].turns)


def settled(histories: Histories, name: str, **how: Any) -> bool:
    """Whether the next turn's history is known."""
    found = histories.arrive(arrive(name, WORDS, session="s", **how))
    return found is not None and histories.judged(name)


def grove() -> Histories:
    """a; b and c on it; d on b, e on d; f on nothing."""
    histories = session()
    for name, parent in (("a", ""), ("b", "a"), ("c", "a"), ("d", "b"), ("e", "d"), ("f", "")):
        ended(histories, name, parent=parent)
    return histories


@pytest.mark.parametrize(
    ("parent", "left"), [("a", "af"), ("b", "abcf"), ("d", "abcdf"), ("e", "abcdef"), ("f", "abcdef"), ("", "")]
)
def test_a_replacing_turn_takes_its_parents_children_out(parent: str, left: str) -> None:
    histories = grove()
    turn(histories, "x", parent=parent, replace=True)
    assert known(histories) == {*left, "x"}
    assert histories.sessions["s"].turns["x"].parent == parent


def test_a_turn_that_goes_on_takes_nobody_out() -> None:
    histories = grove()
    assert turn(histories, "x", parent="a").parent == "a"
    assert known(histories) == {*"abcdefx"}


@pytest.mark.parametrize(
    ("how", "history", "tabulated"),
    [
        ({}, (*PICTURE, text(2), text(2)), 6),
        ({"drop_previous_output": True}, (*PICTURE, text(2)), 6),
        ({"offset": 7}, (*PICTURE, text(1), text(2)), 6),
        ({"offset": 100}, (*PICTURE, text(2), text(2)), 6),
        ({"offset": 6}, (*PICTURE, text(2)), 6),
        ({"offset": 1}, (text(1), text(2)), 1),
        ({"offset": 7, "drop_previous_output": True}, (*PICTURE, text(2)), 6),
        ({"replace": True}, (*PICTURE, text(2), text(2)), 6),
    ],
)
def test_what_a_turn_goes_on_behind(how: dict[str, Any], history: object, tabulated: int) -> None:
    histories = session()
    first = ended(histories, "a", prompt=IMAGE)
    live = turn(histories, "b", parent="a", **how)
    assert live.history == history
    assert (live.place.tabulated, live.refuse, live.held) == (tabulated, False, None)
    assert live.width == len(live.place.rows[0])
    assert live.parent_place == first.place


def test_only_a_reply_within_its_limit_counts() -> None:
    histories = session()
    ended(histories, "a", reply=5, max_new_tokens=3)
    assert turn(histories, "b", parent="a").width == 2 + 3 + 2
    ended(histories, "c", reply=0)
    assert turn(histories, "d", parent="c").history == (text(2), text(2))


def test_a_turn_that_brings_media_is_tabulated_whole() -> None:
    histories = session()
    ended(histories, "a")
    live = turn(histories, "b", IMAGE, parent="a")
    assert (live.width, live.place.tabulated, live.place.has_media) == (10, 10, True)
    assert turn(histories, "c", parent="a").place.has_media is False


def test_a_request_of_no_session() -> None:
    histories = Histories("qwen2_vl")
    live = histories.arrive(arrive(beams=3))
    assert live is not None
    assert (live.beams, live.width, live.total, live.place.tabulated, live.place.delta) == (3, 6, 6, 6, -2)
    assert (live.parent, live.refuse, live.held, live.parent_place) == ("", None, None, None)
    nothing = histories.arrive(arrive("b", ()))
    assert nothing is not None and (nothing.width, nothing.place.delta) == (0, 0)


def test_a_parents_first_wrong_rule_is_its_childs() -> None:
    histories = session()
    first = turn(histories, "a")
    first.wrong = "table.index"
    histories.finish(first, "length")
    assert turn(histories, "b", parent="a").wrong == "table.index"


@pytest.mark.parametrize("parent", ["", "b"])
def test_a_turn_on_one_that_is_unknown_is_refused(parent: str) -> None:
    histories = session()
    live = turn(histories, "x", parent=parent)
    assert (live.refuse, live.history) == (bool(parent), (text(2),))
    assert known(histories) == ({"x"} if not parent else set())
    histories.refused(live, True)
    assert live.finished == "abort" and known(histories) == set()


def test_an_end_that_no_session_holds_changes_none() -> None:
    histories = session()
    ended(histories, "a")
    plain = histories.arrive(arrive("p"))
    assert plain is not None
    histories.refused(plain, True)
    histories.finish(plain, "length")
    assert (plain.finished, known(histories)) == ("length", {"a"})


def given_up(histories: Histories) -> None:
    """Turn a was given up, and its client was told so after one token."""
    live = turn(histories, "a", IMAGE)
    live.outputs, live.delivered = [50, 51], 1
    histories.abort("a")
    histories.finish(live, "abort")


def test_a_turn_on_one_that_was_given_up_may_be_refused() -> None:
    histories = session()
    given_up(histories)
    live = turn(histories, "b", parent="a")
    assert (live.refuse, live.held, live.cut) == (None, [], False)
    assert live.history == (*PICTURE, text(1), text(2))
    assert live.forgotten is not None
    assert (live.forgotten.rows[0], live.forgotten.has_media) == (tuple(range(9)), False)
    histories.refused(live, False)
    assert (live.held, live.finished, known(histories)) == (None, "abort", {"a", "b"})
    assert not histories.sessions["s"].lost
    assert not settled(histories, "c", parent="b")  # it may be there or not
    assert not settled(histories, "d", parent="c")
    assert settled(histories, "e", parent="a")


def test_a_replacing_turn_that_was_refused_leaves_a_session_that_nobody_knows() -> None:
    for sure in (False, True):
        histories = session()
        given_up(histories)
        live = turn(histories, "b", parent="a", replace=True)
        assert (live.refuse, live.cut) == (None, True)
        histories.refused(live, sure)
        assert histories.sessions["s"].lost and ("b" in known(histories)) == (not sure)
        assert not settled(histories, "c", parent="a") and known(histories) >= {"c"}


def test_an_offset_from_the_end_may_be_refused() -> None:
    histories = session()
    ended(histories, "a", prompt=IMAGE)
    live = turn(histories, "b", parent="a", offset=-1)
    assert (live.refuse, live.held, live.history, live.forgotten) == (None, [], (*PICTURE, text(1), text(2)), None)


def test_a_replaced_turn_that_runs_keeps_what_its_client_has() -> None:
    histories = session()
    first = turn(histories, "a")
    first.outputs, first.delivered, first.newest, first.went_on = [50, 51], 1, 1, 9
    live = turn(histories, "b", parent="a", replace=True)
    assert (live.history, live.refuse, live.held, live.cut) == ((text(2), text(1), text(2)), None, [], True)
    assert (first.replaced_by, first.went_on) == (live, 0)
    assert live.forgotten is not None and live.forgotten.rows[0] == tuple(range(5))


@pytest.mark.parametrize(
    ("outputs", "delivered", "newest", "beams", "told"),
    [(2, 1, 1, 1, True), (2, 0, 1, 1, False), (2, 2, 0, 1, True), (3, 1, 2, 1, True), (2, 2, 0, 2, False)],
)
def test_what_a_client_has_been_told(outputs: int, delivered: int, newest: int, beams: int, told: bool) -> None:
    histories = session()
    live = turn(histories, "a", beams=beams)
    live.outputs, live.delivered, live.newest = [50] * outputs, delivered, newest
    assert live.told() == told
    assert settled(histories, "b", parent="a", replace=True) == told


def test_a_turn_on_one_that_still_runs_is_refused() -> None:
    histories = session()
    turn(histories, "a")
    live = turn(histories, "b", parent="a")
    assert live.refuse is True and known(histories) == {"a"}


def test_streaming_turns_go_on_behind_the_last_one() -> None:
    histories = session(True)
    ended(histories, "a")
    assert ended(histories, "b").width == 2 + 2 + 2
    live = turn(histories, "c")
    assert (live.parent, live.width, live.refuse) == ("b", 2 + 2 + 2 + 2 + 2, False)
    assert turn(histories, "d").refuse is True  # one is in flight
    live.outputs, live.delivered = [50], 1
    histories.finish(live, "abort")
    after = turn(histories, "e")
    assert (after.parent, after.refuse) == ("b", False)


@pytest.mark.parametrize("how", [{"replace": True}, {"offset": 1}, {"offset": 0}, {"drop_previous_output": True}])
def test_a_streaming_session_rewrites_nothing(how: dict[str, Any]) -> None:
    histories = session(True)
    ended(histories, "a")
    assert turn(histories, "b", **how).refuse is True
    assert known(histories) == {"a"}
    histories = session(True)
    turn(histories, "a")
    histories.abort("")
    assert turn(histories, "b", **how).refuse is True and not histories.sessions["s"].lost


def test_a_stream_is_lost_where_a_turn_comes_while_an_aborted_one_may_run() -> None:
    histories = session(True)
    turn(histories, "a")
    histories.abort("a")
    assert not settled(histories, "b") and histories.sessions["s"].lost
    assert not settled(histories, "c")
    histories = session(True)
    live = turn(histories, "a")
    histories.abort("a")
    histories.finish(live, "abort")
    assert settled(histories, "b")


def test_one_is_given_up_or_all() -> None:
    histories = Histories("qwen2_vl")
    lives = [histories.arrive(arrive(name)) for name in "abc"]
    histories.abort("b")
    assert [one.given_up for one in lives if one] == [False, True, False]
    histories.abort("")
    assert [one.given_up for one in lives if one] == [True, True, True]


def test_a_name_that_is_open_is_not_opened_again() -> None:
    histories = session()
    ended(histories, "a")
    histories.open(Opened("s", True))
    assert known(histories) == {"a"} and not histories.sessions["s"].streaming


def test_a_session_that_was_closed_under_a_turn_may_still_be_there() -> None:
    for streaming, running, lost in ((True, True, True), (True, False, False), (False, True, False)):
        histories = session(streaming)
        live = turn(histories, "a")
        if not running:
            histories.finish(live, "length")
        histories.close("s")
        assert "s" not in histories.sessions
        assert turn(histories, "b").refuse is True
        histories.close("s")
        histories.open(Opened("s"))
        assert histories.sessions["s"].lost == lost
        histories.finish(live, "length")
        assert settled(histories, "c") != lost


def test_where_events_are_missing_nothing_is_known() -> None:
    histories = session()
    ended(histories, "a")
    histories.arrive(arrive("p"))
    assert histories.judged("p") and histories.judged("stranger")
    histories.gap()
    assert not histories.live and not histories.judged("p") and not histories.judged("stranger")
    assert histories.arrive(arrive("b", WORDS, session="s", parent="a")) is None and not histories.judged("b")
    histories.arrive(arrive("new"))
    assert histories.judged("new")
    histories.rest()
    assert histories.judged("p") and histories.judged("b") and not histories.live
    assert histories.arrive(arrive("c", WORDS, session="s")) is None  # opened before, perhaps
    assert not histories.judged("c")
    histories.open(Opened("t"))
    assert histories.arrive(arrive("d", WORDS, session="t")) is not None


def test_a_name_that_comes_again_is_another_request() -> None:
    histories = session(True)
    turn(histories, "a")
    histories.abort("a")
    assert not settled(histories, "b")
    histories.arrive(arrive("b"))
    assert histories.judged("b")


def test_a_turn_without_room_is_no_turn() -> None:
    histories = session()
    ended(histories, "a")
    live = turn(histories, "b", parent="a")
    histories.too_long(live)
    assert (live.finished, known(histories)) == ("abort", {"a"})
    histories.sessions["s"].lost = True
    again = histories._join(Arrived("a", WORD, 1, "s"), (text(1),), 1, None)
    histories.too_long(again)
    assert known(histories) == {"a"} and again.finished == "abort"
    plain = histories.arrive(arrive("p"))
    assert plain is not None
    histories.too_long(plain)
    assert plain.finished == "abort"


def standing(live: LiveRequest) -> tuple[object, ...]:
    return live.outputs, live.running, live.undecided, live.pending


def taken(live: LiveRequest) -> tuple[object, ...]:
    return live.undecided, live.pending, live.free, live.running, live.computed


def test_a_request_goes_on_from_what_its_prefill_ended_with() -> None:
    histories = Histories("qwen2_vl")
    live = histories.arrive(arrive())
    assert live is not None
    live.outputs, live.running, live.undecided, live.pending = [50, 51, 52], False, True, (7, 77)
    live.resume()
    assert standing(live) == ([50, 77], True, False, None)
    live.running, live.undecided = False, True
    live.resume()
    assert standing(live) == ([50, 77], False, False, None)


def test_what_is_taken_back_and_what_is_brought() -> None:
    histories = Histories("qwen2_vl")
    live = histories.arrive(arrive())
    assert live is not None
    live.pending, live.running = (7, 51), True
    histories.retract("a")
    histories.retract("b")
    assert taken(live) == (True, None, True, False, 0)
    live.pending = (7, 51)
    histories.transfer("a", (50, 51))
    histories.transfer("b", (50, 51))
    assert taken(live) == (False, None, False, True, 7)


def test_empty_runs_of_text_are_left_out() -> None:
    assert joined((text(0), *PICTURE), (text(0),), (text(2),)) == (*PICTURE, text(2))

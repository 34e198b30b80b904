"""Requests and sessions: arrivals, turns, replies, ends."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from ropecheck.reference.requests import (
    FIRST_TEXT_ID,
    Request,
    Session,
    State,
    arrived,
    emit,
    fresh_ids,
    of,
    tokens_of,
    turn_line,
    updated,
)
from ropecheck.reference.turns import TurnRequest, abort, finish, may_be_refused, open_session, submit, turn
from ropecheck.spec.history import History, OutOfDomain, image, text, video
from tests.reference.support import PICTURE, WORDS, waiting, with_status

NEW: History = (text(2),)


def test_tokens_are_handed_out_once() -> None:
    state, ids = fresh_ids(State(family="qwen2_vl"), (text(2), image(1, 2, 4), text(1), video(1, 2, 2)))
    assert ids == (1000, 1001, 11, 11, 1002, 12) and state.next_id == 1003 == FIRST_TEXT_ID + 3
    again, more = fresh_ids(state, (text(1),))
    assert more == (1003,) and again.next_id == 1004


def test_an_arrival() -> None:
    state = waiting(PICTURE, WORDS)
    first, second = of(state, 0), of(state, 1)
    assert (first.brings_media, first.has_media, second.brings_media, second.has_media) == (True, True, False, False)
    assert (first.status, first.outputs, tokens_of(first), first.tabulated_runs) == ("waiting", 0, 6, 3)
    assert (first.line.tabulated, first.line.delta, second.line.delta) == (6, -2, 0)
    assert first.turn == first.prompt == PICTURE and first.turn_ids == first.ids == (1000, 11, 11, 11, 11, 1001)
    assert second.ids == (1002, 1003, 1004) and state.next_id == 1005
    with pytest.raises(OutOfDomain, match="request 0 exists already"):
        submit(state, 0, WORDS, 8)
    with pytest.raises(OutOfDomain, match="request 7 has an empty prompt"):
        submit(state, 7, (), 8)
    refused = arrived(state, msgspec.structs.replace(second, req=7, ids=(), status="refused"))
    assert of(refused, 7).status == "refused"


def test_a_request_is_looked_up_with_its_status() -> None:
    state = waiting(WORDS)
    assert of(state, 0) is of(state, 0, "running", "waiting")
    for status, reason in ((("running", "finished"), "request 0 is waiting, not running or finished"),):
        with pytest.raises(OutOfDomain, match=reason):
            of(state, 0, *status)
    with pytest.raises(OutOfDomain, match="request 5 does not exist"):
        of(state, 5)


def test_emitted_tokens_count_on() -> None:
    state = waiting(WORDS)
    state, ids = emit(state, of(state, 0), 2)
    state, more = emit(state, of(state, 0), 1)
    assert (ids, more) == ((1003, 1004), (1005,)) and of(state, 0).output_ids == (*ids, *more)
    assert (tokens_of(of(state, 0)), of(state, 0).outputs, state.next_id) == (6, 3, 1006)


def test_a_picture_that_is_written_is_written_to_its_end() -> None:
    state = submit(State(family="glm_image"), 0, (text(2),), 8, ahead=(image(1, 1, 2), text(1)))
    line = of(state, 0).line
    assert (line.width, line.delta, line.tabulated, line.has_media) == (5, 0, 5, True)
    ended, ids = emit(state, of(state, 0), 4)  # and one that no forward reads
    assert len(ids) == 4
    for count, before in ((5, state), (1, ended)):
        with pytest.raises(OutOfDomain, match="request 0 writes more than it said"):
            emit(before, of(before, 0), count)
    with pytest.raises(OutOfDomain, match="qwen2_vl writes no images"):
        submit(State(family="qwen2_vl"), 0, WORDS, 8, ahead=(image(1, 2, 2),))


def test_a_turn_seen_alone() -> None:
    state = waiting(WORDS)
    request = msgspec.structs.replace(of(state, 0), turn=(image(1, 4, 4), text(1)))
    assert turn_line(state, request).table.T.tolist() == [[0, 0, 0], [0, 0, 1], [0, 1, 0], [0, 1, 1], [2, 2, 2]]
    line = turn_line(state, request, before=(text(1),))
    assert line.table.shape == (3, 6) and line.tabulated == 6
    ahead = msgspec.structs.replace(request, ahead=(text(2),))
    assert turn_line(state, ahead).width == 7


# ---------------------------------------------------------------- sessions


def asked(req: int, parent: int | None = None, prompt: History = NEW, session: int = 0) -> TurnRequest:
    return TurnRequest(session=session, req=req, prompt=prompt, parent=parent, max_new_tokens=2)


def talked(streaming: bool = False, outputs: int = 3, first: History = PICTURE) -> State:
    """A session whose turn 0 has ended; it may answer two tokens, and generated three."""
    state = turn(open_session(State(family="qwen2_vl"), 0, streaming), asked(0, prompt=first))
    state = with_status(state, 0, "running", outputs)
    return finish(state, of(state, 0))


def known(state: State) -> tuple[int, ...]:
    return state.sessions[0].known


def test_a_session_is_opened_once_and_named() -> None:
    state = open_session(State(family="qwen2_vl"), 3, streaming=True)
    assert state.sessions == {3: Session(session=3, streaming=True)}
    with pytest.raises(OutOfDomain, match="session 3 is open already"):
        open_session(state, 3, streaming=False)
    with pytest.raises(OutOfDomain, match="session 4 is not open"):
        turn(state, asked(0, session=4))


def test_an_append_goes_on_from_the_reply_that_counts() -> None:
    state = turn(talked(), asked(1, parent=0))
    first, second = of(state, 0), of(state, 1)
    assert second.prompt == (*PICTURE, text(2), *NEW)
    assert second.ids == (*first.ids, *first.output_ids[:2], *second.turn_ids) and len(second.turn_ids) == 2
    assert (second.session, second.parent, second.status, second.doubtful) == (0, 0, "waiting", False)
    assert (second.turn, second.max_new_tokens, second.tabulated_runs) == (NEW, 2, 3)
    assert second.line.tabulated == 6 and known(state) == (0, 1)


def test_a_turn_with_media_tabulates_all_before_it() -> None:
    state = turn(talked(), asked(1, parent=0, prompt=PICTURE))
    second = of(state, 1)
    assert second.tabulated_runs == len(second.prompt) == 7 and second.line.tabulated == 14
    third = of(turn(with_status(state, 1, "finished"), asked(2, parent=1)), 2)
    assert third.tabulated_runs == 7 and third.line.tabulated == 14


def test_a_turn_without_a_parent_starts_afresh() -> None:
    second = of(turn(talked(), asked(1)), 1)
    assert second.prompt == NEW and second.ids == second.turn_ids and second.parent is None
    assert second.tabulated_runs == 1 and not second.doubtful


def test_a_silent_parent_has_no_reply() -> None:
    state = turn(talked(outputs=0), asked(1, parent=0))
    assert of(state, 1).prompt == (*PICTURE, *NEW)


def test_a_turn_without_the_reply() -> None:
    state = turn(talked(), replace(asked(1, parent=0), drop_previous_output=True))
    assert of(state, 1).prompt == (*PICTURE, *NEW) and of(state, 1).ids == (*of(state, 0).ids, *of(state, 1).turn_ids)


@pytest.mark.parametrize(
    ("offset", "drop", "runs", "tokens", "tabulated"),
    [
        (3, False, (text(1), replace(image(1, 4, 4), kept=2), *NEW), 5, 3),  # inside the picture
        (7, False, (*PICTURE, text(1), *NEW), 9, 6),
        (99, False, (*PICTURE, text(2), *NEW), 10, 6),
        (7, True, (*PICTURE, *NEW), 8, 6),
    ],
)
def test_an_offset_keeps_the_first_tokens(offset: int, drop: bool, runs: History, tokens: int, tabulated: int) -> None:
    state = turn(talked(), replace(asked(1, parent=0), offset=offset, drop_previous_output=drop))
    first, second = of(state, 0), of(state, 1)
    assert second.prompt == runs and tokens_of(second) == tokens
    assert second.ids == (*(*first.ids, *first.output_ids[:2])[: tokens - 2], *second.turn_ids)
    assert second.line.tabulated == tabulated


@pytest.mark.parametrize("status", ["waiting", "running", "retracted"])
def test_a_turn_on_one_that_is_not_finished_is_refused(status: str) -> None:
    state = with_status(turn(talked(), asked(1, parent=0)), 1, status)
    after = turn(state, asked(2, parent=1, prompt=PICTURE))
    request = of(after, 2)
    assert (request.status, request.prompt, request.turn, request.session) == ("refused", PICTURE, PICTURE, 0)
    assert request.ids == request.turn_ids and request.tabulated_runs == 3 and request.line.tabulated == 6
    assert after.sessions == state.sessions and of(after, 1) == of(state, 1)


def test_a_turn_on_one_that_nobody_knows_is_refused() -> None:
    assert of(turn(talked(), asked(2, parent=9)), 2).status == "refused"
    refused = turn(talked(), asked(2, parent=9))
    assert of(turn(refused, asked(3, parent=2)), 3).status == "refused"  # a refused turn is nobody's parent


def test_a_turn_that_replaces_ends_what_still_runs_and_clears_what_came_after() -> None:
    state = talked()
    state = with_status(turn(state, asked(1, parent=0)), 1, "finished")
    state = with_status(turn(state, asked(2, parent=1)), 2, "finished")
    state = with_status(turn(state, asked(3)), 3, "finished")
    assert known(state) == (0, 1, 2, 3)
    replaced = turn(state, replace(asked(4, parent=0), replace=True))
    assert known(replaced) == (0, 3, 4) and of(replaced, 0).status == "finished"  # 2 went with 1
    assert not of(replaced, 4).doubtful
    assert known(turn(state, replace(asked(4), replace=True))) == (4,)
    running = turn(with_status(state, 0, "running"), replace(asked(4, parent=0), replace=True))
    assert of(running, 0).status == "aborted" and of(running, 4).doubtful and of(running, 4).parent == 0
    given_up = turn(with_status(state, 0, "aborted"), replace(asked(4, parent=0), replace=True))
    assert of(given_up, 0).status == "aborted" and of(given_up, 4).doubtful
    later = turn(with_status(running, 4, "finished"), asked(5, parent=4))
    assert of(later, 5).doubtful  # what a doubtful turn is continued by is doubtful


def test_which_turns_may_be_refused() -> None:
    state = turn(talked(), asked(1, parent=0))
    given_up = abort(state, of(state, 1))
    assert of(given_up, 1).status == "aborted"
    assert may_be_refused(given_up, 0, 1, False) and may_be_refused(state, 0, 1, True)
    assert not may_be_refused(state, 0, 1, False) and not may_be_refused(state, 0, 0, True)
    assert not may_be_refused(state, 0, None, True) and not may_be_refused(given_up, 0, 9, True)
    streaming = talked(streaming=True)
    assert not may_be_refused(abort(streaming, of(streaming, 0)), 0, 0, True)


def test_a_streaming_session_has_one_turn_at_a_time() -> None:
    state = talked(streaming=True)
    assert (state.sessions[0].last, state.sessions[0].in_flight) == (0, None)
    state = turn(state, asked(1))
    second = of(state, 1)
    assert second.parent == 0 and second.prompt == (*PICTURE, text(2), *NEW) and known(state) == ()
    assert (state.sessions[0].last, state.sessions[0].in_flight) == (0, 1)
    assert of(turn(state, asked(2)), 2).status == "refused"
    ended, given_up = finish(state, second), abort(state, second)
    assert (ended.sessions[0].last, ended.sessions[0].in_flight) == (1, None)
    assert (given_up.sessions[0].last, given_up.sessions[0].in_flight) == (0, None)
    assert (of(ended, 1).status, of(given_up, 1).status) == ("finished", "aborted")
    assert of(turn(given_up, asked(2)), 2).parent == 0 and of(turn(ended, asked(2)), 2).parent == 1
    for more in ({"replace": True}, {"offset": 1}, {"drop_previous_output": True}):
        assert of(turn(ended, replace(asked(2), **more)), 2).status == "refused"


def test_the_first_streaming_turn_continues_nothing() -> None:
    state = turn(open_session(State(family="qwen2_vl"), 0, streaming=True), asked(0))
    assert of(state, 0).parent is None and state.sessions[0].in_flight == 0 and not of(state, 0).doubtful


def test_an_end_outside_of_a_session_is_the_requests_alone() -> None:
    state = with_status(waiting(WORDS, PICTURE), 0, "running")
    for end, status in ((finish, "finished"), (abort, "aborted")):
        after = end(state, of(state, 0))
        assert of(after, 0).status == status and of(after, 1) == of(state, 1) and after.sessions == {}
    plain = talked()
    assert plain.sessions[0].last is None and plain.sessions[0].in_flight is None


def test_a_changed_request_changes_no_other_state() -> None:
    state = waiting(WORDS, PICTURE)
    request: Request = msgspec.structs.replace(of(state, 0), computed=2)
    after = updated(state, request)
    assert of(after, 0).computed == 2 and of(state, 0).computed == 0 and of(after, 1) is of(state, 1)

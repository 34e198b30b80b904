"""The rules of a session's turns: which of them speak of a turn, and what each finds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ropecheck.spec.rules import Violation
from ropecheck.spec.session import afresh, continued, kept_of, may_refuse, must_refuse, reply_tokens, without_reply
from ropecheck.spec.views import ArrivedTurn, SavedTurn
from tests.spec.support import broken, said, wrong

SAVED = SavedTurn(prompt=(1, 2, 3), outputs=(4, 5, 6), max_new_tokens=2)
"""It may answer two tokens, and generated three."""
APPEND = ArrivedTurn(saved=SAVED, new=(7, 8), ids=(1, 2, 3, 4, 5, 7, 8))


def test_what_an_operation_makes_of_a_history() -> None:
    assert [reply_tokens(outputs, 2) for outputs in (0, 1, 2, 3)] == [0, 1, 2, 2]
    assert continued((1, 2), (3,), (4,)) == (1, 2, 3, 4)
    assert without_reply((1, 2), (4,)) == (1, 2, 4)
    assert afresh((4,)) == (4,)
    assert [kept_of(5, offset) for offset in (0, 2, 5, 9, -2, -9)] == [0, 2, 5, 5, 3, 0]


@pytest.mark.parametrize("finished", [False, True])
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("in_flight", [False, True])
@pytest.mark.parametrize("rewrites", [False, True])
def test_what_must_be_refused(finished: bool, known: bool, in_flight: bool, rewrites: bool) -> None:
    assert must_refuse(True, in_flight, finished, known, rewrites) == (in_flight or rewrites)
    assert must_refuse(False, in_flight, finished, known, rewrites) == (not (finished and known))


def test_what_may_be_refused() -> None:
    assert may_refuse(True, True, False) and may_refuse(False, False, True) and may_refuse(True, False, False, -1)
    assert not any(may_refuse(*one) for one in ((True, False, False), (False, False, False), (True, False, True)))
    assert not may_refuse(True, False, False, 0) and not may_refuse(True, False, False, 3)


RIGHT = {
    "append": (APPEND, {"append", "reply_that_counts"}),
    "a reply within its limit": (
        replace(APPEND, saved=replace(SAVED, max_new_tokens=3), ids=(1, 2, 3, 4, 5, 6, 7, 8)),
        {"append"},
    ),
    "branch": (replace(APPEND, siblings=True), {"append", "branch", "reply_that_counts"}),
    "retry": (replace(APPEND, aborted_sibling=True), {"append", "abort_and_retry", "reply_that_counts"}),
    "streaming": (
        replace(APPEND, streaming=True, siblings=True),
        {"append", "streaming_append", "reply_that_counts"},
    ),
    "replace": (
        replace(APPEND, replace=True, siblings=True),
        {"replace_with_parent", "reply_that_counts"},
    ),
    "afresh": (ArrivedTurn(saved=None, new=(7, 8), ids=(7, 8)), {"replace_all"}),
    "offset": (replace(APPEND, offset=4, ids=(1, 2, 3, 4, 7, 8)), {"offset"}),
    "offset past the end": (replace(APPEND, offset=99), {"offset"}),
    "offset of nothing": (ArrivedTurn(saved=None, new=(7,), offset=4, ids=(7,)), {"offset", "replace_all"}),
    "offset without the reply": (
        replace(APPEND, offset=4, drop_previous_output=True, ids=(1, 2, 3, 7, 8)),
        {"offset"},
    ),
    "without the reply": (
        replace(APPEND, drop_previous_output=True, ids=(1, 2, 3, 7, 8)),
        {"drop_previous_output"},
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_turn_and_the_rules_that_speak_of_it(name: str) -> None:
    turn, ids = RIGHT[name]
    assert said(turn) == dict.fromkeys(f"session.{id}" for id in ("refused", *ids))


@pytest.mark.parametrize("name", RIGHT)
def test_a_token_of_nowhere_breaks_every_rule_that_says_which_tokens_there_are(name: str) -> None:
    turn, ids = RIGHT[name]
    assert turn.ids is not None
    found = broken(replace(turn, ids=(*turn.ids[:-1], 99)))
    assert set(found) == {f"session.{id}" for id in ids - {"reply_that_counts"}}
    assert {(one.axis, one.shape) for one in found.values()} == {("ids", "other tokens")}
    longer = broken(replace(turn, ids=(*turn.ids, 99)))
    assert {one.shape for one in longer.values()} == {"too many tokens"}
    assert set(longer) == {f"session.{id}" for id in ids}


@pytest.mark.parametrize(
    ("ids", "words"),
    [((1, 2, 3, 4, 7, 8), "too few tokens"), ((1, 2, 3, 4, 5, 6, 7, 8), "too many tokens")],
)
def test_the_reply_that_counts_ends_at_its_limit(ids: tuple[int, ...], words: str) -> None:
    reply = ids[3:-2]
    found = broken(replace(APPEND, ids=ids))
    message = f"a reply of {len(reply)} tokens, max_new_tokens is 2"
    assert found["session.reply_that_counts"] == wrong("ids", "(4, 5)", str(reply), words, message, at=3)
    assert found["session.append"] == wrong(
        "ids",
        "[1, 2, 3, 4, 5, 7, 8]",
        str(list(ids)),
        words,
        f"{len(ids)} tokens, must be the 7 of prompt and outputs",
    )


def test_another_reply_is_as_long_and_other_tokens() -> None:
    found = broken(replace(APPEND, ids=(1, 2, 3, 4, 9, 7, 8)))
    assert {id: one.shape for id, one in found.items()} == dict.fromkeys(
        ("session.append", "session.reply_that_counts"), "other tokens"
    )


REFUSED = replace(APPEND, ids=None, refused=True)


@pytest.mark.parametrize(
    ("turn", "must"),
    [
        (REFUSED, False),
        (replace(REFUSED, parent_known=False), True),
        (replace(REFUSED, parent_finished=False), True),
        (replace(REFUSED, replace=True, offset=1, drop_previous_output=True, in_flight=True), False),
        (replace(REFUSED, streaming=True), False),
        (replace(REFUSED, streaming=True, parent_known=False, parent_finished=False), False),
        (replace(REFUSED, streaming=True, in_flight=True), True),
        (replace(REFUSED, streaming=True, replace=True), True),
        (replace(REFUSED, streaming=True, offset=1), True),
        (replace(REFUSED, streaming=True, drop_previous_output=True), True),
    ],
)
def test_a_turn_is_refused_where_it_must_be_and_nowhere_else(turn: ArrivedTurn, must: bool) -> None:
    taken = replace(turn, refused=False, ids=APPEND.ids, note="by its rid")

    def of(observed: bool, verb: str, note: str) -> dict[str, Violation]:
        message = f"the turn was {verb}{note}"
        return {"session.refused": wrong("aborted", str(not observed), str(observed), verb, message)}

    assert said(turn)["session.refused"] == (None if must else of(True, "refused", "")["session.refused"])
    assert set(said(turn)) == {"session.refused"}
    if must:
        assert said(taken) == of(False, "accepted", ": by its rid")
    else:
        assert said(taken)["session.refused"] is None
    assert "session.refused" not in said(replace(turn, may_refuse=True))

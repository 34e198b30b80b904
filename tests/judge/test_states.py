"""Verdicts on what requests hold between forwards, and which later failures follow from them."""

from __future__ import annotations

import numpy as np
import pytest

from ropecheck.adapters import protocol
from ropecheck.conformance.judge.outcome import Difference, Failure, TableView, Unrun
from ropecheck.conformance.plan.planner import StateCheck
from ropecheck.conformance.reference_engine import tensor
from ropecheck.conformance.scenario.operations import Abort, Finish, Open, Retract, Submit, Turn
from ropecheck.conformance.scenario.words import decode, extend, ragged_verify, window
from ropecheck.spec.history import image, text
from tests.judge.support import Change, cell, judged, planned, result_of, state, state_of, table

PICTURE = (text(2), image(1, 4, 6))
"""8 tokens; text goes on at 5: the delta is -3."""
SESSION = planned(
    Open(0),
    Turn(0, 0, PICTURE),
    Submit(5, (text(3),)),
    extend((window(0), window(5))),
    decode((0,)),
    Finish(0),
    Turn(0, 1, (text(2),), parent=0),
    extend((window(1),)),
    decode((1, 5)),
    Retract(1),
    extend((window(1),)),
)
"""Request 5 is text, request 1 goes on behind request 0 and its reply of two tokens."""
TURN, ADMITTED, PREFILLED, DECODED, RETRACTED, AGAIN, LAST = 18, 20, 23, 27, 29, 31, 34
"""Results that show states."""
RIGHT = np.array([[0, 1, 2, 2, 2, 2, 2, 2], [0, 1, 2, 2, 2, 3, 3, 3], [0, 1, 2, 3, 4, 2, 3, 4]])


def test_the_numbers_of_the_results() -> None:
    found = [check.result for check in SESSION.checks if isinstance(check, StateCheck)]
    assert found[6:] == [TURN, ADMITTED, PREFILLED, DECODED, RETRACTED, AGAIN, LAST]
    assert judged(SESSION, {}).state == "pass"


WRONG = RIGHT.copy()
WRONG[0, 3] = 11


def held(values: object) -> protocol.Tensor:
    return tensor(np.array(values, dtype=np.int64))


def everywhere(first: int, change: Change) -> dict[int, Change]:
    """The change in every observation from this one on."""
    return {
        number: change for number in (TURN, ADMITTED, PREFILLED, DECODED, RETRACTED, AGAIN, LAST) if number >= first
    }


def told(changes: dict[int, Change]) -> list[tuple[str, str, int]]:
    return [(one.rule, one.signature, one.step) for one in judged(SESSION, changes).failures]


def test_a_wrong_table_is_told_in_full() -> None:
    (failure,) = judged(SESSION, {TURN: state(1, table=held(WRONG))}).failures
    assert failure == Failure(
        rule="session.table",
        mode="session",
        signature="other values",
        step=6,
        label="",
        message="request 1: column 3: (11, 2, 3), must be (2, 2, 3)",
        difference=Difference("table", 3, 1, "(2, 2, 3)", "(11, 2, 3)"),
        expected=TableView(None, tuple(map(tuple, RIGHT.tolist()))),
        observed=TableView(None, tuple(map(tuple, WRONG.tolist()))),
    )
    flat = judged(SESSION, {TURN: state(1, table=held(WRONG.ravel()))}).failures[0]
    assert (flat.signature, flat.expected, flat.observed) == ("wrong number of rows", None, None)
    gone = judged(SESSION, {TURN: state(1, table=None)}).failures[0]
    assert (gone.signature, gone.expected, gone.observed) == ("table missing", None, None)


TEXT = "[1000, 1001, 11, 11, 11, 11, 11, 11, 1005, 1007, 1008, 1009]"
PADDED = TEXT.replace("11,", "1000000,")


@pytest.mark.parametrize(
    ("at", "change", "rule", "signature", "message", "difference"),
    [
        (
            TURN,
            state(1, delta=held([[-2]])),
            "session.delta",
            "another delta",
            "request 1: delta -2, the history has -3",
            Difference("delta", None, 1, -3, -2),
        ),
        (
            TURN,
            state(1, offsets=()),
            "session.media_spans",
            "items missing (append)",
            "request 1: media items at [], the history has them at [(2, 8)]",
            Difference("offsets", None, 1, "[(2, 8)]", "[]"),
        ),
        (
            TURN,
            state(1, aborted=True, note="no"),
            "session.refused",
            "refused",
            "request 1: the turn was refused: no",
            Difference("aborted", None, 1, "False", "True"),
        ),
        (
            PREFILLED,
            state(1, aborted=True, note="no"),
            "request.aborted",
            "aborted",
            "request 1 was aborted: no",
            Difference("aborted", None, 1, "False", "True"),
        ),
        (
            ADMITTED,
            state(1, prefix_len=3),
            "request.prefix_len",
            "another prefix_len",
            "request 1: prefix_len 3, the cache holds 0",
            Difference("prefix_len", None, 1, 0, 3),
        ),
        (
            AGAIN,
            state(1, prefix_len=3),
            "request.prefix_len",
            "another prefix_len",
            "request 1: prefix_len 3, the cache holds 0",
            Difference("prefix_len", None, 1, 0, 3),
        ),
        (
            ADMITTED,
            state(1, fill_ids=(3,)),
            "freshness.fill_ids",
            "too few tokens",
            "request 1: 1 tokens, must be the 12 of prompt and outputs",
            Difference("fill_ids", None, 1, PADDED, "[3]"),
        ),
        (
            DECODED,
            state(1, output_ids=(1,)),
            "request.outputs",
            "too few tokens",
            "request 1: 1 tokens, must be the 2 of prompt and outputs",
            Difference("output_ids", None, 1, "[1010, 1011]", "[1]"),
        ),
        (
            DECODED,
            state(1, ids=(1, 2)),
            "freshness.padded_media",
            "wrong length",
            "request 1: 2 padded tokens for 12",
            Difference("ids", None, 1, 12, 2),
        ),
    ],
)
def test_what_is_held_wrongly_once(
    at: int, change: Change, rule: str, signature: str, message: str, difference: Difference
) -> None:
    (failure,) = judged(SESSION, {at: change}).failures
    assert (failure.rule, failure.signature, failure.message, failure.difference) == (
        rule,
        signature,
        message,
        difference,
    )


def test_the_same_wrong_state_later_is_a_consequence() -> None:
    after = [("request.delta", "follows from session.delta", step) for step in (7, 8, 9, 10)]
    found = judged(SESSION, everywhere(TURN, state(1, delta=held([[-2]]))))
    assert [(one.rule, one.signature, one.step) for one in found.failures] == [
        ("session.delta", "another delta", 6),
        *after,
    ]
    assert {one.follows for one in found.failures[1:]} == {"session.delta"}


def test_tokens_that_a_turn_was_taken_for_are_told_once() -> None:
    first, second = judged(SESSION, {TURN: state(1, unpadded_ids=(1, 2, 3))}).failures
    assert (first.rule, first.signature, first.follows) == ("session.append", "too few tokens", "")
    assert first.message == "request 1: 3 tokens, must be the 12 of prompt and outputs"
    assert (second.rule, second.follows) == ("request.prompt", "session.append")
    (later,) = judged(SESSION, {DECODED: state(1, unpadded_ids=(1, 2, 3))}).failures
    assert (later.rule, later.follows) == ("request.prompt", "")
    (other,) = judged(SESSION, {DECODED: state(1, output_ids=(1,))}).failures
    assert other.follows == ""


def grown(columns: object, more: int = 1) -> protocol.Tensor:
    return held(np.concatenate([np.array(columns), np.full((3, more), 9)], axis=1))


@pytest.mark.parametrize(
    ("at", "change", "found"),
    [
        (
            TURN,
            state(0, table=held(WRONG)),
            [
                ("ownership.parent_unchanged", "parent's table changed by a turn", 6),
                ("ownership.others_unchanged", "follows from ownership.parent_unchanged", 7),
            ],
        ),
        (
            TURN,
            state(0, table=grown(RIGHT)),
            [
                ("ownership.parent_unchanged", "parent's table grew by a turn", 6),
                ("ownership.others_unchanged", "another request's table changed by a forward", 7),
            ],
        ),
        (
            TURN,
            state(0, table=grown(WRONG)),
            [
                ("ownership.parent_unchanged", "parent's table changed by a turn", 6),
                ("ownership.others_unchanged", "follows from ownership.parent_unchanged", 7),
            ],
        ),
        (
            TURN,
            state(5, delta=held([[4]])),
            [
                ("ownership.others_unchanged", "another request's delta changed by a turn", 6),
                ("request.delta", "follows from ownership.others_unchanged", 6),
                ("ownership.others_unchanged", "follows from ownership.others_unchanged", 7),
            ],
        ),
        (
            RETRACTED,
            state(0, delta=held([[4]])),
            [
                ("ownership.others_unchanged", "another request's delta changed by a retract", 9),
                ("ownership.others_unchanged", "follows from ownership.others_unchanged", 10),
            ],
        ),
        (
            AGAIN,
            state(0, offsets=((1, 2),)),
            [
                ("ownership.others_unchanged", "another request's offsets changed by a re-prefill", 10),
                ("ownership.others_unchanged", "follows from ownership.others_unchanged", 10),
            ],
        ),
        (
            DECODED,
            state(0, delta_cache=held([[7]])),
            [
                ("ownership.others_unchanged", "another request's delta_cache changed by a forward", 8),
                ("ownership.others_unchanged", "follows from ownership.others_unchanged", 9),
            ],
        ),
        (
            DECODED,
            state(1, delta_cache=held([[7]])),
            [
                ("ownership.others_unchanged", "another request's delta_cache changed by a forward", 8),
                ("freshness.delta_cache", "stale cache", 8),
            ],
        ),
    ],
)
def test_what_an_operation_must_leave_alone(at: int, change: Change, found: list[tuple[str, str, int]]) -> None:
    assert told({at: change}) == found


def test_what_became_of_another_request_is_shown() -> None:
    change = judged(SESSION, {TURN: state(0, table=held(WRONG))}).failures[0]
    was, now = "[3, 8] [0, 1, 2, 2, 2, 2]..", "[3, 8] [0, 1, 2, 11, 2, 2].."
    assert change.message == f"request 0's table was {was} and is {now}"
    assert (change.mode, change.difference) == ("ownership", Difference("table", None, 0, was, now))
    small = judged(SESSION, {TURN: state(5, delta=held([[4]]))}).failures[0]
    assert small.difference == Difference("delta", None, 5, "None", "[1, 1] [4]")
    six = judged(SESSION, {TURN: state(5, delta=held([[1, 2, 3, 4, 5, 6]]))}).failures[0]
    assert six.message == "request 5's delta was None and is [1, 6] [1, 2, 3, 4, 5, 6]"


@pytest.mark.parametrize(
    ("table_", "how"),
    [
        (held(RIGHT[:, :7]), "changed"),
        (held(RIGHT[:2]), "changed"),
        (held(RIGHT.ravel()), "changed"),
        (tensor(RIGHT.astype(np.int32)), "grew"),
        (grown(RIGHT, 3), "grew"),
        (None, "changed"),
    ],
)
def test_a_table_grows_where_its_columns_stay(table_: protocol.Tensor | None, how: str) -> None:
    failure = judged(SESSION, {TURN: state(0, table=table_)}).failures[0]
    assert failure.signature == f"parent's table {how} by a turn"


def test_a_child_of_a_table_that_grew_or_was_wrong_follows_from_it() -> None:
    """The finished request's table grows when another request arrives, or is prefilled: its child comes later."""
    again = planned(*SESSION.scenario.ops[:6], Submit(6, (text(2),)), *SESSION.scenario.ops[6:8])
    submitted, turn, last = (state_of(again, op) for op in (6, 7, 8))
    child = {turn: state(1, table=held(WRONG)), last: state(1, table=held(WRONG))}

    def found(parent: protocol.Tensor) -> list[tuple[str, str]]:
        change = state(0, table=parent)

        def both(right: protocol.States) -> protocol.Result:
            return change(child[turn](right))

        return [
            (one.rule, one.signature)
            for one in judged(again, {submitted: change, turn: both}).failures
            if one.difference and one.difference.request == 1
        ]

    assert found(grown(RIGHT))[0] == ("session.table", "follows from ownership.others_unchanged")
    assert found(held(WRONG))[0] == ("session.table", "follows from ownership.others_unchanged")
    assert judged(again, child).failures[0].signature == "other values"


def test_a_cache_of_a_wrong_delta_is_that_deltas() -> None:
    """It is stale where it does not fit what is held."""

    def caches(cache: object, delta: object = ((7,),)) -> list[str]:
        changes = {DECODED: state(1, delta=held(delta), delta_cache=held(cache))}
        return [one.signature for one in judged(SESSION, changes).failures if one.rule == "freshness.delta_cache"]

    fits = ["follows from ownership.others_unchanged"]
    assert caches([[6]]) == fits and caches([[6], [6], [6]]) == fits
    assert (
        caches([[7]]) == caches([[6], [7]]) == caches([[6]], [[7, 7]]) == caches([[6]], [[7], [7]]) == ["stale cache"]
    )
    (failure,) = judged(SESSION, {DECODED: state(1, delta=None, delta_cache=held([[6]]))}).failures[-1:]
    assert failure.signature == "stale cache"


def test_a_state_that_is_not_answered_or_twice() -> None:
    lost = judged(SESSION, {DECODED: lambda right: protocol.States(right.states[:-1])})
    assert lost.unrun == (Unrun("decode", "no state of request 1 was answered", 8),) and not lost.failures
    twice = judged(SESSION, {DECODED: lambda right: protocol.States(right.states + right.states[:1])})
    assert twice.unrun == (Unrun("decode", "two states of one request were answered", 8),) and not twice.failures
    first = judged(SESSION, {DECODED: lambda right: protocol.States(right.states[1:])})
    assert [one.message for one in first.unrun] == ["no state of request 0 was answered"]


def test_what_is_asked_of_a_right_answer() -> None:
    asked = judged(SESSION, {}).by_mode
    assert asked["ownership.parent_unchanged"] == {"ownership": 4}
    assert asked["ownership.others_unchanged"] == {"ownership": 72}
    assert asked["request.aborted"] == {"request": 30}
    assert asked["request.delta"] == {"freshness": 6, "retraction": 5}
    assert asked["request.outputs"] == {"session": 2, "freshness": 16, "retraction": 7}
    assert asked["retraction.table"] == {"retraction": 2}
    assert asked["session.append"] == {"session": 1}


FORWARD, STEP, ANEW = (result_of(SESSION, op) for op in (7, 8, 10))
"""Request 1's prefill of twelve tokens, a decode of requests 1 and 5, the prefill after the retraction."""


def both(*changes: Change) -> Change:
    def change(right: protocol.Result) -> protocol.Result:
        for one in changes:
            right = one(right)
        return right

    return change


def of_tables(changes: dict[int, Change]) -> list[tuple[str, str, str]]:
    return [
        (one.rule, one.signature, one.follows)
        for one in judged(SESSION, changes).failures
        if one.rule.startswith("table.")
    ]


IMPLIED = "session.table"


def as_held(rows: np.ndarray) -> None:
    """What a wrong table and a wrong delta give."""
    rows[0, 3] = 11
    rows[:, 8:] += 1


@pytest.mark.parametrize(
    ("wrong", "edit", "found"),
    [
        ({"table": held(WRONG)}, cell(0, 3, value=11), [("table.inside_table", f"follows from {IMPLIED}", IMPLIED)]),
        ({"table": held(WRONG)}, cell(0, 3, value=12), [("table.inside_table", "row t wrong", "")]),
        (
            {"table": held(WRONG), "delta": held([[-2]])},
            as_held,
            [(f"table.{name}_table", f"follows from {IMPLIED}", IMPLIED) for name in ("inside", "past")],
        ),
        (
            {"table": held(WRONG.ravel()), "delta": held([[-2]])},
            cell(0, 3, value=11),
            [("table.inside_table", "row t wrong", "")],
        ),
        (
            {"table": held(WRONG), "delta": held([[-2, -2]])},
            cell(0, 3, value=11),
            [("table.inside_table", "row t wrong", "")],
        ),
        (
            {"table": held(WRONG), "delta": held([[-3]])},
            cell(slice(None), 4, value=1),
            [("table.inside_table", f"follows from {IMPLIED}", IMPLIED)],
        ),
        (
            {"table": None, "delta": None},
            cell(slice(None), 4, value=4),
            [("table.inside_table", f"follows from {IMPLIED}", IMPLIED)],
        ),
        (
            {"table": None, "delta": None},
            cell(slice(None), slice(4, 6), value=4),
            [("table.inside_table", "one column repeated", "")],
        ),
    ],
)
def test_columns_that_what_is_held_implies(
    wrong: dict[str, object], edit: object, found: list[tuple[str, str, str]]
) -> None:
    changes = everywhere(TURN, state(1, **wrong))
    assert of_tables(changes | {FORWARD: table(edit)}) == found  # type: ignore[arg-type]


def packed(delta: object, dealt: tuple[int, ...]) -> list[str]:
    """What is said of a packed verify whose columns were given these deltas, where request 1 is seen to hold one."""
    ops = SESSION.scenario.ops[:8]
    one = planned(*ops, ragged_verify((1, 5), ((0, 0), ())))
    changes = {state_of(one, op): state(1, delta=held(delta)) for op in (6, 7)}
    at = result_of(one, 8)
    edit = table(lambda rows: np.stack([np.array([12, 13, 13, 3]) + dealt] * 3))
    return [
        failure.signature for failure in judged(one, {**changes, at: edit}).failures if failure.mode == "ragged_verify"
    ]


def test_deltas_are_dealt_as_they_are_held() -> None:
    dealt = "dealt in equal shares"
    assert packed([[-2]], (-2, -2, 0, 0)) == [dealt]
    assert packed([[-3]], (-2, -2, 0, 0)) == ["other values"]
    assert packed([[-3]], (-3, -3, 0, 0)) == [dealt]
    assert packed([[-2, -2]], (-2, -2, 0, 0)) == ["other values"]
    assert packed([[-2]], (-2, -2, -2, 0)) == ["follows from session.delta"]


def test_a_large_batch_is_judged_like_a_small_one() -> None:
    large = planned(Submit(0, (text(70),)), extend((window(0),)))
    (failure,) = judged(large, {result_of(large, 1): table(cell(0, 69, value=9))}).failures
    assert failure.key == ("table.text_only", "extend", "row t wrong")


def test_a_turn_that_was_replaced_may_be_aborted_and_others_may_not() -> None:
    ops = (*SESSION.scenario.ops[:9], Turn(0, 2, (text(2),), parent=1, replace=True), extend((window(2),)))
    one = planned(*ops)
    at = state_of(one, 9)
    right = judged(one, {at: state(1, aborted=True), state_of(one, 10): state(1, aborted=True)})
    assert not right.failures
    wrong = judged(one, {at: state(5, aborted=True)}).failures
    assert [(failure.rule, failure.message) for failure in wrong] == [("request.aborted", "request 5 was aborted")]


def test_a_cache_may_be_filled_by_a_forward_and_by_nothing_that_arrives_or_ends() -> None:
    filled = state(5, delta_cache=held([[-1]]))
    assert told(everywhere(DECODED, filled)) == []
    assert told(everywhere(TURN, filled)) == [
        ("ownership.others_unchanged", "another request's delta_cache changed by a turn", 6)
    ]
    ended = planned(*SESSION.scenario.ops[:5], Abort(0), decode((5,)))
    for op, kind in ((5, "an abort"), (6, "")):
        changes = {state_of(ended, later): filled for later in range(op, 7)}
        found = [failure.signature for failure in judged(ended, changes).failures]
        assert found == ([f"another request's delta_cache changed by {kind}"] if kind else [])


def test_six_values_of_more_are_shown() -> None:
    (first, *_) = judged(SESSION, {TURN: state(5, delta=held([[1, 2, 3, 4, 5, 6, 7]]))}).failures
    assert first.message == "request 5's delta was None and is [1, 7] [1, 2, 3, 4, 5, 6].."


REFUSED = planned(*SESSION.scenario.ops[:5], Turn(0, 1, (text(2),), parent=0), decode((0, 5)))
"""A turn on one that still runs."""


def test_a_refused_turn_is_looked_at_for_being_refused_alone() -> None:
    arrived, later = state_of(REFUSED, 5), state_of(REFUSED, 6)
    assert judged(REFUSED, {}).state == "pass"
    empty = state(1, table=None, delta=None, offsets=(), aborted=True)
    assert judged(REFUSED, {arrived: empty, later: empty}).state == "pass"
    taken = judged(REFUSED, {arrived: state(1, aborted=False), later: state(1, aborted=False)}).failures
    assert [(one.rule, one.signature, one.step) for one in taken] == [
        ("session.refused", "accepted", 5),
        ("request.aborted", "taken up again", 6),
    ]
    wrong = judged(SESSION, {TURN: state(1, aborted=True, table=None, delta=None)}).failures
    assert [one.rule for one in wrong if one.step == 6] == ["session.refused"]


def test_a_branch_is_an_append_and_a_branch() -> None:
    branch = planned(*SESSION.scenario.ops[:8], Turn(0, 2, (text(2),), parent=0), extend((window(2),)))
    at = state_of(branch, 8)
    strayed = judged(branch, {at: state(2, unpadded_ids=(1,))}).failures
    assert [(one.rule, one.follows) for one in strayed] == [
        ("session.append", ""),
        ("session.branch", ""),
        ("request.prompt", "session.append"),
    ]
    (moved,) = judged(branch, {at: state(2, offsets=())}).failures
    assert moved.signature == "items missing (branch)"
    padded = judged(SESSION, {TURN: state(1, unpadded_ids=(1,), ids=(1,))}).failures
    assert [(one.rule, one.follows) for one in padded] == [
        ("session.append", ""),
        ("freshness.padded_media", "session.append"),
        ("request.prompt", "session.append"),
    ]


def test_a_chunk_of_a_prefill_after_a_retraction_is_one_of_it() -> None:
    chunks = planned(*SESSION.scenario.ops[:10], extend((window(1, 4),)), extend((window(1),)))
    assert judged(chunks, {}).by_mode["retraction.table"] == {"retraction": 3}
    assert judged(chunks, {}).by_mode["request.outputs"] == {"session": 2, "freshness": 17, "retraction": 8}

"""The rules of what an engine holds for a request: table, delta, items, tokens, cached values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ropecheck.spec.history import Delta
from ropecheck.spec.ownership import short
from ropecheck.spec.rules import Violation
from ropecheck.spec.views import Bystander, HeldState, Place, Seen, Standing
from tests.spec.support import broken, said, wrong

ROWS = ((0, 1, 1, 1, 1, 3), (0, 1, 1, 2, 2, 3), (0, 1, 2, 1, 2, 3))
PICTURE = Place(rows=ROWS, tabulated=6, delta=Delta(-2), has_media=True)
"""Text, a picture of 2 x 2 tokens, text."""


def table(*columns: tuple[int, ...], dtype: str = "int64") -> Seen:
    rows = [list(row) for row in zip(*columns, strict=True)]
    return Seen(dtype=dtype, shape=(len(rows), len(columns)), values=tuple(rows))


COLUMNS = tuple(zip(*ROWS, strict=True))
ONE = Seen(dtype="int64", shape=(1, 1), values=((-2,),))
HELD = HeldState(
    moment="later",
    place=PICTURE,
    covers=6,
    spans=((1, 5),),
    media=(False, True, True, True, True, False),
    raw=(1, 11, 11, 11, 11, 2),
    outputs=(3, 4),
    retracted=False,
    table=table(*COLUMNS),
    delta=ONE,
    delta_cache=None,
    offsets=((1, 5),),
    ids=(1, 77, 77, 77, 77, 2),
    fill_ids=(1, 77, 77, 77, 77, 2, 3, 4),
    unpadded_ids=(1, 11, 11, 11, 11, 2),
    output_ids=(3, 4),
)
ALWAYS = {"request.prompt", "request.outputs", "freshness.padded_media"}
SCHEDULED = replace(HELD, moment="scheduled")
RETRACTED = replace(SCHEDULED, retracted=True)


@pytest.mark.parametrize(
    ("held", "rules"),
    [
        (HELD, {"request.delta", "request.media_spans"}),
        (replace(HELD, moment="turn"), {"session.table", "session.delta", "session.media_spans"}),
        (SCHEDULED, {"request.delta", "request.media_spans", "request.table", "freshness.fill_ids"}),
        (replace(HELD, moment="computed"), {"request.delta", "request.media_spans", "request.table"}),
        (replace(SCHEDULED, admitted=False), {"request.delta", "request.media_spans", "request.table"}),
        (RETRACTED, {"request.delta", "request.media_spans", "retraction.table", "retraction.same_history"}),
        (replace(HELD, hit=0), {"request.delta", "request.media_spans", "request.prefix_len"}),
        (replace(HELD, ids_before=HELD.ids), {"request.delta", "request.media_spans", "request.pad_values"}),
        (
            replace(HELD, delta_cache=Seen(dtype="int64", shape=(2, 1), values=((-3,), (-3,)))),
            {"request.delta", "request.media_spans", "freshness.delta_cache"},
        ),
        (
            replace(RETRACTED, table_before=HELD.table, admitted=False),
            {"request.delta", "request.media_spans", "retraction.table", "retraction.refused_attempts"},
        ),
    ],
)
def test_what_is_right_and_the_rules_that_speak_of_it(held: HeldState, rules: set[str]) -> None:
    assert said(held) == dict.fromkeys(ALWAYS | rules)


def test_a_request_without_media_needs_no_table() -> None:
    words = Place(rows=((0, 1),) * 3, tabulated=2, delta=Delta(0), has_media=False)
    held = replace(
        SCHEDULED,
        place=words,
        spans=(),
        offsets=(),
        media=(False, False),
        raw=(1, 2),
        ids=(1, 2),
        unpadded_ids=(1, 2),
        fill_ids=(1, 2, 3, 4),
        table=None,
        delta=None,
    )
    assert said(held) == dict.fromkeys(ALWAYS | {"request.media_spans", "freshness.fill_ids"})
    assert set(said(replace(held, table=HELD.table, delta=ONE))) > {"request.table", "request.delta"}


@pytest.mark.parametrize(
    ("seen", "found"),
    [
        (None, wrong("table", 6, "None", "table missing", "the request has media but no table")),
        (
            Seen(dtype="int64", shape=(6,), values=()),
            wrong("table", 3, "[6]", "wrong number of rows", "table of shape [6]"),
        ),
        (
            Seen(dtype="int64", shape=(1, 6), values=()),
            wrong("table", 3, "[1, 6]", "wrong number of rows", "table of shape [1, 6]"),
        ),
        (
            table(*COLUMNS, dtype="int32"),
            wrong("table", "int64", "int32", "dtype int32", "table of dtype int32"),
        ),
        (
            table(*COLUMNS[:5]),
            wrong("table", 6, 5, "too few columns", "5 columns for a prompt of 6 tokens"),
        ),
        (
            table(*COLUMNS[:2], (1, 1, 9), (1, 2, 9), *COLUMNS[4:]),
            wrong("table", "(1, 1, 2)", "(1, 1, 9)", "", "column 2: (1, 1, 9), must be (1, 1, 2)", at=2),
        ),
        (
            table(*COLUMNS, (4, 4, 4), (4, 4, 4)),
            wrong("table", "(5, 5, 5)", "(4, 4, 4)", "", "column 7: (4, 4, 4), must be (5, 5, 5)", at=7),
        ),
        (table(*COLUMNS, (4, 4, 4), (5, 5, 5)), None),
    ],
)
@pytest.mark.parametrize(
    ("held", "rule"),
    [
        (replace(HELD, moment="turn"), "session.table"),
        (SCHEDULED, "request.table"),
        (RETRACTED, "retraction.table"),
    ],
)
def test_a_table(held: HeldState, rule: str, seen: Seen | None, found: Violation | None) -> None:
    assert broken(replace(held, table=seen)) == ({} if found is None else {rule: found})


@pytest.mark.parametrize(
    ("seen", "found"),
    [
        (None, wrong("delta", -2, "None", "delta missing", "the request has media but no delta")),
        (
            Seen(dtype="int64", shape=(1,), values=((-2,),)),
            wrong("delta", "[1, 1]", "[1]", "wrong shape", "delta of shape [1]"),
        ),
        (
            Seen(dtype="int32", shape=(1, 1), values=((-2,),)),
            wrong("delta", "int64", "int32", "dtype int32", "delta of dtype int32"),
        ),
        (
            Seen(dtype="int64", shape=(1, 1), values=((-1,),)),
            wrong("delta", -2, -1, "another delta", "delta -1, the history has -2"),
        ),
    ],
)
@pytest.mark.parametrize(("moment", "rule"), [("turn", "session.delta"), ("later", "request.delta")])
def test_a_delta(moment: str, rule: str, seen: Seen | None, found: Violation) -> None:
    assert broken(replace(HELD, moment=moment, delta=seen)) == {rule: found}


@pytest.mark.parametrize(
    ("offsets", "words"),
    [
        (((1, 5),), "items missing"),
        (((1, 5), (6, 8), (9, 10)), "items left over"),
        (((1, 5), (7, 8)), "items misplaced"),
    ],
)
@pytest.mark.parametrize(("moment", "rule"), [("turn", "session.media_spans"), ("later", "request.media_spans")])
def test_items(moment: str, rule: str, offsets: tuple[tuple[int, int], ...], words: str) -> None:
    two = replace(HELD, moment=moment, spans=((1, 5), (6, 8)))
    assert not broken(replace(two, offsets=((6, 8), (1, 5))))  # in whatever order
    message = f"media items at {list(offsets)}, the history has them at [(1, 5), (6, 8)]"
    assert broken(replace(two, offsets=offsets)) == {
        rule: wrong("offsets", "[(1, 5), (6, 8)]", str(list(offsets)), words, message)
    }


@pytest.mark.parametrize(
    ("ids", "found"),
    [
        ((1, 77, 77, 77, 2), wrong("ids", 6, 5, "wrong length", "5 padded tokens for 6")),
        (
            (1, 77, 11, 77, 77, 2),
            wrong("ids", "pad value", 11, "raw placeholder left", "token 2 holds 11, raw 11", at=2),
        ),
        (
            (1, 77, 77, 77, 77, 78),
            wrong("ids", 2, 78, "text token changed", "token 5 holds 78, raw 2", at=5),
        ),
    ],
)
def test_placeholders_are_padded_and_words_are_not(ids: tuple[int, ...], found: Violation) -> None:
    assert broken(replace(HELD, ids=ids)) == {"freshness.padded_media": found}


def test_a_placeholder_keeps_its_pad_value() -> None:
    before = (9, 77, 77, 78, 77, 9)  # text is not looked at here
    message = "token 3 holds 77, it held 78"
    assert broken(replace(HELD, ids_before=before)) == {
        "request.pad_values": wrong("ids", 78, 77, "another pad value", message, at=3)
    }
    assert "request.pad_values" not in said(replace(HELD, ids_before=before[:5]))
    two = replace(HELD, ids_before=before, spans=((1, 2), (3, 5)))
    assert broken(two)["request.pad_values"].at == 3


@pytest.mark.parametrize("values", [((-2,), (-3,)), ((-4,), (-4,)), ()])
def test_a_delta_cache_is_the_deltas(values: tuple[tuple[int, ...], ...]) -> None:
    """delta - 1 = -3, to be added to seq_len."""
    cache = Seen(dtype="int64", shape=(len(values), 1), values=values)
    seen = sorted({value for row in values for value in row})
    assert broken(replace(HELD, delta_cache=cache)) == {
        "freshness.delta_cache": wrong(
            "delta_cache", "[-3]", str(seen), "stale cache", f"caches {seen}, the delta is -2"
        )
    }


@pytest.mark.parametrize(
    ("changed", "rule", "axis", "right"),
    [
        ({"unpadded_ids": ()}, "request.prompt", "unpadded_ids", HELD.raw),
        ({"output_ids": ()}, "request.outputs", "output_ids", (3, 4)),
        ({"moment": "scheduled", "fill_ids": None}, "freshness.fill_ids", "fill_ids", (*HELD.ids, 3, 4)),
        (
            {"moment": "scheduled", "retracted": True, "fill_ids": ()},
            "retraction.same_history",
            "fill_ids",
            (*HELD.ids, 3, 4),
        ),
    ],
)
def test_tokens(changed: dict[str, Any], rule: str, axis: str, right: tuple[int, ...]) -> None:
    message = f"0 tokens, must be the {len(right)} of prompt and outputs"
    assert broken(replace(HELD, **changed)) == {rule: wrong(axis, str(list(right)), "[]", "too few tokens", message)}
    other = replace(HELD, **{**changed, axis: (*right[:-1], 99)})
    assert {id: one.shape for id, one in broken(other).items()} == {rule: "other tokens"}
    longer = replace(HELD, **{**changed, axis: (*right, 99)})
    assert {id: one.shape for id, one in broken(longer).items()} == {rule: "too many tokens"}


def test_many_tokens_are_shown_by_their_first() -> None:
    assert short((1, 2, 3), 3) == "[1, 2, 3]" and short((1, 2, 3, 4), 3) == "[1, 2, 3, ..]" and short(()) == "[]"
    assert short(tuple(range(13))) == "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, ..]"
    assert short(tuple(range(12))) == "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]"


def test_a_hit_is_what_the_cache_holds() -> None:
    assert not broken(replace(HELD, hit=4, prefix_len=4))
    assert broken(replace(HELD, hit=4, prefix_len=5)) == {
        "request.prefix_len": wrong("prefix_len", 4, 5, "another prefix_len", "prefix_len 5, the cache holds 4")
    }


BEFORE = (*COLUMNS, (4, 4, 4))
ATTEMPT = replace(RETRACTED, table=table(*BEFORE), table_before=table(*BEFORE))


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        (BEFORE, (*BEFORE, (5, 5, 5)), None),  # as long as the request: six of the prompt, two outputs
        (BEFORE, COLUMNS, wrong("table", 7, 6, "columns lost")),
        (
            (*COLUMNS, (3, 3, 3)),
            BEFORE,
            wrong("table", "(3, 3, 3)", "(4, 4, 4)", "columns changed", at=6),
        ),
        (
            BEFORE,
            (*BEFORE, (5, 5, 5), (6, 6, 6)),
            wrong(
                "table",
                8,
                9,
                "table longer than the request",
                "a table of 9 columns for a request of 8 tokens",
                at=8,
            ),
        ),
    ],
)
def test_an_attempt_to_schedule_changes_no_column(
    before: tuple[tuple[int, ...], ...], after: tuple[tuple[int, ...], ...], found: Violation | None
) -> None:
    found_all = broken(replace(ATTEMPT, table=table(*after), table_before=table(*before)))
    assert found_all == ({} if found is None else {"retraction.refused_attempts": found})


def test_an_attempt_says_nothing_of_what_is_no_table() -> None:
    flat = Seen(dtype="int64", shape=(6,), values=())
    for held in (replace(ATTEMPT, table_before=flat), replace(ATTEMPT, table=flat)):
        assert said(held)["retraction.refused_attempts"] is None


@pytest.mark.parametrize("parent", [False, True])
def test_what_stands_by_is_left_alone(parent: bool) -> None:
    rule = "ownership.parent_unchanged" if parent else "ownership.others_unchanged"
    same = Bystander(parent=parent, field="table", was=1, now=1)
    assert said(same) == {rule: None}
    assert broken(replace(same, now=2)) == {rule: wrong("table")}
    assert bool(broken(replace(same, now=2, filled=True))) == parent


@pytest.mark.parametrize(("aborted", "verb"), [(True, "aborted"), (False, "taken up again")])
def test_a_request_stays_aborted_or_not(aborted: bool, verb: str) -> None:
    assert said(Standing(refused=aborted, aborted=aborted)) == {"request.aborted": None}
    odd = Standing(refused=not aborted, aborted=aborted)
    found = wrong("aborted", str(not aborted), str(aborted), verb, f"was {verb}")
    assert broken(odd) == {"request.aborted": found}
    assert broken(replace(odd, note="why")) == {"request.aborted": replace(found, message=f"was {verb}: why")}
    assert said(replace(odd, replaced=True)) == {}

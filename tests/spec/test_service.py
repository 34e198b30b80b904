"""The rules of costs, of a scheduler's batches, of replies, prefix hits, laws and whole answers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ropecheck.spec.families.qwen2_vl import QWEN2_VL
from ropecheck.spec.history import History, image, text
from ropecheck.spec.live import Replayed
from ropecheck.spec.prefix import Hit, agreeing, alike
from ropecheck.spec.rules import Violation, all_rules
from ropecheck.spec.scheduling import AtRest, LoopEnd, Member, Newest, Reply, TokenCount, Window
from ropecheck.spec.views import Copies, Readings
from tests.spec.support import broken, said, wrong

COPIES = Copies(mode="decode", has_media=False, allowed=(2, 5), extra=0, copies=2)


@pytest.mark.parametrize(
    ("cost", "rule", "most"),
    [
        (COPIES, "cost.text_only", 2),
        (replace(COPIES, has_media=True), "cost.media", 5),
        (replace(COPIES, extra=3), "cost.host_lengths", 5),
        (replace(COPIES, extra=3, has_media=True), "cost.host_lengths", 8),
    ],
)
def test_copies_up_to_the_budget(cost: Copies, rule: str, most: int) -> None:
    assert said(replace(cost, copies=most)) == {rule: None}
    message = f"{most + 1} host-to-device copies, at most {most}"
    assert broken(replace(cost, copies=most + 1)) == {rule: wrong("copies", most, most + 1, "too many copies", message)}


def test_a_read_of_the_device_ends_the_count() -> None:
    assert said(replace(COPIES, reads=0)) == dict.fromkeys(("cost.text_only", "cost.device_values"))
    for read in (replace(COPIES, reads=2), replace(COPIES, reads=2, has_media=True), replace(COPIES, reads=2, extra=1)):
        assert said(read) == {
            "cost.device_values": wrong("reads", 0, 2, "reads the device", "reads a value of the device on the host")
        }


@pytest.mark.parametrize(("media", "most"), [(False, 0), (True, 1)])
def test_waits(media: bool, most: int) -> None:
    cost = replace(COPIES, has_media=media)
    assert not broken(replace(cost, waits=0)) and not broken(replace(cost, waits=most))
    message = f"waits {most + 1} times for the device, at most {most}"
    assert broken(replace(cost, waits=most + 1)) == {
        "cost.synchronisations": wrong("waits", most, most + 1, "too many waits", message)
    }


WINDOW = Window(mode="extend", start=3, count=2, computed=3, total=5, free=False)


@pytest.mark.parametrize(
    ("window", "found"),
    [
        (WINDOW, None),
        (replace(WINDOW, count=1), None),
        (replace(WINDOW, start=1, free=True), None),
        (replace(WINDOW, start=0, count=1, computed=0), None),
        (
            replace(WINDOW, count=3, free=True),
            wrong("window", 5, 6, "ends past the history", "computes tokens 3 .. 5 of 5"),
        ),
        (
            replace(WINDOW, count=0),
            wrong("window", 5, 3, "ends past the history", "computes tokens 3 .. 2 of 5"),
        ),
        (
            replace(WINDOW, start=-1, count=2),
            wrong("window", 5, 1, "ends past the history", "computes tokens -1 .. 0 of 5"),
        ),
        (
            replace(WINDOW, start=4, count=1),
            wrong("window", 3, 4, "skips tokens", "starts at token 4, but 3 are computed"),
        ),
        (
            replace(WINDOW, start=2),
            wrong("window", 3, 2, "computes tokens twice", "starts at token 2, but 3 are computed"),
        ),
    ],
)
def test_a_window(window: Window, found: Violation | None) -> None:
    assert said(window) == {"schedule.window": found}


@pytest.mark.parametrize(("computed", "words"), [(4, None), (3, "prompt not computed"), (5, "no token to read")])
def test_a_reply_goes_on_when_all_before_it_is_computed(computed: int, words: str | None) -> None:
    found = words and wrong("computed", 4, computed, words, f"{computed} of 5 tokens are computed")
    assert said(Newest(mode="decode", computed=computed, total=5)) == {"schedule.newest": found}


@pytest.mark.parametrize(
    ("state", "words"), [("unknown", "never arrived"), ("gone", "ended before"), ("replaced", "was replaced")]
)
def test_rows_belong_to_requests_that_live(state: str, words: str) -> None:
    assert not broken(Member(mode="decode", req="a", state="live"))
    assert broken(Member(mode="decode", req="a", state=state)) == {
        "schedule.members": wrong("request", None, "a", words, f"a row of request a, which {words}")
    }


@pytest.mark.parametrize(("seq_len", "words"), [(6, None), (5, "length too small"), (7, "length too large")])
def test_a_batchs_own_count(seq_len: int, words: str | None) -> None:
    found = words and wrong("seq_len", 6, seq_len, words, f"seq_len {seq_len}, must be 6")
    assert said(TokenCount(mode="decode", seq_len=seq_len, right=6)) == {"schedule.counts": found}


REPLY = Reply(got=(7, 8), before=1, answered=(6, 7, 8, 9), limit=3)


@pytest.mark.parametrize(
    ("reply", "found"),
    [
        (REPLY, None),
        (replace(REPLY, got=()), None),
        (replace(REPLY, limit=2), wrong("reply", 2, 3, "too many tokens", "3 tokens of at most 2")),
        (
            replace(REPLY, got=(7, 9)),
            wrong("reply", 8, 9, "wrong token", "token 2 of the reply is 9, the model answered 8", at=2),
        ),
        (
            replace(REPLY, answered=(6, 7)),
            wrong(
                "reply",
                "nothing",
                8,
                "token of nowhere",
                "token 2 of the reply is 8, the model answered nothing",
                at=2,
            ),
        ),
    ],
)
def test_a_reply_is_what_the_model_answered(reply: Reply, found: Violation | None) -> None:
    assert said(reply) == {"schedule.reply": found}


def test_at_rest_nothing_is_owed_and_nothing_held() -> None:
    rest = AtRest(retained=(), leak="", unanswered=())
    assert said(rest) == {"schedule.at_rest": None}
    for odd, shape, names in (
        (replace(rest, unanswered=("a", "b"), retained=("c",), leak="two pages"), "request never ended", "a, b"),
        (replace(rest, retained=("c",), leak="two pages"), "request still held", "c"),
    ):
        assert broken(odd) == {"schedule.at_rest": wrong("rest", None, names, shape, f"{shape}: {names}")}
    leak = wrong("rest", None, "two pages", "memory leak", "two pages")
    assert broken(replace(rest, leak="two pages")) == {"schedule.at_rest": leak}


def test_a_loop_goes_on() -> None:
    assert said(LoopEnd()) == {"schedule.survives": None}
    assert broken(LoopEnd(error="KeyError in f", message="'x'")) == {
        "schedule.survives": wrong("loop", None, "KeyError in f", "KeyError in f", "'x'")
    }


# ---------------------------------------------------------------- prefix hits

A, B, C = (0, 0, 0), (1, 1, 1), (1, 1, 2)


def test_a_hit_ends_where_columns_or_items_differ() -> None:
    hit = Hit(own=(A, B, C), other=(A, B, B), tokens=2, alike=3)
    assert agreeing(hit.own, hit.other) == 2 and hit.most == 2
    assert said(hit) == {"prefix.identity": None}
    assert broken(replace(hit, tokens=3)) == {
        "prefix.identity": wrong(
            "hit",
            2,
            3,
            "hit across other columns",
            "the second request is served 3 of 3 tokens; 2 are as the first one's",
            at=2,
        )
    }
    items = broken(replace(hit, alike=1))["prefix.identity"]
    assert (items.at, items.expected, items.observed, items.shape) == (1, 1, 2, "hit across another item")


@pytest.mark.parametrize(
    ("own", "other", "tokens"),
    [
        ((text(3),), (text(5),), 3),
        ((text(3), image(1, 4, 4)), (text(3), image(1, 4, 4)), 7),
        ((text(3), image(1, 4, 4), text(2)), (text(3), image(1, 4, 6), text(2)), 3),
        ((text(3), image(1, 2, 8), text(2)), (text(3), image(1, 8, 2), text(4)), 9),  # equal in length
        ((text(4),), (image(1, 4, 4),), 0),
        ((image(1, 4, 4),), (text(2),), 0),
        ((), (text(2),), 0),
    ],
)
def test_how_far_two_histories_are_alike(own: History, other: History, tokens: int) -> None:
    assert alike(QWEN2_VL, own, other) == alike(QWEN2_VL, other, own) == tokens


# ---------------------------------------------------------------- laws

LAWS = [id for id in all_rules() if id.startswith("laws.") and id != "laws.same_step_twice"]
ONE = "laws.text_rows_are_the_index"


@pytest.mark.parametrize("law", [id for id in LAWS if id != ONE])
def test_two_routes_agree_on_every_token_that_they_share(law: str) -> None:
    right = Readings(law=law, left={1: A, 2: B, 3: C}, right={2: B, 3: C, 4: A})
    assert said(right) == {law: None}
    message = "token 3: (1, 1, 2) by one route, (0, 0, 0) by the other"
    assert broken(replace(right, right={2: B, 3: A})) == {
        law: wrong("token", str(A), str(C), "two routes, two columns", message, at=3)
    }
    none = wrong("token", "a token in common", "none", "no token in common", "the two routes read no token in common")
    assert broken(replace(right, right={9: A})) == broken(replace(right, right=None)) == {law: none}


def test_text_reads_its_index() -> None:
    assert said(Readings(law=ONE, left={4: (4, 4, 4)})) == {ONE: None}
    assert broken(Readings(law=ONE, left={4: (4, 4, 4), 5: (5, 5, 6)})) == {
        ONE: wrong(
            "token",
            "(5, 5, 5)",
            "(5, 5, 6)",
            "rows differ from the index",
            "token 5: (5, 5, 6), must be (5, 5, 5)",
            at=5,
        )
    }
    assert broken(Readings(law=ONE, left={})) == {
        ONE: wrong("token", "a token", "none", "nothing read", "nothing was read")
    }


# ---------------------------------------------------------------- a server's whole answers

ANSWER = Replayed(
    got=(5, 6, 7),
    right=(5, 6, 7),
    got_logprobs=(-0.25, -0.5, -1.0),
    right_logprobs=(-0.25, -0.5, -1.0),
    margins=(1.0, 0.125, 1.0),
    tolerance=0.125,
)
OTHER = "token {} of the answer is {}, asked afresh it is {}"


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (ANSWER, None),
        (replace(ANSWER, got=(5, 6)), None),  # it was cut short
        (replace(ANSWER, got=(5, 9, 9)), None),  # two tokens as likely as each other, and another text behind them
        (replace(ANSWER, got_logprobs=(-0.25, -0.5, -1.125)), None),
        (replace(ANSWER, got_logprobs=(), right_logprobs=()), None),
        (replace(ANSWER, right_logprobs=(-0.25,)), None),
        (replace(ANSWER, got_logprobs=(-0.25,)), None),
        (
            replace(ANSWER, got=(5, 6, 9)),
            wrong("answer", 7, 9, "another token", OTHER.format(2, 9, 7), at=2),
        ),
        (
            replace(ANSWER, got=(9, 6, 7), margins=()),
            wrong("answer", 5, 9, "another token", OTHER.format(0, 9, 5), at=0),
        ),
        (
            replace(ANSWER, got_logprobs=(-0.25, -0.75, -1.0)),
            wrong(
                "answer",
                "-0.5000",
                "-0.7500",
                "another probability",
                "token 1 of the answer has log-probability -0.7500, asked afresh -0.5000",
                at=1,
            ),
        ),
        (
            replace(ANSWER, got=(5, 6, 7, 8)),
            wrong("answer", 3, 4, "longer", "4 tokens, asked afresh 3"),
        ),
    ],
)
def test_an_answer_beside_that_of_a_fresh_request(answer: Replayed, found: Violation | None) -> None:
    assert said(answer) == {"live.same_answer": found}

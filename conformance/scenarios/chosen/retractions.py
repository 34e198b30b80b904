"""Retraction: prompt and outputs are prefilled again, each token at the index it had."""

from collections.abc import Iterator

from ropecheck.conformance.scenario.operations import (
    Finish,
    Open,
    Operation,
    Reschedule,
    Retract,
    Scenario,
    Submit,
    Turn,
)
from ropecheck.conformance.scenario.words import decode, draft_extend, extend, mixed, verify, window
from ropecheck.conformance.scenarios.chosen.script import (
    PROMPTS,
    WIDE,
    answer,
    chain,
    prefill,
    replies,
    running,
    scenario,
)
from ropecheck.conformance.scenarios.chosen.sessions import FIRST, SECOND, turn, went_on
from ropecheck.spec.history import History, text


def retracted(prompt: History, reply: int) -> list[Operation]:
    """A request that is retracted when it has emitted so many tokens."""
    return [*running(prompt), *replies(0, reply), Retract(0)]


def second_retracted(kind: str) -> list[Operation]:
    """A session whose second turn, of that kind, is retracted when it has emitted three tokens."""
    return [*went_on(SECOND[kind]), prefill(1), *replies(1, 3), Retract(1)]


def scenarios() -> list[Scenario]:
    return list(_all())


def _all() -> Iterator[Scenario]:
    for name in ("text", "image", "video", "image last", "image alone", "two images", "one row", "long video"):
        yield scenario(
            f"retract, {name}",
            "Three outputs are prefilled again, then decoding goes on.",
            retracted(PROMPTS[name], 3),
            answer(0),
            decode((0,)),
        )
        yield scenario(
            f"retract twice, {name}",
            "The second retraction covers more outputs than the first.",
            retracted(PROMPTS[name], 2),
            answer(0),
            Retract(0),
            answer(0),
        )
    for name in ("image", "image last"):
        yield scenario(
            f"retract, refused twice, {name}",
            "Being considered and refused changes nothing.",
            retracted(PROMPTS[name], 3),
            Reschedule(0, refusals=2),
            answer(0),
        )
        yield scenario(
            f"retract, chunks across the table end, {name}",
            "The re-prefill is itself cut.",
            retracted(PROMPTS[name], 4),
            extend((window(0, 10),)),
            extend((window(0, 2),)),
            answer(0),
        )
        yield scenario(
            f"retract, prefix hit, {name}",
            "The prefix cache still holds the prompt.",
            retracted(PROMPTS[name], 4),
            extend((window(0, hit=10),)),
            decode((0,)),
        )
        yield scenario(
            f"retract, then speculate, {name}",
            "After the re-prefill a round runs as ever.",
            retracted(PROMPTS[name], 3),
            prefill(0),
            verify((0,), (chain(4),), path="direct"),
            draft_extend((0,), 4, path="direct"),
        )
    yield scenario(
        "retract, prefix hit before",
        "The prefix cache held a part of the prompt, and holds nothing any more.",
        Submit(0, PROMPTS["image"]),
        extend((window(0, hit=4),)),
        replies(0, 3),
        Retract(0),
        answer(0),
        decode((0,)),
    )
    yield scenario(
        "retract one of a batch",
        "The others go on, and meet it again in a mixed batch.",
        running(PROMPTS["image"], PROMPTS["text"], PROMPTS["video"]),
        decode((0, 1, 2)),
        Retract(2),
        decode((0, 1)),
        mixed((window(2, 12),), (0, 1)),
        mixed((window(2),), (0, 1)),
        decode((0, 1, 2)),
    )
    for kind, note in (
        ("image", "The retracted turn has a parent."),
        ("text", "It shares its parent's media, which must stay as saved."),
    ):
        yield scenario(f"retract a session's {kind} turn", note, second_retracted(kind), answer(1))
    yield scenario(
        "retract a session's text turn, then branch with an image",
        "The sibling sees the parent as it was saved.",
        second_retracted("text"),
        prefill(1),
        turn(2, SECOND["image"], 0),
        prefill(2),
        decode((1, 2)),
    )
    for more, note, first, second in (
        ("", "Its table grows; the second turn continues from the same history.", FIRST["image"], SECOND["image"]),
        (", then text", "As before, with a text turn after it.", (text(2), WIDE), (text(3),)),
    ):
        yield scenario(
            f"retract the first turn of a session{more}",
            note,
            Open(0),
            Turn(0, 0, first),
            prefill(0),
            replies(0, 3),
            Retract(0),
            answer(0),
            Finish(0),
            turn(1, second, 0),
            answer(1),
        )

"""Sessions: append, branch, replace, offset, drop_previous_output, abort and retry."""

from collections.abc import Iterator
from typing import Any

from ropecheck.conformance.scenario.operations import Abort, Finish, Open, Operation, Retract, Scenario, Submit, Turn
from ropecheck.conformance.scenario.words import decode, draft_extend, extend, mixed, verify, window
from ropecheck.conformance.scenarios.chosen.script import (
    CLIP,
    TALL,
    WIDE,
    answer,
    chain,
    media,
    prefill,
    replies,
    scenario,
)
from ropecheck.spec.history import History, text

FIRST: dict[str, History] = {"text": (text(4),), "image": (text(2), WIDE, text(2)), "image last": (text(2), TALL)}
SECOND: dict[str, History] = {
    "text": (text(3),),
    "image": (text(1), TALL, text(1)),
    "video first": (CLIP, text(2)),
    "image last": (text(1), WIDE),
}


def turn(
    req: int,
    prompt: History,
    parent: int | None = None,
    session: int = 0,
    *,
    replace: bool = False,
    offset: int = 0,
    drop_previous_output: bool = False,
) -> Turn:
    return Turn(session, req, prompt, parent, replace, offset, drop_previous_output)


def told(req: int, prompt: History, parent: int | None = None, reply: int = 2, session: int = 0) -> list[Operation]:
    """A turn that has finished with a reply."""
    return [turn(req, prompt, parent, session), prefill(req), *replies(req, reply), Finish(req)]


def opened(first: History, reply: int = 3, session: int = 0, req: int = 0) -> list[Operation]:
    """A session whose first turn has finished with a reply."""
    return [Open(session), *told(req, first, None, reply, session)]


def went_on(prompt: History, reply: int = 3, **how: Any) -> list[Operation]:
    """A session whose first turn has a picture and has finished with a reply, and its second turn, which goes on."""
    return [*opened(FIRST["image"], reply), turn(1, prompt, 0, **how)]


def scenarios() -> list[Scenario]:
    return [*_appends(), *_branches(), *_optional(), *_rewrites(), *_interleaved(), *_modes()]


def _appends() -> Iterator[Scenario]:
    for first, prompt in FIRST.items():
        for second, addition in SECOND.items():
            yield scenario(
                f"session, {first} then {second}",
                "The second turn continues from prompt and reply.",
                opened(prompt),
                turn(1, addition, 0),
                answer(1),
                Finish(1),
            )
    for where, note, hit in (
        ("past the table", "The prefix cache holds the parent's prompt and some of its reply.", 12),
        ("straddles the table end", "The hit ends inside the parent's prompt.", 7),
    ):
        went = went_on((text(4),), reply=4)
        yield scenario(f"session, window {where}", note, went, extend((window(1, hit=hit),)), decode((1,)))
    yield scenario(
        "session, chunks across the table end",
        "Chunks before, across and after the end of the table.",
        went_on((text(5),), reply=4),
        extend((window(1, 9),)),
        extend((window(1, 3),)),
        extend((window(1, 2),)),
        answer(1),
    )
    yield scenario(
        "session of four turns",
        "Image, text, video, text: each table continues the one before.",
        opened(FIRST["image"], 2),
        told(1, (text(2),), 0, 2),
        told(2, SECOND["video first"], 1, 3),
        turn(3, (text(2),), 2),
        extend((window(3, hit=20),)),
        decode((3,)),
    )
    yield scenario(
        "session, text turns before the first image",
        "The first media come after two text turns and replies.",
        opened(FIRST["text"], 2),
        told(1, (text(3),), 0, 2),
        turn(2, SECOND["image"], 1),
        answer(2),
    )
    for name, reply in (("a picture", 0), ("a reply", 1)):
        yield scenario(
            f"session, a start of sequence behind {name}",
            "A tokenizer puts it before every turn; it is no part of a history that goes on.",
            Open(0),
            Turn(0, 0, FIRST["image last"], max_new_tokens=reply),
            prefill(0),
            Finish(0),
            Turn(0, 1, SECOND["image"], 0, bos=True),
            prefill(1),
            decode((1,)),
        )
    yield scenario(
        "session, reply cut to its limit",
        "Only output_ids[:max_new_tokens] is part of the history.",
        Open(0),
        Turn(0, 0, FIRST["image"], max_new_tokens=2),
        prefill(0),
        replies(0, 4),
        Finish(0),
        turn(1, SECOND["image"], 0),
        answer(1),
    )


def _branches() -> Iterator[Scenario]:
    for name, (one, two) in {
        "image and image": (SECOND["image"], SECOND["image last"]),
        "text and image": (SECOND["text"], SECOND["image"]),
        "image and text": (SECOND["image"], SECOND["text"]),
    }.items():
        yield scenario(
            f"session branches, {name}",
            "Siblings see the parent as it was saved.",
            went_on(one),
            prefill(1),
            replies(1, 2),
            turn(2, two, 0),
            prefill(2),
            decode((1, 2)),
            decode((2, 1)),
        )
    yield scenario(
        "session branches before either runs",
        "Both siblings arrive before any is prefilled.",
        went_on(SECOND["image"]),
        turn(2, SECOND["video first"], 0),
        prefill(2, 1),
        decode((1, 2)),
    )
    yield scenario(
        "session, abort and retry",
        "The retry sees the parent as it was saved.",
        went_on(SECOND["image"]),
        prefill(1),
        Abort(1),
        turn(2, SECOND["image"], 0),
        answer(2),
    )
    yield scenario(
        "session, abort before the prefill and retry with text",
        "An aborted arrival leaves no media behind.",
        opened(FIRST["text"]),
        turn(1, SECOND["image"], 0),
        Abort(1),
        turn(2, (text(3),), 0),
        answer(2),
    )
    yield scenario(
        "session, append to an unknown request",
        "Refused; the next proper append is not disturbed.",
        opened(FIRST["image"]),
        turn(1, (text(1),), 9),
        turn(2, (text(2),), 0),
        answer(2),
    )
    yield scenario(
        "session, append to an unfinished request",
        "Refused; the parent goes on.",
        Open(0),
        turn(0, FIRST["image"]),
        prefill(0),
        turn(1, (text(2),), 0),
        decode((0,)),
        Finish(0),
        turn(2, (text(2),), 0),
        answer(2),
    )


def _optional() -> Iterator[Scenario]:
    """Turns that an engine may refuse; these say what they are where it takes them."""
    for name, addition in (("text", SECOND["text"]), ("image", SECOND["image"])):
        yield scenario(
            f"session, {name} on a turn that was given up",
            "Its tokens stay in the context, and so do its media.",
            Open(0),
            turn(0, FIRST["image"]),
            prefill(0),
            replies(0, 2),
            Abort(0),
            turn(1, addition, 0),
            answer(1),
        )
    yield scenario(
        "session, a running turn is replaced",
        "It is ended, and its context goes on.",
        Open(0),
        turn(0, FIRST["image"]),
        prefill(0),
        replies(0, 2),
        turn(1, SECOND["image"], 0, replace=True),
        answer(1),
    )


def _rewrites() -> Iterator[Scenario]:
    for name, addition in (("text", SECOND["text"]), ("image", SECOND["image"])):
        yield scenario(
            f"session, drop_previous_output then {name}",
            "The reply is left out.",
            went_on(addition, drop_previous_output=True),
            answer(1),
        )
        yield scenario(
            f"session, replace all with {name}",
            "Nothing of the earlier turns is left.",
            opened(FIRST["image"]),
            turn(1, addition, replace=True),
            answer(1),
        )
        yield scenario(
            f"session, replace after a turn with {name}",
            "The first turn's other child is gone.",
            went_on(SECOND["image last"]),
            prefill(1),
            Finish(1),
            turn(2, addition, 0, replace=True),
            answer(2),
        )
        yield scenario(
            f"session, a turn on one that was replaced, then {name}",
            "It is gone: the turn that names it is refused, and the one beside it is not.",
            went_on(SECOND["image last"]),
            prefill(1),
            Finish(1),
            turn(2, SECOND["text"], 0, replace=True),
            answer(2),
            turn(3, SECOND["image"], 1),
            turn(4, addition, 0),
            answer(4),
        )
        for keep, where in (
            (1, "before the image"),
            (2, "at the image's start"),
            (5, "inside the image"),
            (8, "at the image's end"),
            (9, "after the image"),
            (12, "inside the reply"),
        ):
            yield scenario(
                f"session, offset {where} then {name}",
                "Tokens past the offset are gone, and so are their media.",
                went_on(addition, reply=4, offset=keep),
                answer(1),
            )
    yield scenario(
        "session, a sibling's forward after an offset",
        "What is cached for one turn is derived from its own delta, whatever its sibling's is.",
        *opened((TALL,)),
        turn(1, (text(1),), 0, offset=1),
        turn(2, (text(1),), 0),
        prefill(2),
        prefill(1),
    )
    yield scenario(
        "session, a retraction beside a replaced session",
        "A turn that fails is no reason to lose sight of the other requests.",
        Open(0),
        turn(0, (TALL,)),
        Submit(2, (TALL,)),
        prefill(0),
        turn(3, (text(1),), replace=True),
        mixed((window(2),), (0,)),
        Retract(2),
        prefill(2),
    )
    yield scenario(
        "session, offset past the end",
        "All of the history is kept.",
        went_on((text(2),), reply=2, offset=99),
        answer(1),
    )
    yield scenario(
        "session, offset without the reply",
        "The offset counts in the history without its reply.",
        went_on((text(2),), reply=4, offset=9, drop_previous_output=True),
        answer(1),
    )


def _interleaved() -> list[Scenario]:
    return [
        scenario(
            "two sessions interleaved",
            "Turns of two sessions and a plain request in the same batches.",
            Open(0),
            Open(1),
            turn(0, FIRST["image"]),
            turn(1, FIRST["image last"], session=1),
            Submit(2, (text(3), WIDE)),
            answer(0, 1, 2),
            Finish(0),
            Finish(1),
            turn(3, SECOND["image"], 0),
            turn(4, SECOND["text"], 1, session=1),
            prefill(4, 3),
            decode((2, 3, 4)),
        ),
        scenario(
            "a session beside a plain request of the same prompt",
            "The table's end means different things to them.",
            opened(FIRST["image"]),
            Submit(5, FIRST["image"]),
            turn(1, (text(3),), 0),
            extend((window(5), window(1, hit=9))),
            decode((1, 5)),
        ),
    ]


def _modes() -> list[Scenario]:
    """A session's turn in the other modes."""
    return [
        scenario(
            "session turn in a mixed batch",
            "A window past the table beside a decode.",
            opened(FIRST["image"], 3),
            Submit(5, (text(2),)),
            prefill(5),
            turn(1, (text(4),), 0),
            mixed((window(1, 5, hit=8),), (5,)),
            mixed((window(1),), (5,)),
            decode((1, 5)),
        ),
        scenario(
            "session turn decodes in a mixed batch",
            "The decoding row is a session's.",
            went_on(media(TALL), reply=3),
            prefill(1),
            Submit(5, (text(3), WIDE)),
            mixed((window(5, 4),), (1,)),
            mixed((window(5),), (1,)),
        ),
        scenario(
            "session turn in a split prefill",
            "The window straddles the table end.",
            went_on((text(4),), reply=3),
            extend((window(1, hit=8),), mode="split_prefill"),
            decode((1,)),
        ),
        scenario(
            "session turn in speculation",
            "The delta of the whole history is used.",
            went_on(SECOND["video first"], reply=3),
            prefill(1),
            verify((1,), (chain(4),), path="direct"),
            draft_extend((1,), 4),
        ),
        scenario(
            "session text turn in speculation",
            "A text turn shares its parent's delta.",
            went_on((text(2),), reply=3),
            prefill(1),
            verify((1,), (chain(3),), path="direct"),
            draft_extend((1,), 3, path="direct"),
        ),
    ]

"""Streaming sessions: plain appends, one in flight, the token arrays shared in place."""

from ropecheck.conformance.scenario.operations import Abort, Finish, Open, Operation, Scenario, Turn
from ropecheck.conformance.scenario.words import decode, extend, window
from ropecheck.conformance.scenarios.chosen import sessions
from ropecheck.conformance.scenarios.chosen.script import CLIP, WIDE, answer, prefill, replies, scenario
from ropecheck.conformance.scenarios.chosen.sessions import told
from ropecheck.spec.history import History, text

IMAGE, SECOND = sessions.FIRST["image"], sessions.SECOND["image"]
THIRD: History = (CLIP, text(1))


def streamed(name: str, note: str, *ops: Operation | list[Operation]) -> Scenario:
    """What happens in a streaming session."""
    return scenario(name, note, Open(0, streaming=True), *ops)


def scenarios() -> list[Scenario]:
    two_turns = (
        ("image then image", "The second image turn's delta stays one value.", IMAGE, SECOND),
        ("text then image", "Padding changes token values but not their number.", (text(3),), SECOND),
        ("image then text", "The text turn shares the parent's media.", IMAGE, (text(3),)),
    )
    return [
        *(
            streamed(f"streaming, {name}", note, told(0, first), Turn(0, 1, second), answer(1), Finish(1))
            for name, note, first, second in two_turns
        ),
        streamed(
            "streaming, image, text, video, text",
            "Four turns in one growing history.",
            told(0, IMAGE, reply=3),
            told(1, (text(2),)),
            told(2, THIRD, reply=3),
            Turn(0, 3, (text(2),)),
            extend((window(3, hit=22),)),
            decode((3,)),
            Finish(3),
        ),
        streamed(
            "streaming, three images",
            "The delta is that of the whole history every time.",
            told(0, IMAGE),
            told(1, SECOND),
            told(2, (text(1), WIDE)),
            Turn(0, 3, (text(1),)),
            answer(3),
        ),
        streamed(
            "streaming, abort an image turn and retry",
            "The rollback point is the last finished turn.",
            told(0, IMAGE),
            Turn(0, 1, SECOND),
            prefill(1),
            Abort(1),
            Turn(0, 2, SECOND),
            answer(2),
            Finish(2),
        ),
        streamed(
            "streaming, abort an image turn and go on with text",
            "Nothing of the aborted media is left.",
            told(0, IMAGE),
            Turn(0, 1, THIRD),
            prefill(1),
            Abort(1),
            Turn(0, 2, (text(2),)),
            answer(2),
            Finish(2),
        ),
        streamed(
            "streaming, abort before the prefill",
            "An aborted arrival leaves no tokens behind.",
            told(0, (text(3),)),
            Turn(0, 1, SECOND),
            Abort(1),
            Turn(0, 2, (text(2),)),
            answer(2),
            Finish(2),
        ),
        streamed(
            "streaming, window past the table",
            "The hit covers the parent's prompt and reply.",
            told(0, IMAGE, reply=4),
            Turn(0, 1, (text(4),)),
            extend((window(1, 2, hit=11),)),
            answer(1),
        ),
        streamed(
            "streaming, reply past its limit",
            "Only the first max_new_tokens tokens of the reply count.",
            Turn(0, 0, IMAGE, max_new_tokens=2),
            prefill(0),
            replies(0, 4),
            Finish(0),
            Turn(0, 1, SECOND),
            answer(1),
        ),
        streamed(
            "streaming, second turn in flight",
            "Refused; the turn in flight goes on.",
            Turn(0, 0, IMAGE),
            prefill(0),
            Turn(0, 1, (text(1),)),
            decode((0,)),
            Finish(0),
            Turn(0, 2, (text(1),)),
            answer(2),
        ),
        streamed(
            "streaming, rewrites are refused",
            "Offset, replace and drop_previous_output are not offered.",
            told(0, IMAGE),
            Turn(0, 1, (text(1),), offset=3),
            Turn(0, 2, (text(1),), replace=True),
            Turn(0, 3, (text(1),), drop_previous_output=True),
            Turn(0, 4, (text(1),)),
            answer(4),
        ),
        streamed(
            "streaming, the smallest offset is refused",
            "One token is an offset too.",
            told(0, IMAGE),
            Turn(0, 1, (text(1),), offset=1),
            Turn(0, 2, (text(1),)),
            answer(2),
        ),
    ]

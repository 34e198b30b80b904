"""What clients do to a live server. `CROWD`: all at once; the others in turn, because they touch everybody."""

from dataclasses import dataclass

from ropecheck.conformance.scripts.script import (
    Action,
    Arrive,
    Close,
    Continue,
    GiveUp,
    OpenSession,
    Pause,
    Script,
    Step,
)
from ropecheck.spec.history import History, image, text

PICTURE: History = (text(3), image(1, 4, 6), text(3))
WIDE: History = (text(1), image(1, 4, 12), text(2), image(1, 6, 4), text(5))
LONG: History = (text(90), image(1, 8, 8), text(60), image(1, 4, 4), text(30))
WORDS: History = (text(9),)
ENDS_WITH_MEDIA: History = (text(4), image(1, 4, 6))

CROWD: dict[str, tuple[Action, ...]] = {
    "a picture": (Arrive(0, PICTURE, 12),),
    "words": (Arrive(0, WORDS, 16), Arrive(1, (text(40),), 8, content=3)),
    "two pictures, chunked": (Arrive(0, LONG, 10, content=1),),
    "one prompt twice": (Arrive(0, WIDE, 8, content=2), Step(20), Arrive(1, WIDE, 8, content=2)),
    "one beginning, two ends": (
        Arrive(0, (*WIDE, text(9)), 6, content=4),
        Step(20),
        Arrive(1, (*WIDE, text(3), image(1, 4, 4), text(4)), 6, content=4),
    ),
    "a talk with pictures": (
        OpenSession(0),
        Arrive(0, PICTURE, 6, session=0, content=5),
        Arrive(1, WORDS, 7, session=0, parent=0, content=6),
        Arrive(2, WIDE, 5, session=0, parent=1, content=7),
        Arrive(3, WORDS, 4, session=0, parent=2, content=8),
    ),
    "a talk that branches": (
        OpenSession(0),
        Arrive(0, PICTURE, 4, session=0, content=9),
        Arrive(1, WIDE, 5, session=0, parent=0, content=10),
        Arrive(2, WORDS, 6, session=0, parent=0, content=11),
        Arrive(3, WORDS, 3, session=0, parent=0, drop_previous_output=True, content=12),
    ),
    "given up": (Arrive(0, PICTURE, 200, content=13), Step(8), GiveUp(0), Arrive(1, WORDS, 5, content=14)),
    "given up in a chunk": (Arrive(0, LONG, 200, content=15), GiveUp(0), Arrive(1, PICTURE, 4, content=16)),
}

ALONE: dict[str, tuple[Action, ...]] = {
    "retracted": (
        Arrive(0, PICTURE, 40, content=20),
        Arrive(1, WIDE, 40, content=21),
        Arrive(2, WORDS, 40, content=22),
        Step(6),
        Pause("retract"),
        Step(),
        Continue(),
    ),
    "retracted right after a picture": (
        Arrive(0, ENDS_WITH_MEDIA, 30, content=23),
        Step(6),
        Pause("retract"),
        Step(),
        Continue(),
    ),
}

LONGER: dict[str, tuple[Action, ...]] = {
    "paused": (
        Arrive(0, PICTURE, 30, content=24),
        Step(6),
        Pause(),
        Step(2),
        Continue(),
        Arrive(1, WIDE, 6, content=25),
    ),
    "a talk cut short": (
        OpenSession(0),
        Arrive(0, WIDE, 5, session=0, content=26),
        Arrive(1, PICTURE, 5, session=0, parent=0, offset=2, content=27),
    ),
    "a talk, streaming": (
        OpenSession(0, streaming=True),
        Arrive(0, PICTURE, 5, session=0, content=28),
        Arrive(1, WORDS, 5, session=0, content=29),
        Arrive(2, WIDE, 5, session=0, content=30),
        Close(0),
    ),
    "a picture cut by a chunk": (Arrive(0, (text(60), image(1, 8, 8), text(9)), 8, content=33),),
    "a talk that starts afresh": (
        OpenSession(0),
        Arrive(0, PICTURE, 4, session=0, content=31),
        Arrive(1, WORDS, 4, session=0, replace=True, content=32),
    ),
}
"""Played alone in a long run, besides: the last one ends the server of 0.5.23."""

MANY: dict[str, tuple[Action, ...]] = {
    f"many {part}": tuple(
        one
        for number in range(8)
        for one in (
            Arrive(
                number,
                (PICTURE, WIDE, WORDS, LONG)[(number + part) % 4],
                80 + 17 * number,
                content=40 + 8 * part + number,
            ),
            Step(),
        )
    )
    for part in range(5)
}
"""For thousands of forwards."""


@dataclass(frozen=True, slots=True)
class Group:
    """Clients that play at the same time."""

    scripts: tuple[Script, ...]


def names() -> tuple[str, ...]:
    """Every script's name."""
    return (*CROWD, *ALONE, *LONGER, *MANY)


def groups(server: str, family: str, long: bool, only: tuple[str, ...] = ()) -> list[Group]:
    """What is played on a server, in order. only: these scripts, one after another."""

    def made(actions: dict[str, tuple[Action, ...]]) -> tuple[Script, ...]:
        return tuple(Script(name, server, these, family=family) for name, these in actions.items())

    if only:
        every = CROWD | ALONE | LONGER | MANY
        return [Group((script,)) for script in made({name: every[name] for name in only})]
    alone = ALONE | (LONGER if long else {})
    found = [Group(made(CROWD)), *(Group((script,)) for script in made(alone))]
    many = [Group((script,)) for script in made(MANY)]
    return [*found[:1], *many, *found[1:]] if long else found

"""Scripts that somebody chose, one reason each, on every way to start the server."""

from functools import cache

from ropecheck.conformance.scripts.script import (
    Action,
    Arrive,
    Close,
    Continue,
    Flush,
    GiveUp,
    OpenSession,
    Pause,
    Script,
    Step,
)
from ropecheck.conformance.scripts.servers import servers
from ropecheck.spec.history import History, image, text, video

IMAGE: History = (text(2), image(1, 4, 6), text(2))
TWO_IMAGES: History = (text(1), image(1, 8, 4), text(1), image(1, 4, 4))
VIDEO: History = (text(1), video(2, 4, 4, 1.0), text(2))
SHORT: History = (text(7),)
LONG: History = (text(50), image(1, 8, 8), text(20))
ENDS_WITH_MEDIA: History = (text(1), image(1, 4, 6))
EMBEDS = (("input_embeds", True),)
FAR: History = (text(290), image(1, 4, 6), text(3))
SLOW_CLIP: History = (text(1), video(2, 2, 2, 3.0), text(1))
TALK: tuple[Action, ...] = (OpenSession(0), Arrive(0, IMAGE, 3, 0), Step(6))
"""A session whose first turn has a picture, and has answered."""
STREAM: tuple[Action, ...] = (OpenSession(0, True), Arrive(0, IMAGE, 3, 0), Step(6))
"""The same, streaming."""
GIVEN_UP: tuple[Action, ...] = (OpenSession(0), Arrive(0, IMAGE, 30, 0), Step(4), GiveUp(0))
"""A session whose first turn has a picture, and is given up while it answers."""


def _actions() -> dict[str, tuple[Action, ...]]:
    """Name -> what the clients do."""
    return {
        "one text": (Arrive(0, SHORT),),
        "one image": (Arrive(0, IMAGE),),
        "ends with media": (Arrive(0, ENDS_WITH_MEDIA, 6),),
        "two images, one text": (Arrive(0, TWO_IMAGES), Arrive(1, SHORT)),
        "prefix hit": (Arrive(0, IMAGE), Step(6), Arrive(1, IMAGE)),
        "chunks": (Arrive(0, LONG, 5),),
        "chunks beside a decode": (Arrive(0, IMAGE, 12), Step(3), Arrive(1, LONG, 3)),
        "chunks beside one far ahead": (Arrive(0, FAR, 12), Step(11), Arrive(1, LONG, 3), Arrive(2, SHORT, 1)),
        "lengths apart": (
            Arrive(0, IMAGE, 8),
            Step(2),
            Arrive(1, TWO_IMAGES, 4),
            Arrive(2, SHORT, 6),
            Step(2),
            Arrive(3, ENDS_WITH_MEDIA, 3),
        ),
        "abort one of three": (Arrive(0, IMAGE, 9), Arrive(1, TWO_IMAGES, 9), Arrive(2, VIDEO, 9), Step(4), GiveUp(1)),
        "abort in a chunk": (Arrive(0, LONG, 9), Arrive(1, SHORT, 9), Step(2), GiveUp(0)),
        "abort all": (Arrive(0, LONG, 9), Arrive(1, SHORT, 9), Step(2), GiveUp()),
        "abort at once": (Arrive(0, LONG, 9), GiveUp(0), Arrive(1, SHORT)),
        "zero new tokens": (Arrive(0, IMAGE, 0), Arrive(1, SHORT, 2)),
        "one new token": (Arrive(0, IMAGE, 1), Arrive(1, IMAGE, 1), Arrive(2, VIDEO, 1)),
        "stop tokens": (Arrive(0, IMAGE, 20, stop_every=13), Arrive(1, TWO_IMAGES, 20, stop_every=7)),
        "n answers": (Arrive(0, IMAGE, 0), Step(4), Arrive(1, IMAGE, 4, copies=3), Arrive(2, IMAGE, 4)),
        "beams": (Arrive(0, IMAGE, 6, beams=3), Step(2), Arrive(1, SHORT, 4, beams=2), Arrive(2, TWO_IMAGES, 3)),
        "beams stop": (Arrive(0, SHORT, 20, beams=3, stop_every=5), Arrive(1, IMAGE, 9), Step(3), GiveUp(1)),
        "beams given up": (Arrive(0, SHORT, 9, beams=2), Arrive(1, SHORT, 5), Step(3), GiveUp(0)),
        "beams paused": (Arrive(0, SHORT, 6, beams=2), Step(3), Pause("retract"), Continue()),
        "pause in place": (
            Arrive(0, IMAGE, 6),
            Arrive(1, ENDS_WITH_MEDIA, 6),
            Step(3),
            Pause(),
            Step(2),
            Arrive(2, SHORT),
            Continue(),
        ),
        "pause and retract": (Arrive(0, IMAGE, 6), Step(3), Pause("retract"), Step(2), Arrive(1, SHORT), Continue()),
        "retract behind media": (Arrive(0, ENDS_WITH_MEDIA, 6), Step(4), Pause("retract"), Continue()),
        "flush": (Arrive(0, IMAGE, 3), Step(6), Flush(), Arrive(1, IMAGE, 3), Step(2), Flush()),
        "many": tuple(Arrive(i, (IMAGE, TWO_IMAGES, VIDEO, SHORT, LONG)[i % 5], 20 + i) for i in range(10)),
        "preemption": (
            Arrive(0, IMAGE, 9),
            Arrive(1, VIDEO, 9),
            Step(3),
            Arrive(2, TWO_IMAGES, 5, priority=9),
            Arrive(3, SHORT, 5, priority=5),
        ),
        "append": (*TALK, Arrive(1, TWO_IMAGES, 3, 0, 0), Step(8), Arrive(2, SHORT, 3, 0, 1)),
        "branch": (*TALK, Arrive(1, TWO_IMAGES, 3, 0, 0), Arrive(2, SHORT, 3, 0, 0)),
        "append to an unfinished turn": (OpenSession(0), Arrive(0, IMAGE, 9, 0), Step(2), Arrive(1, SHORT, 3, 0, 0)),
        "append to a turn given up": (*GIVEN_UP, Step(3), Arrive(1, SHORT, 3, 0, 0)),
        "append media to a turn given up": (*GIVEN_UP, Step(3), Arrive(1, TWO_IMAGES, 3, 0, 0)),
        "append to a turn given up while waiting": (
            OpenSession(0),
            Arrive(0, IMAGE, 9, 0),
            GiveUp(0),
            Step(2),
            Arrive(1, SHORT, 3, 0, 0),
        ),
        "append to a turn that is being given up": (*GIVEN_UP, Arrive(1, SHORT, 3, 0, 0)),
        "append to a turn given up in a chunk": (
            OpenSession(0),
            Arrive(0, LONG, 9, 0),
            Step(2),
            GiveUp(0),
            Step(3),
            Arrive(1, SHORT, 3, 0, 0),
        ),
        "replace a running turn": (
            OpenSession(0),
            Arrive(0, IMAGE, 30, 0),
            Step(4),
            Arrive(1, TWO_IMAGES, 3, 0, 0, replace=True),
        ),
        "replace a waiting turn": (OpenSession(0), Arrive(0, IMAGE, 9, 0), Arrive(1, SHORT, 3, 0, 0, replace=True)),
        "append to a request of no session": (OpenSession(0), Arrive(0, IMAGE, 2), Step(6), Arrive(1, SHORT, 3, 0, 0)),
        "turn after close": (OpenSession(0), Arrive(0, IMAGE, 6, 0), Step(2), Close(0), Arrive(1, SHORT, 2, 0, 0)),
        "close under a waiting turn": (OpenSession(0), Arrive(0, ENDS_WITH_MEDIA, 2, 0), Close(0)),
        "close under a running stream": (OpenSession(0, True), Arrive(0, IMAGE, 6, 0), Step(2), Close(0)),
        "a session times out": (*TALK, Close(0, timeout=True), Arrive(1, SHORT, 2, 0, 0)),
        "a session times out under a turn": (
            *TALK,
            Arrive(1, LONG, 5, 0, 0),
            Step(2),
            Close(0, timeout=True),
            Arrive(2, SHORT, 2, 0, 0),
        ),
        "a stream times out under a turn": (
            OpenSession(0, True),
            Arrive(0, IMAGE, 6, 0),
            Step(2),
            Close(0, timeout=True),
        ),
        "two turns at once": (OpenSession(0), Arrive(0, IMAGE, 3, 0), Arrive(1, ENDS_WITH_MEDIA, 2, 0, 0)),
        "two turns of a stream at once": (OpenSession(0, True), Arrive(0, SHORT, 2, 0), Arrive(1, SHORT, 1, 0)),
        "offset before media": (*TALK, Arrive(1, SHORT, 3, 0, 0, offset=1)),
        "offset behind media": (*TALK, Arrive(1, TWO_IMAGES, 3, 0, 0, offset=11)),
        "offset 0": (*TALK, Arrive(1, SHORT, 3, 0, 0, offset=0)),
        "offsets below zero": (
            *TALK,
            Arrive(1, SHORT, 3, 0, 0, offset=-2),
            Step(6),
            Arrive(2, TWO_IMAGES, 3, 0, 0, offset=-99),
        ),
        "all that rewrites at once": (
            OpenSession(0),
            Arrive(0, IMAGE, 3, 0, offset=4),
            Step(6),
            Arrive(1, SHORT, 3, 0, 0, offset=10, replace=True, drop_previous_output=True),
        ),
        "names that nobody knows": (
            Close(7),
            GiveUp(9),
            OpenSession(0),
            OpenSession(0, True),
            Arrive(0, IMAGE, 3, 0),
            Step(6),
            OpenSession(1),
            Arrive(1, SHORT, 2, 1, 0),
            Arrive(2, SHORT, 2, 0, 9),
            Arrive(3, IMAGE, 2, 5),
            Arrive(4, TWO_IMAGES, 2, None, 0, offset=3),
            Step(6),
            Arrive(5, SHORT, 2, 0),
        ),
        "ids that begin alike": (
            Arrive(1, IMAGE, 9),
            Arrive(10, TWO_IMAGES, 9),
            Step(3),
            GiveUp(1),
            Step(2),
            Arrive(2, SHORT, 2),
        ),
        "an unknown turn and a picture": (OpenSession(0), Arrive(0, IMAGE, 3, 0, 7)),
        "a session's name again": (
            *TALK,
            Close(0),
            OpenSession(0),
            Arrive(1, SHORT, 3, 0, 0),
            Arrive(2, TWO_IMAGES, 3, 0),
        ),
        "a turn that is too long": (
            *TALK,
            Arrive(1, (text(150),), 6, 0, 0),
            Step(4),
            Arrive(2, SHORT, 4, 0, 1),
            Arrive(3, (*LONG, text(90)), 3),
            Arrive(4, TWO_IMAGES, 2, 0, 0),
        ),
        "past the context": (
            Arrive(0, IMAGE, 150),
            Arrive(1, (text(80),), 3),
            Arrive(2, (text(40), image(1, 8, 8), text(40)), 3),
            OpenSession(0),
            Arrive(3, IMAGE, 3, 0),
            Step(8),
            Arrive(4, (text(60),), 3, 0, 3),
            Arrive(5, (text(40), image(1, 8, 8)), 3, 0, 3),
            Step(3),
            Arrive(6, TWO_IMAGES, 3, 0, 3),
        ),
        "turns that add nothing": (
            *TALK,
            Arrive(1, (), 3, 0, 0),
            Arrive(2, (), 3, 0, 0, drop_previous_output=True),
            Step(8),
            Arrive(3, TWO_IMAGES, 3, 0, 1),
        ),
        "embeddings": (Arrive(0, (text(40),), 6, more=EMBEDS), Arrive(1, IMAGE, 4)),
        "a turn of embeddings": (OpenSession(0), Arrive(0, SHORT, 3, 0, more=EMBEDS)),
        "keys of a cache": (
            Arrive(0, IMAGE, 3, more=(("extra_key", "a"),)),
            Step(6),
            Arrive(1, IMAGE, 3, more=(("extra_key", "b"),)),
            Arrive(2, IMAGE, 3, more=(("cache_salt", "a"),)),
            Step(6),
            Arrive(3, IMAGE, 3, more=(("extra_key", "a"), ("cache_salt", "a"))),
            OpenSession(0),
            Arrive(4, IMAGE, 3, 0, more=(("extra_key", "a"),)),
            Step(6),
            Arrive(5, TWO_IMAGES, 3, 0, 4, more=(("extra_key", "b"),)),
        ),
        "probabilities of a prompt": (
            Arrive(0, LONG, 3),
            Step(8),
            Arrive(1, LONG, 3, more=(("return_logprob", True), ("logprob_start_len", 55))),
            Arrive(2, LONG, 3, more=(("return_logprob", True), ("logprob_start_len", 0), ("top_logprobs_num", 0))),
        ),
        "answers that are drawn": (
            Arrive(0, IMAGE, 6, more=(("temperature", 1),)),
            Arrive(1, TWO_IMAGES, 6, more=(("temperature", 1), ("sampling_seed", 7))),
        ),
        "a retraction in a chunk": (Arrive(0, LONG, 3), Step(2), Pause("retract"), Continue()),
        "an end that is ignored": (Arrive(0, IMAGE, 12, stop_every=7, more=(("ignore_eos", True),)),),
        "drop the reply": (*TALK, Arrive(1, SHORT, 3, 0, 0, drop_previous_output=True)),
        "replace a child": (*TALK, Arrive(1, SHORT, 3, 0, 0), Step(6), Arrive(2, TWO_IMAGES, 2, 0, 0, replace=True)),
        "name a turn that was replaced": (
            *TALK,
            Arrive(1, SHORT, 3, 0, 0),
            Step(6),
            Arrive(2, TWO_IMAGES, 2, 0, 0, replace=True),
            Step(6),
            Arrive(3, SHORT, 2, 0, 1),
        ),
        "replace everything": (OpenSession(0), Arrive(0, IMAGE, 2, 0), Step(4), Arrive(1, SHORT, 2, 0, replace=True)),
        "turn without a reply": (OpenSession(0), Arrive(0, IMAGE, 0, 0), Step(4), Arrive(1, TWO_IMAGES, 3, 0, 0)),
        "streaming": (*STREAM, Arrive(1, SHORT, 3, 0), Step(6), Arrive(2, TWO_IMAGES, 2, 0)),
        "streaming, two at once": (
            OpenSession(0, True),
            Arrive(0, IMAGE, 9, 0),
            Step(2),
            Arrive(1, SHORT, 3, 0),
            Step(12),
            Arrive(2, TWO_IMAGES, 2, 0),
        ),
        "streaming, given up while waiting": (
            *STREAM,
            Arrive(1, SHORT, 9, 0),
            GiveUp(1),
            Step(3),
            Arrive(2, TWO_IMAGES, 4, 0),
        ),
        "streaming, a turn is named": (
            *STREAM,
            Arrive(1, SHORT, 3, 0, 9),
            Step(6),
            Arrive(2, SHORT, 3, 0, drop_previous_output=True),
            Step(2),
            Arrive(3, SHORT, 3, 0, offset=-1),
            Arrive(4, TWO_IMAGES, 3, 0, 0),
        ),
        "streaming, replace a running turn": (
            OpenSession(0, True),
            Arrive(0, IMAGE, 30, 0),
            Step(4),
            Arrive(1, SHORT, 3, 0, replace=True),
        ),
        "streaming, abort and retry": (
            *STREAM,
            Arrive(1, TWO_IMAGES, 9, 0),
            Step(2),
            GiveUp(1),
            Step(3),
            Arrive(2, SHORT, 4, 0),
        ),
    }


ENDS_THE_SERVER = ("replace everything", "two turns at once", "two turns of a stream at once", "beams paused")
"""These end 0.5.23's scheduler, however it was started: two ways say it all."""
ON = {
    **dict.fromkeys(
        (
            *ENDS_THE_SERVER,
            "an unknown turn and a picture",
            "offset 0",
            "offsets below zero",
            "all that rewrites at once",
            "names that nobody knows",
            "turns that add nothing",
            "ids that begin alike",
            "name a turn that was replaced",
            "a session's name again",
            "a session times out",
            "a session times out under a turn",
            "a stream times out under a turn",
            "keys of a cache",
            "probabilities of a prompt",
            "an end that is ignored",
        ),
        ("plain", "overlap"),
    ),
    "chunks beside one far ahead": (
        *("plain", "mixed", "overlap", "overlap_mixed"),
        *("ngram", "eagle_tree", "eagle_mixed", "two_batches"),
    ),
    "answers that are drawn": ("plain", "two_batches_eagle"),
    "a retraction in a chunk": ("plain", "overlap"),
    "past the context": ("short_context", "cut_context"),
    "a turn that is too long": ("small_pool",),
    "embeddings": ("no_prefix_cache",),
    "a turn of embeddings": ("no_prefix_cache",),
}
"""Script -> servers, where those say it all: what is said there is read when requests arrive, however a server was
started; a prompt is too long for a small pool, and embeddings want a server without a prefix cache."""


@cache
def all_scripts() -> tuple[Script, ...]:
    """Every chosen script on every server, or those that it names, one server after another: a worker starts each
    once."""
    scripts = []
    for server, about in servers().items():
        scripts += [
            Script(f"{name} ({server})", server, actions)
            for name, actions in _actions().items()
            if (name in about.scripts if about.scripts else server in ON.get(name, (server,)))
        ]
        if about.scripts:
            continue
        scripts.append(
            Script(
                f"positive delta ({server})", server, (Arrive(0, SLOW_CLIP, 6), Step(2), Arrive(1, SHORT)), "qwen2_5_vl"
            )
        )
    return tuple(scripts)

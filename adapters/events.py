"""The event stream of an engine at work: what a client asked, what every forward read, what the client got.

One event per line of JSON (NDJSON), in the order in which things happened. Nothing here is particular to an engine;
a recorder in any language can write it, and one judge reads it (`ropecheck trace check FILE`). Names of requests and
sessions are free strings, unique in a stream. Lengths count tokens. Fields with defaults may be left out.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

VERSION = 2
"""Raised with every change that an old reader would misread. 2: an offset of 0 is one; in 1 it was none."""
READ = (1, 2)
"""Versions that the judge reads."""


class PromptRun(msgspec.Struct, frozen=True, omit_defaults=True):
    """Consecutive prompt tokens of one kind: text, or all placeholder tokens of one media item."""

    kind: str
    """"text", "image", "video" or "audio"."""
    tokens: int = 0
    """Text and audio: how many. Image and video: 0, the family counts them from the grid."""
    grid: tuple[int, int, int] | None = None
    """(t, h, w) patches before the family's merge."""
    seconds_per_grid: float = 1.0


class TraceHeader(msgspec.Struct, frozen=True, tag="header", omit_defaults=True):
    """The first event."""

    version: int
    family: str
    """The model family, which decides the columns of media."""
    engine: str = ""
    engine_version: str = ""
    configuration: str = ""
    """A name for how the server was started."""
    part: int = 0
    """Which file of a stream. A later one goes on where the one before it ends; alone it begins in the middle."""


class Arrived(msgspec.Struct, frozen=True, tag="arrive", omit_defaults=True):
    """A client's request is handed to the engine. With `session` it is a turn, as the public interface has it."""

    req: str
    prompt: tuple[PromptRun, ...]
    """What this request itself brings."""
    max_new_tokens: int
    session: str = ""
    parent: str = ""
    """The turn that it continues; "" for the first, a replace of everything, or a streaming session's last."""
    offset: int | None = None
    replace: bool = False
    drop_previous_output: bool = False
    beams: int = 1
    """Beam search of so many rows; the answer is the best one's tokens."""
    embeds: bool = False
    """Its text is sent as embeddings, one a token, and not as ids."""


class Opened(msgspec.Struct, frozen=True, tag="open", omit_defaults=True):
    """A client opens a session."""

    session: str
    streaming: bool = False


class Closed(msgspec.Struct, frozen=True, tag="close"):
    """A client closes a session."""

    session: str


class Aborted(msgspec.Struct, frozen=True, tag="abort"):
    """A client gives a request up; "" for all."""

    req: str = ""


class Control(msgspec.Struct, frozen=True, tag="control"):
    """Any other thing that a client may ask: "pause retract", "pause in_place", "continue", "flush"."""

    what: str


class Retracted(msgspec.Struct, frozen=True, tag="retract"):
    """The engine takes a request's memory back; it will be prefilled again."""

    req: str


class Transfer(msgspec.Struct, frozen=True, tag="transfer", omit_defaults=True):
    """Another engine computed the request's prompt, and what it answered; its cache has come."""

    req: str
    answers: tuple[int, ...]
    """All tokens of the reply so far; of the newest one the cache has not come."""


class Forward(msgspec.Struct, frozen=True, tag="forward", omit_defaults=True):
    """One forward of a network, with the tables that it was given.

    Fields per request follow the order of `reqs`, the batch's own.
    """

    mode: str
    """"extend", "decode", "beam_decode", "mixed", "target_verify", "draft_extend_v2", "draft_decode", "idle", .."""
    reqs: tuple[str, ...] = ()
    """beam_decode: a search's further rows stand by its name again."""
    tokens: tuple[int, ...] = ()
    """How many columns belong to each request."""
    positions: tuple[int, ...] | None = None
    """The 1-D table; None: the engine left it unset."""
    rows: tuple[tuple[int, ...], ...] | None = None
    """The table of one row per axis."""
    answers: tuple[tuple[int, ...], ...] = ()
    """The tokens that this forward gives each request: one after a prefill or a decode, the accepted ones and one
    more after a verify. Of a window that does not end its prompt the token is not used."""
    draft: bool = False
    """The network is the draft model."""
    step: int = 0
    """draft_decode: which forward of the loop, from 0."""
    parents: tuple[tuple[int, ...], ...] = ()
    """target_verify: per request, for each node after the root (node 0), its parent."""
    seq_lens: tuple[int, ...] = ()
    """The engine's own count, an observation."""
    prefix_lens: tuple[int, ...] = ()
    """Windows: the engine's own count of tokens that its cache holds."""
    dtypes: tuple[str, str] = ("int64", "int64")
    """Of positions and rows."""


class Output(msgspec.Struct, frozen=True, tag="output", omit_defaults=True):
    """The client got something. finished: "" or why the request ended ("length", "stop", "abort")."""

    req: str
    tokens: tuple[int, ...] = ()
    finished: str = ""
    message: str = ""


class Rest(msgspec.Struct, frozen=True, tag="rest", omit_defaults=True):
    """Nothing runs and nothing waits. retained: finished requests of no session that are still held."""

    retained: tuple[str, ...] = ()
    leak: str = ""
    """What the engine's own leak check says; "" for nothing."""


class Dropped(msgspec.Struct, frozen=True, tag="dropped"):
    """So many events are missing here: the recorder had no room for them."""

    events: int


class Died(msgspec.Struct, frozen=True, tag="died", omit_defaults=True):
    """The engine's loop raised or never came to rest."""

    error: str
    message: str
    where: str = ""
    """Innermost engine frame, "package/file.py:line function"."""
    given: Forward | None = None
    """The forward that raised before its network was reached, with the tables that it brought."""


Event = (
    TraceHeader
    | Arrived
    | Opened
    | Closed
    | Aborted
    | Control
    | Retracted
    | Transfer
    | Forward
    | Output
    | Rest
    | Dropped
    | Died
)

_encoder = msgspec.json.Encoder()


def line(event: Event) -> bytes:
    """The event's line, with its newline."""
    return _encoder.encode(event) + b"\n"


def lines(trace: bytes) -> Iterator[bytes]:
    """The non-empty lines of a trace."""
    return (part for part in trace.split(b"\n") if part)

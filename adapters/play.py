"""What a scheduler host is told: how to start the server, and what its client does, with every number resolved.

Conventions as in `protocol`: an adapter hands the numbers over and never computes a position.
"""

from __future__ import annotations

import msgspec

from ropecheck.adapters import events


class ServerConfig(msgspec.Struct, frozen=True):
    """A way to start the engine's server. Two of one name are the same."""

    name: str
    arguments: dict[str, bool | int | float | str] = {}
    """The server's own arguments, over the host's defaults."""
    environment: dict[str, str] = {}
    """The engine's own environment switches, set before it starts."""
    draft: str = ""
    """A toy draft model, by a name that the adapter knows; "" for none."""


class PlayItem(msgspec.Struct, frozen=True, array_like=True):
    """One media item; its placeholder tokens are ids[start:stop]."""

    kind: str
    start: int
    stop: int
    hash: int
    """Of its pixels."""


class PlayMedia(msgspec.Struct, frozen=True):
    """What the engine's processor would hand over for one prompt."""

    rows: tuple[tuple[int, ...], ...]
    """The prompt table, one row per axis."""
    delta: int
    items: tuple[PlayItem, ...]


class Deliver(msgspec.Struct, frozen=True, tag="arrive"):
    """A request."""

    event: events.Arrived
    """What the trace says of it."""
    ids: tuple[int, ...]
    media: PlayMedia | None = None
    stop_every: int = 0
    """> 0: the model ends its answer with a stop token at every history index that this divides."""
    priority: int = 0
    more: tuple[tuple[str, int | bool | str], ...] = ()
    """Further fields of the request, or of its sampling parameters, by their public names."""


class Tell(msgspec.Struct, frozen=True, tag="tell"):
    """Any other message of the client."""

    event: events.Opened | events.Closed | events.Aborted | events.Control
    timeout: bool = False
    """A session that is opened with a timeout; one that is closed by it, and no message comes."""


class Rounds(msgspec.Struct, frozen=True, tag="step"):
    """The scheduler's loop goes round so many times."""

    times: int = 1


Action = Deliver | Tell | Rounds


class Play(msgspec.Struct, frozen=True):
    """One script on one server."""

    header: events.TraceHeader
    server: ServerConfig
    actions: tuple[Action, ...]
    limit: int = 400
    """Turns of the loop after the last action by which everything must have come to rest."""
    accept: int = 1
    """Speculation: what decides how many drafted tokens the model takes (0: none ever)."""
    trace: bool = False
    """Tell which engine functions are called."""

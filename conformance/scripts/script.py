"""A client script as data: small, frozen, serialisable, with an id of its content.

Requests and sessions are small ints, unique in a script. Two prompts of the same runs and `content` hold the same
tokens and pixels, so that a prefix cache may hit.
"""

import hashlib
from functools import cached_property

import msgspec

from ropecheck.spec.history import History


class Arrive(msgspec.Struct, frozen=True, tag="arrive", omit_defaults=True):
    """A client sends a request; with `session` it is a turn, as the public interface has it."""

    req: int
    prompt: History
    max_new_tokens: int = 3
    session: int | None = None
    parent: int | None = None
    offset: int | None = None
    replace: bool = False
    drop_previous_output: bool = False
    content: int = 0
    """Which text and which pixels."""
    stop_every: int = 0
    """> 0: the model ends its answer at a history index that this divides."""
    priority: int = 0
    copies: int = 1
    """n of the public interface: so many answers to one prompt."""
    beams: int = 1
    """beam_width of the public interface: so many beams are searched."""
    more: tuple[tuple[str, int | bool | str], ...] = ()
    """Further fields of the request, or of its sampling parameters, by their public names."""


class GiveUp(msgspec.Struct, frozen=True, tag="abort", omit_defaults=True):
    """The client gives a request up. None: all of them."""

    req: int | None = None


class OpenSession(msgspec.Struct, frozen=True, tag="open", omit_defaults=True):
    """A session is opened."""

    session: int
    streaming: bool = False


class Close(msgspec.Struct, frozen=True, tag="close", omit_defaults=True):
    """A session is closed, by a client or because its time runs out."""

    session: int
    timeout: bool = False
    """It was opened with a timeout, and for so long no turn of it comes. Of one session in a script."""


class Pause(msgspec.Struct, frozen=True, tag="pause", omit_defaults=True):
    """Generation is paused. mode: "in_place" or "retract" ("abort" of the public interface is an abort of all)."""

    mode: str = "in_place"


class Continue(msgspec.Struct, frozen=True, tag="continue"):
    """Generation goes on."""


class Flush(msgspec.Struct, frozen=True, tag="flush"):
    """The client asks for an empty cache; a busy server refuses."""


class Step(msgspec.Struct, frozen=True, tag="step", omit_defaults=True):
    """The scheduler's loop goes round so many times."""

    times: int = 1


Action = Arrive | GiveUp | OpenSession | Close | Pause | Continue | Flush | Step


def tokens_of(action: Action) -> int:
    """How large an action is: tokens of text, patches of media, tokens asked for."""
    if not isinstance(action, Arrive):
        return action.times if isinstance(action, Step) else 0
    total = action.max_new_tokens
    for run in action.prompt:
        t, h, w = run.grid or (0, 0, 0)
        total += run.tokens + t * h * w
    return total


class Script(msgspec.Struct, frozen=True, dict=True):
    """A named script for one way to start the server and one model family."""

    name: str
    server: str
    """A name in data/servers.toml."""
    actions: tuple[Action, ...]
    family: str = "qwen2_vl"
    accept: int = 1
    """Speculation: decides how many drafted tokens the model takes; 0 takes none."""
    note: str = ""

    @cached_property
    def id(self) -> str:
        """12 hex digits of the hash of server, family, accept and actions; name and note do not count."""
        body = msgspec.json.encode((self.server, self.family, self.accept, self.actions), order="deterministic")
        return hashlib.sha256(body).hexdigest()[:12]


def size_of_script(script: Script) -> tuple[int, int, str]:
    """Fewest actions first, then fewest tokens, then the id."""
    return len(script.actions), sum(tokens_of(action) for action in script.actions), script.id


def told(script: Script) -> str:
    """The script in words, on one line."""
    return f"on {script.server}: " + "; ".join(_told(action) for action in script.actions)


def _told(action: Action) -> str:
    match action:
        case Arrive():
            runs = " + ".join(
                f"{run.tokens} text" if run.is_text else f"{run.kind} {'x'.join(map(str, run.grid or ()))}"
                for run in action.prompt
            )
            turn = "" if action.session is None else f" in session {action.session}"
            parent = "" if action.parent is None else f" on {action.parent}"
            more = "".join(
                f", {name}"
                for name, on in (
                    (f"offset {action.offset}", action.offset is not None),
                    ("replace", action.replace),
                    ("drop_previous_output", action.drop_previous_output),
                    (f"n = {action.copies}", action.copies > 1),
                    (f"beam_width {action.beams}", action.beams > 1),
                    *((f"{name} {value}", True) for name, value in action.more),
                )
                if on
            )
            return f"request {action.req}{turn}{parent} ({runs}; {action.max_new_tokens} new{more})"
        case Step(times=times):
            return f"step {times}"
        case GiveUp(req=req):
            return "abort all" if req is None else f"abort {req}"
        case OpenSession(session=session, streaming=streaming):
            return f"open {'streaming ' if streaming else ''}session {session}"
        case Close(session=session, timeout=timeout):
            return f"session {session} times out" if timeout else f"close session {session}"
        case Pause(mode=mode):
            return f"pause {mode}"
        case Continue():
            return "continue"
        case Flush():
            return "flush"

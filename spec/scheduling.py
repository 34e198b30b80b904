"""What must hold between forwards: which tokens a batch's rows may ask for, what the client gets, what is left behind.

The client's history decides. It knows every token that the model answered, so at every forward it knows how long each
request is and how much of it has been computed. A prefix-cache hit is the one thing that only the engine can know: a
request's first window, and its first one after a retraction, may start anywhere inside its history.
"""

from __future__ import annotations

from dataclasses import dataclass

from ropecheck.spec.rules import Violation, rule

SCHEDULING = "definition: a scheduler cuts a request's tokens into forwards, each token once, in order"
CLIENT = "public interface: what a generate request is answered with"


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One row of a batch that computes prompt tokens, beside what the history says of its request."""

    mode: str
    start: int
    """Observed: the tokens that the cache is said to hold."""
    count: int
    """Observed."""
    computed: int
    """Tokens that earlier forwards computed."""
    total: int
    """Tokens of the history: prompt and answers."""
    free: bool
    """Its first window since it arrived or was retracted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Newest:
    """One row of a batch that continues a reply."""

    mode: str
    computed: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A row of a batch. state: "live", "unknown" (never arrived), "gone" (its end was told, and the engine has run
    without it since) or "replaced" (another turn took its place, and it went on)."""

    mode: str
    req: str
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCount:
    """The engine's own count of a row's tokens, and the history's."""

    mode: str
    seq_len: int
    right: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """Tokens that a client has been given so far, and what the model answered."""

    got: tuple[int, ...]
    """Observed: the new ones."""
    before: int
    """How many it had."""
    answered: tuple[int, ...]
    """All that the model answered, in order."""
    limit: int
    """max_new_tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AtRest:
    """Nothing runs and nothing waits."""

    retained: tuple[str, ...]
    """Observed: finished requests of no session that are still held."""
    leak: str
    """Observed: the engine's own leak check."""
    unanswered: tuple[str, ...]
    """Requests whose end the client was never told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopEnd:
    """How the engine's loop came to its end. error: exception type and function, or that it never came to rest; "":
    it came to rest, and would go on."""

    error: str = ""
    message: str = ""


@rule("schedule.window", of=Window, source=SCHEDULING, bugs=("mistral.rs #2301", "sglang #5349"))
def window(view: Window) -> Violation | None:
    """A prefill window must start at the first token that is not computed and end inside the request's history.

    After an arrival or a retraction the cache may hold more, or less, than earlier forwards computed; at least one
    token is always computed.
    """
    if view.start + view.count > view.total or view.count < 1 or view.start < 0:
        return Violation(
            axis="window",
            expected=view.total,
            observed=view.start + view.count,
            shape="ends past the history",
            message=f"computes tokens {view.start} .. {view.start + view.count - 1} of {view.total}",
        )
    if view.free or view.start == view.computed:
        return None
    return Violation(
        axis="window",
        expected=view.computed,
        observed=view.start,
        shape="skips tokens" if view.start > view.computed else "computes tokens twice",
        message=f"starts at token {view.start}, but {view.computed} are computed",
    )


@rule("schedule.newest", of=Newest, source=SCHEDULING)
def newest(view: Newest) -> Violation | None:
    """A forward that continues a reply must run only when every token before the newest one is computed."""
    if view.computed == view.total - 1:
        return None
    return Violation(
        axis="computed",
        expected=view.total - 1,
        observed=view.computed,
        shape="prompt not computed" if view.computed < view.total - 1 else "no token to read",
        message=f"{view.computed} of {view.total} tokens are computed",
    )


@rule("schedule.members", of=Member, source=SCHEDULING)
def members(view: Member) -> Violation | None:
    """Every row of a batch must belong to a request that a client sent and that has not ended or been replaced.

    Where the next forward is launched before the last one's answer is read, an ended request may ride along once.
    """
    if view.state == "live":
        return None
    shape = {"unknown": "never arrived", "gone": "ended before", "replaced": "was replaced"}[view.state]
    return Violation(
        axis="request", observed=view.req, shape=shape, message=f"a row of request {view.req}, which {shape}"
    )


@rule("schedule.counts", of=TokenCount, source=SCHEDULING)
def counts(view: TokenCount) -> Violation | None:
    """The length that a batch gives for a row must be the length of its history up to the last token that it reads."""
    if view.seq_len == view.right:
        return None
    return Violation(
        axis="seq_len",
        expected=view.right,
        observed=view.seq_len,
        shape="length too small" if view.seq_len < view.right else "length too large",
        message=f"seq_len {view.seq_len}, must be {view.right}",
    )


@rule("schedule.reply", of=Reply, source=CLIENT)
def reply(view: Reply) -> Violation | None:
    """A client must get the tokens that the model answered, in order, each once, at most max_new_tokens of them."""
    end = view.before + len(view.got)
    if end > view.limit:
        message = f"{end} tokens of at most {view.limit}"
        return Violation(axis="reply", expected=view.limit, observed=end, shape="too many tokens", message=message)
    right = view.answered[view.before : end]
    for at, token in enumerate(view.got):
        if at >= len(right) or token != right[at]:
            must = right[at] if at < len(right) else "nothing"
            shape = "wrong token" if at < len(right) else "token of nowhere"
            message = f"token {view.before + at} of the reply is {token}, the model answered {must}"
            return Violation(
                axis="reply", at=view.before + at, expected=must, observed=token, shape=shape, message=message
            )
    return None


@rule("schedule.at_rest", of=AtRest, source=CLIENT)
def at_rest(view: AtRest) -> Violation | None:
    """When nothing runs and nothing waits, every request must have been answered to its end and its memory be free."""
    for names, shape in ((view.unanswered, "request never ended"), (view.retained, "request still held")):
        if names:
            return Violation(
                axis="rest", observed=", ".join(names), shape=shape, message=f"{shape}: {', '.join(names)}"
            )
    if view.leak:
        return Violation(axis="rest", observed=view.leak, shape="memory leak", message=view.leak)
    return None


@rule("schedule.survives", of=LoopEnd, source="public interface: one client's request must not end the server")
def survives(view: LoopEnd) -> Violation | None:
    """Nothing that a client may send must end or stop the engine's loop."""
    if not view.error:
        return None
    return Violation(axis="loop", observed=view.error, shape=view.error, message=view.message)

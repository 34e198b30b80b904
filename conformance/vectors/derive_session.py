"""A session vector's turns, from the specification alone: what each one's history is, or that it is refused."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ropecheck.conformance.vectors import types as v
from ropecheck.conformance.vectors.runs import columns_of, history_of
from ropecheck.spec import session as rules
from ropecheck.spec.families import family as find_family
from ropecheck.spec.history import Family, History, OutOfDomain, delta_of, length, prompt_table


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnSeen:
    """What a turn came to."""

    request: int
    family: Family
    refused: bool
    prompt: History = ()
    tabulated: int = 0
    """Columns that the request must hold: all of its prompt when it brings media, else those up to its parent's."""
    rules: tuple[str, ...] = ()
    """The session rules that its history is an example of, the most telling one last."""


@dataclass(slots=True, kw_only=True)
class _Session:
    streaming: bool
    known: list[int] = field(default_factory=list)
    """Requests that a turn may name as its parent."""
    last: int | None = None
    in_flight: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    session: int
    parent: int | None
    saved: rules.Saved
    tabulated: int
    status: str = "running"


class _Walk:
    def __init__(self, family: Family) -> None:
        self.family = family
        self.sessions: dict[int, _Session] = {}
        self.requests: dict[int, _Request] = {}
        self.seen: list[TurnSeen] = []

    def event(self, event: v.Event) -> None:
        match event:
            case v.Open():
                self.sessions[event.session] = _Session(streaming=event.streaming)
            case v.Turn():
                self.turn(event)
            case v.Reply():
                request = self.requests[event.request]
                saved = replace(request.saved, outputs=request.saved.outputs + event.tokens)
                self.requests[event.request] = replace(request, saved=saved)
            case v.Finish() | v.Abort():
                self.end(event.request, "finished" if isinstance(event, v.Finish) else "aborted")
            case v.Retract():
                self.requests[event.request]  # a retraction changes no history; the request must exist

    def end(self, number: int, status: str) -> None:
        request = replace(self.requests[number], status=status)
        self.requests[number] = request
        session = self.sessions[request.session]
        if session.streaming:
            session.in_flight = None
            session.last = number if status == "finished" else session.last

    def turn(self, event: v.Turn) -> None:
        session = self.sessions[event.session]
        new = history_of(event.runs)
        own = prompt_table(self.family, new)
        if columns_of(event.table) != own or event.delta != delta_of(own):
            raise OutOfDomain(f"turn {event.request}: table or delta is not that of its runs")
        number = session.last if session.streaming else event.parent
        rewrites = event.replace or event.offset > 0 or event.drop_previous_output
        known = number in session.known
        finished = known and number is not None and (event.replace or self.requests[number].status == "finished")
        names_parent = not session.streaming and number is not None
        if (session.streaming or names_parent) and rules.refused(
            session.streaming, session.in_flight is not None, finished, known, rewrites
        ):
            self.seen.append(TurnSeen(request=event.request, family=self.family, refused=True))
            return
        parent = None if number is None else self.requests[number]
        prompt, named = self.history(event, session, parent, number, new)
        tabulated = self.tabulated(event, parent, prompt, new)
        limit = event.max_new_tokens
        saved = rules.Saved(prompt=prompt, outputs=0, max_new_tokens=1 << 62 if limit is None else limit)
        self.requests[event.request] = _Request(session=event.session, parent=number, saved=saved, tabulated=tabulated)
        self.seen.append(
            TurnSeen(
                request=event.request,
                family=self.family,
                refused=False,
                prompt=prompt,
                tabulated=tabulated,
                rules=named,
            )
        )
        if event.replace:
            self.forget(session, number)
        if session.streaming:
            session.in_flight = event.request
        else:
            session.known.append(event.request)

    def history(
        self, event: v.Turn, session: _Session, parent: _Request | None, number: int | None, new: History
    ) -> tuple[History, tuple[str, ...]]:
        """The whole prompt, and the rules that say so."""
        if parent is None:
            prompt = rules.replace_all(new) if event.replace else new
            return prompt, ("session.replace_all",) if event.replace else ("session.append",)
        saved = parent.saved
        if event.offset:
            prompt = rules.offset(self.family, saved, event.offset, event.drop_previous_output, new)
            return prompt, ("session.offset",)
        if event.drop_previous_output:
            return rules.drop_previous_output(saved, new), ("session.drop_previous_output",)
        named = ["session.append"]
        prompt = rules.append(saved, new)
        siblings = [other for other in self.requests.values() if other.parent == number]
        children = tuple(other.saved.prompt for other in siblings)
        if event.replace:
            named.append("session.replace_with_parent")
            prompt = rules.replace_with_parent(saved, new)
        elif session.streaming:
            named.append("session.streaming_append")
            prompt = rules.streaming_append(saved, new)
        elif siblings:
            named.append("session.branch")
            prompt = rules.branch(saved, children, new)
        aborted = [other for other in siblings if other.status == "aborted"]
        if aborted:
            named.append("session.abort_and_retry")
            prompt = rules.retry_after_abort(saved, aborted[0].saved.prompt, new)
        if saved.outputs > saved.max_new_tokens:
            named.append("session.reply_that_counts")
        return prompt, tuple(named)

    def tabulated(self, event: v.Turn, parent: _Request | None, prompt: History, new: History) -> int:
        """Columns that cannot be told from index + delta: those up to the last turn that brought media."""
        if all(run.is_text for run in prompt):
            return 0
        if parent is None or any(not run.is_text for run in new):
            return length(self.family, prompt)
        kept = length(self.family, prompt) - length(self.family, new)
        return min(parent.tabulated, kept)

    def forget(self, session: _Session, parent: int | None) -> None:
        """After a replace the parent's descendants, or without a parent all turns, can be named no more."""
        gone: set[int] = set()
        for number in session.known:
            up = self.requests[number].parent
            if parent is None or up == parent or up in gone:
                gone.add(number)
        session.known = [number for number in session.known if number not in gone]


def turns_of(value: v.SessionInput) -> tuple[TurnSeen, ...]:
    """Every turn, in order. Raises OutOfDomain for a turn whose own table is not its runs', KeyError for an event of
    a session or request that does not exist."""
    walk = _Walk(find_family(value.family))
    for event in value.events:
        walk.event(event)
    return tuple(walk.seen)

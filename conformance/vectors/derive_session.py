"""A session vector's turns, as vectors/README.md tells them: what each one's history is, or that it is refused.

Written beside the specification's own words for these operations (spec/session.py), which the reference is built from.
"""

from dataclasses import dataclass, field, replace

from ropecheck.conformance.vectors import types as v
from ropecheck.conformance.vectors.runs import columns_of, history_of
from ropecheck.spec.families import family as find_family
from ropecheck.spec.history import Family, History, OutOfDomain, cut, delta_of, length, prompt_table, run_length, text
from ropecheck.spec.views import ArrivedTurn, SavedTurn

UNLIMITED = 1 << 62

PLACEHOLDER = 0
"""Stands for a media token; text tokens are numbered from 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnSeen:
    """What a turn came to."""

    request: int
    family: Family
    refused: bool
    arrived: ArrivedTurn
    """What its client asked for. `ids`: the tokens that it must be; None where it is refused. A vector counts tokens,
    so these are made up: no two pieces of text have one in common."""
    prompt: History = ()
    parent: History | None = None
    """The whole prompt of the turn that it continues."""
    tabulated: int = 0
    """Columns that the request must hold: all of its prompt when it brings media, else those up to its parent's."""


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
    prompt: History
    ids: tuple[int, ...]
    limit: int
    tabulated: int
    outputs: tuple[int, ...] = ()
    status: str = "running"

    @property
    def reply(self) -> tuple[int, ...]:
        """What counts of its outputs."""
        return self.outputs[: self.limit]


class _Walk:
    def __init__(self, family: Family) -> None:
        self.family = family
        self.sessions: dict[int, _Session] = {}
        self.requests: dict[int, _Request] = {}
        self.seen: list[TurnSeen] = []
        self.next_id = PLACEHOLDER + 1

    def event(self, event: v.Event) -> None:
        match event:
            case v.OpenEvent():
                self.sessions[event.session] = _Session(streaming=event.streaming)
            case v.TurnEvent():
                self.turn(event)
            case v.ReplyEvent():
                request = self.requests[event.request]
                outputs = request.outputs + self.ids(event.tokens)
                self.requests[event.request] = replace(request, outputs=outputs)
            case v.FinishEvent() | v.AbortEvent():
                self.end(event.request, "finished" if isinstance(event, v.FinishEvent) else "aborted")
            case v.RetractEvent():
                self.requests[event.request]  # a retraction changes no history; the request must exist

    def ids(self, count: int) -> tuple[int, ...]:
        """So many new text tokens."""
        first, self.next_id = self.next_id, self.next_id + count
        return tuple(range(first, self.next_id))

    def end(self, number: int, status: str) -> None:
        request = replace(self.requests[number], status=status)
        self.requests[number] = request
        session = self.sessions[request.session]
        if session.streaming:
            session.in_flight = None
            session.last = number if status == "finished" else session.last

    def turn(self, event: v.TurnEvent) -> None:
        session = self.sessions[event.session]
        new = history_of(event.runs)
        own = prompt_table(self.family, new)
        if columns_of(event.table) != own or event.delta != delta_of(own):
            raise OutOfDomain(f"turn {event.request}: table or delta is not that of its runs")
        new_ids: tuple[int, ...] = ()
        for run in new:
            size = run_length(self.family, run)
            new_ids += self.ids(size) if run.is_text else (PLACEHOLDER,) * size
        number = session.last if session.streaming else event.parent
        known = session.streaming or number is None or number in session.known
        parent = None if number is None or not known else self.requests[number]
        settled = parent is None or session.streaming or event.replace or parent.status in ("finished", "aborted")
        arrived = self.arrived(event, session, number, parent, new_ids)
        arrived = replace(arrived, parent_known=known, parent_finished=settled)
        rewrites = event.replace or event.offset > 0 or event.drop_previous_output
        if (session.in_flight is not None or rewrites) if session.streaming else not (known and settled):
            turn = TurnSeen(request=event.request, family=self.family, refused=True, arrived=replace(arrived, ids=None))
            self.seen.append(turn)
            return
        prompt, ids = self.history(event, parent, new, new_ids)
        tabulated = self.tabulated(parent, prompt, new)
        self.seen.append(
            TurnSeen(
                request=event.request,
                family=self.family,
                refused=False,
                arrived=replace(arrived, ids=ids),
                prompt=prompt,
                parent=None if parent is None else parent.prompt,
                tabulated=tabulated,
            )
        )
        self.requests[event.request] = _Request(
            session=event.session,
            parent=number,
            prompt=prompt,
            ids=ids,
            limit=UNLIMITED if event.max_new_tokens is None else event.max_new_tokens,
            tabulated=tabulated,
        )
        if event.replace:
            self.forget(session, number)
        if session.streaming:
            session.in_flight = event.request
        else:
            session.known.append(event.request)

    def arrived(
        self, event: v.TurnEvent, session: _Session, number: int | None, parent: _Request | None, new: tuple[int, ...]
    ) -> ArrivedTurn:
        saved = None
        siblings = []
        if parent is not None:
            saved = SavedTurn(prompt=parent.ids, outputs=parent.outputs, max_new_tokens=parent.limit)
            siblings = [other for other in self.requests.values() if other.parent == number]
        return ArrivedTurn(
            saved=saved,
            new=new,
            streaming=session.streaming,
            replace=event.replace,
            offset=event.offset,
            drop_previous_output=event.drop_previous_output,
            siblings=bool(siblings),
            aborted_sibling=any(other.status == "aborted" for other in siblings),
            in_flight=session.in_flight is not None,
        )

    def history(
        self, event: v.TurnEvent, parent: _Request | None, new: History, new_ids: tuple[int, ...]
    ) -> tuple[History, tuple[int, ...]]:
        """The whole prompt as runs, and as tokens."""
        if parent is None:
            return new, new_ids
        reply = () if event.drop_previous_output else parent.reply
        kept, kept_ids = parent.prompt, parent.ids + reply
        if reply:
            kept = (*kept, text(len(reply)))
        if event.offset:
            kept = cut(self.family, kept, min(event.offset, length(self.family, kept)))
            kept_ids = kept_ids[: event.offset]
        return kept + new, kept_ids + new_ids

    def tabulated(self, parent: _Request | None, prompt: History, new: History) -> int:
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

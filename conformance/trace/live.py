"""What the client's history says of every live request and open session. The engine's numbers do not enter here."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ropecheck.adapters import events
from ropecheck.conformance.judge.outcome import Failure
from ropecheck.reference.prompt_tables import prompt_table
from ropecheck.spec.families import family as find_family
from ropecheck.spec.families.declaration import MediaFamily
from ropecheck.spec.history import Delta, History, OutOfDomain, Run, cut, length, text
from ropecheck.spec.modes.declaration import Tokens
from ropecheck.spec.session import afresh, continued, kept_of, may_refuse, must_refuse, reply_tokens, without_reply
from ropecheck.spec.views import Place


@dataclass(slots=True, eq=False)
class LiveRequest:
    """One request."""

    name: str
    history: History
    """Its whole prompt."""
    width: int
    """Tokens of the prompt."""
    place: Place
    max_new_tokens: int
    session: str = ""
    parent: str = ""
    beams: int = 1
    outputs: list[int] = field(default_factory=list)
    """Every token that the model answered."""
    delivered: int = 0
    """How many of them the client has."""
    computed: int = 0
    running: bool = False
    """Its prompt is complete."""
    free: bool = True
    """Its next window may start anywhere: it has just arrived or was retracted."""
    undecided: bool = False
    """A retraction may have thrown the last answers away: the next decode says from where it goes on."""
    pending: tuple[int, int] | None = None
    """Such a request's last window: its end, and the answer."""
    window: tuple[int, int] = (0, 0)
    """The last window that the target read: start and count."""
    verified: int = 0
    """Committed tokens at its last verify."""
    finished: str = ""
    given_up: bool = False
    """The client has aborted it, and was not told its end yet: the engine may have ended it or not."""
    absent: int = 0
    """Forwards since its end."""
    wrong: str = ""
    """The first rule that its rows broke."""
    parent_place: Place | None = None
    """The columns of the turn that it continues."""
    forgotten: Place | None = None
    """Its columns if that turn, which was given up, had been text."""
    refuse: bool | None = None
    """A turn: whether the engine must refuse it."""
    held: list[Failure] | None = None
    """A turn that the engine may refuse: what is wrong with it, if it does not."""
    cut: bool = False
    """Such a turn took others out of its session, if the engine takes it."""
    replaced_by: "LiveRequest | None" = None
    """The turn that ends this one."""
    went_on: int = 0
    """Forwards that have continued its reply since."""
    newest: int = 0
    """Answers of the last forward."""

    @property
    def total(self) -> int:
        return self.width + len(self.outputs)

    def told(self) -> bool:
        """Whether the client has every answer but those of the last forward, which may not have been read yet."""
        return self.beams == 1 and len(self.outputs) - self.delivered <= self.newest

    def resume(self) -> None:
        """A request whose memory had been taken back goes on: what its prefill ended with is its history."""
        if self.pending is not None:
            end, answer = self.pending
            del self.outputs[end - self.width :]
            self.outputs.append(answer)
            self.running = True
        self.undecided, self.pending = False, None


@dataclass(slots=True)
class Saved:
    """A turn of an open session."""

    history: History
    width: int
    tabulated: int
    outputs: int
    max_new_tokens: int
    finished: str
    parent: str
    wrong: str


@dataclass(slots=True)
class TracedSession:
    """An open session."""

    streaming: bool
    turns: dict[str, Saved] = field(default_factory=dict)
    last: str = ""
    in_flight: str = ""
    lost: bool = False
    """Which turns it has cannot be known from outside: one came while an aborted one may have been running, or one
    that was to take others out was refused."""


class Histories:
    """All live requests and open sessions of a stream."""

    def __init__(self, family: str) -> None:
        """Raises OutOfDomain for a family that the specification does not have."""
        self.family: MediaFamily = find_family(family)
        self.live: dict[str, LiveRequest] = {}
        self.sessions: dict[str, TracedSession] = {}
        self.unsettled: set[str] = set()
        """Requests whose history cannot be known from outside: they are not judged."""
        self.closing: set[str] = set()
        """Streaming sessions that were closed under a turn: when their name is free again cannot be known."""
        self.blind = False
        """Events are missing: requests that were not seen to arrive may be there."""
        self.strangers = False
        """Events are missing: sessions that were not seen to open may be there."""

    def gap(self) -> None:
        """Events are missing here: nothing is known any more of what was live."""
        self.unsettled |= self.live.keys()
        self.live.clear()
        self.sessions.clear()
        self.blind = self.strangers = True

    def judged(self, req: str) -> bool:
        """Whether something can be said of a request's rows."""
        return req not in self.unsettled and (not self.blind or req in self.live)

    def read(
        self, live: LiveRequest, event: events.Forward, row: int, tokens: Tokens, columns: Sequence[tuple[int, ...]]
    ) -> Place:
        """The columns that a row of a forward must read. columns: what it read."""
        return live.place

    def open(self, event: events.Opened) -> None:
        """A session is opened; of a name that is open already the engine refuses the second."""
        opened = TracedSession(event.streaming, lost=event.session in self.closing)
        self.sessions.setdefault(event.session, opened)

    def close(self, session: str) -> None:
        """A session is closed: later turns are refused, running ones go on."""
        if (closed := self.sessions.pop(session, None)) is not None and closed.in_flight:
            self.closing.add(session)

    def arrive(self, event: events.Arrived) -> LiveRequest | None:
        """A request arrives. None where nothing can be said of it."""
        new = brought(event)
        self.unsettled.discard(event.req)
        if not event.session:
            return self._join(event, new, self._width(new), refuse=None)
        session = self.sessions.get(event.session)
        if session is None and self.strangers:
            self.unsettled.add(event.req)
            return None
        if session is None:
            return self._join(event, new, self._width(new), refuse=True)
        rewrites = event.replace or event.offset is not None or event.drop_previous_output
        name = session.last if session.streaming else event.parent
        parent = session.turns.get(name)
        before = self.live.get(session.in_flight if session.streaming else name)
        running = before is not None and not before.finished
        if session.streaming and before is not None and before.given_up and running and not rewrites:
            session.lost = True
        if session.lost:
            self._unsettled(event, session, name, new)
            return None
        if session.streaming:
            refuse = must_refuse(True, bool(session.in_flight), True, True, rewrites)
        elif not name:
            refuse = False
        else:
            settled = parent is not None and (bool(parent.finished) or event.replace)
            refuse = must_refuse(False, False, settled, parent is not None, False)
        unsure = parent is not None and (
            may_refuse(bool(parent.finished), parent.finished == "abort", event.replace)
            or (running and before is not None and before.given_up and not session.streaming)
        )
        either = unsure or (not refuse and may_refuse(True, False, False, event.offset))
        if refuse and not either:
            return self._join(event, new, self._width(new), refuse=True)
        if either and parent is not None:
            if not parent.width or (running and before is not None and not before.told()):
                self._unsettled(event, session, name, new)
                return None
            if running and before is not None:
                parent.outputs = before.delivered
        history, kept = self._history(parent, event, new)
        brings = any(not run.is_text for run in new)
        width = self._width(history)
        tabulated = width if brings or parent is None else min(parent.tabulated, kept)
        live = self._join(event, history, tabulated, refuse=None if either else refuse)
        if either:
            live.held, live.cut = [], event.replace
            if unsure:
                live.forgotten = self._place(joined((text(kept),), new), width)
            if running and before is not None and event.replace:
                before.replaced_by, before.went_on = live, 0
        live.wrong = parent.wrong if parent is not None else ""
        if event.replace:
            self._cut_tree(session, name)
        live.parent = name
        if parent is not None and parent.width:
            live.parent_place = self._place(parent.history, parent.tabulated)
        session.turns[event.req] = Saved(history, width, tabulated, 0, event.max_new_tokens, "", name, live.wrong)
        if session.streaming:
            session.in_flight = event.req
        return live

    def _unsettled(self, event: events.Arrived, session: TracedSession, name: str, new: History) -> None:
        """What such a parent leaves cannot be known."""
        self.unsettled.add(event.req)
        session.turns[event.req] = Saved(new, 0, 0, 0, event.max_new_tokens, "abort", name, "")

    def abort(self, name: str) -> None:
        """The client gives a request up; "" all."""
        for live in self.live.values():
            if not name or live.name == name:
                live.given_up = True

    def _join(self, event: events.Arrived, history: History, tabulated: int, refuse: bool | None) -> LiveRequest:
        place = self._place(history, tabulated)
        live = LiveRequest(
            event.req, history, self._width(history), place, event.max_new_tokens, event.session, refuse=refuse
        )
        live.beams = event.beams
        self.live[event.req] = live
        return live

    def _place(self, history: History, tabulated: int) -> Place:
        table = prompt_table(self.family, history)
        delta = int(table.max()) + 1 - table.shape[1] if table.size else 0
        return Place(
            rows=tuple(map(tuple, table.tolist())),
            tabulated=tabulated,
            delta=Delta(delta),
            has_media=any(not run.is_text for run in history),
        )

    def _history(self, parent: Saved | None, event: events.Arrived, new: History) -> tuple[History, int]:
        """The turn's whole prompt, and how many tokens of it are kept from its parent."""
        if parent is None:
            return afresh(new), 0
        reply = reply_tokens(parent.outputs, parent.max_new_tokens)
        said: History = (text(reply),) if reply and not event.drop_previous_output else ()
        if event.offset is not None:
            whole = parent.history + said
            kept = kept_of(self._width(whole), event.offset)
            return joined(cut(self.family, whole, kept), new), kept
        if event.drop_previous_output:
            return joined(without_reply(parent.history, new)), parent.width
        return joined(continued(parent.history, said, new)), parent.width + reply

    def _cut_tree(self, session: TracedSession, name: str) -> None:
        """replace: the parent's children are gone, or without a parent every turn."""
        if not name:
            session.turns.clear()
            return
        gone: set[str] = set()
        for turn, saved in session.turns.items():
            if saved.parent == name or saved.parent in gone:
                gone.add(turn)
        for turn in gone:
            del session.turns[turn]

    def _width(self, history: History) -> int:
        return length(self.family, history)

    def refused(self, live: LiveRequest, sure: bool) -> None:
        """The engine refused a turn that it might have taken. Not sure: its client gave it up before."""
        live.held, live.finished = None, "abort"
        session = self.sessions.get(live.session)
        if session is None or live.name not in session.turns:
            return
        if sure:
            del session.turns[live.name]
        else:
            saved = session.turns[live.name]
            saved.width, saved.finished = 0, "abort"
        session.lost = session.lost or live.cut

    def too_long(self, live: LiveRequest) -> None:
        """A turn for whose context the server has no room is refused: it is no turn of its session."""
        session = self.sessions.get(live.session)
        self.finish(live, "abort")
        if session is not None and not session.lost:
            session.turns.pop(live.name, None)

    def finish(self, live: LiveRequest, reason: str) -> None:
        """The client was told that the request ended."""
        live.finished = reason
        session = self.sessions.get(live.session)
        if session is None or live.name not in session.turns:
            return
        saved = session.turns[live.name]
        saved.finished, saved.outputs, saved.wrong = reason, live.delivered, live.wrong
        if session.streaming:
            session.in_flight = ""
            if reason != "abort":
                session.last = live.name

    def retract(self, name: str) -> None:
        """The engine took the request's memory back."""
        live = self.live.get(name)
        if live is not None:
            live.computed, live.running, live.free, live.undecided, live.pending = 0, False, True, True, None

    def transfer(self, name: str, answers: tuple[int, ...]) -> None:
        """Another engine computed the prompt and the first answers."""
        live = self.live.get(name)
        if live is not None:
            live.outputs = list(answers)
            live.computed, live.running, live.free = live.total - 1, True, False
            live.undecided, live.pending = False, None

    def rest(self) -> None:
        """Nothing is live any more."""
        self.live.clear()
        self.unsettled.clear()
        self.blind = False


def brought(event: events.Arrived) -> History:
    """What a request itself brings."""
    return tuple(
        Run(kind=run.kind, tokens=run.tokens, grid=run.grid, seconds_per_grid=run.seconds_per_grid)
        for run in event.prompt
    )


def joined(*parts: History) -> History:
    """One history after another, without empty runs of text."""
    return tuple(run for part in parts for run in part if not (run.is_text and run.tokens == 0))


__all__ = ["Histories", "LiveRequest", "OutOfDomain", "joined"]

"""The known bugs at work in a scheduler: what its requests hold there, and what their rows read.

An event stream says what the scheduler decided; how often it tried to admit a request it does not say. So what is held
is known in the forms that it may have by then, and what a row reads leaves those that give it, number for number.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, islice, pairwise, product

import msgspec
import numpy as np

from ropecheck.adapters import events
from ropecheck.conformance.known.inputs import (
    BY_DELTA,
    DRAFTS,
    ENDED,
    NOTHING,
    WINDOWS,
    Inputs,
    Unmade,
    brought,
    may_be_odd,
    spread,
)
from ropecheck.conformance.known.model import (
    DRAFTED,
    FROM_T,
    MEMBERS,
    MERGED,
    OFFSET,
    REPLACE,
    SHARES,
    STILL,
    continued,
    cut,
    merged,
    topped_up,
)
from ropecheck.conformance.trace.live import Histories, LiveRequest
from ropecheck.reference.prompt_tables import prompt_table
from ropecheck.reference.timeline import IntArray
from ropecheck.spec.history import Delta, History, Run, run_length, text
from ropecheck.spec.modes import mode_of
from ropecheck.spec.modes.declaration import Tokens
from ropecheck.spec.views import Place

REFUSED = "refused-turn-goes-on"
CLOSED = "close-drops-the-media"
ABORTED = "abort-drops-the-media"
ZERO = "offset-zero-is-none"
STAYS = "too-long-a-turn-stays"
EMBEDS = "embeddings-are-no-turn"
ENDS = "retraction-ends-a-turn"
PAUSED = "pause-retracts-a-search"
PREEMPTED = "preemption-retracts-a-search"
PROMISED = "rows-are-promised-twice"
GATHERED = "padding-counts-no-beams"
FAILED = "failed-transfer-stays-in-flight"
WAITED = "given-up-while-waiting-stays-in-flight"
TRANSFERRED = "transferred-turn-has-a-record-too-many"
STAGES = "worker-knows-no-stages"
UNTOLD = "turn-loses-its-transfer"
UNKEPT = "chunks-of-a-search-are-not-kept"
CUT = "vision-draft-embeds-a-row-too-many"
LOOKED_UP = "text-draft-looks-pictures-up"

SCHEDULER_BUGS: dict[str, str] = {
    REFUSED: "a turn that is refused stays in its session: its media are put behind nothing, it takes a record, and "
    "with its end the turn that runs is in flight no more",
    CLOSED: "a session that is closed takes the media of its turns, also of those that wait",
    ABORTED: "a turn that was given up has no media for the turn that continues it",
    ZERO: "a turn with an offset of 0 is one without an offset",
    STAYS: "a turn that is refused because it is too long stays in its session, as one token of text",
    EMBEDS: "a session's turn of embeddings raises",
    ENDS: "a streaming session's turn that is retracted counts as ended: the next is taken, both have one array of "
    "tokens and one record, and a turn that ends twice leaves its session and takes its media along",
    PAUSED: "a pause takes a beam search's memory back, and not that of its further rows",
    PREEMPTED: "a request of a higher priority takes a beam search's memory back, and not that of its further rows",
    PROMISED: "the rows that a beam search will need are given to a request that is admitted with it",
    GATHERED: "a forward is padded to its requests, without the further rows of its beam searches",
    FAILED: "a streaming session's turn that is given up on a decode server before its cache came stays in flight",
    WAITED: "a streaming session's turn that is given up before it ran stays in flight",
    TRANSFERRED: "a streaming session's second turn on a decode server brings a record where there is one",
    STAGES: "a speculative worker that runs in step with the scheduler is handed a pipeline's tensors, and takes none",
    UNKEPT: "a beam search forgets a chunk of its prompt: the next one begins where it began, and its memory is gone",
    UNTOLD: "a session's turn on a decode server does not know which server has its cache, and raises",
    CUT: "a draft that sees embeds one row more than are left of a picture in which its chunk begins",
    LOOKED_UP: "a draft that sees nothing looks a picture's placeholders up among its words, and there are none such",
}
"""Every cause of a scheduler's own by the name that entries use, and what comes out; it has `model`'s as well."""

IN_FLIGHT = "Streaming session already has an active request."
"""Why a streaming session refuses a turn beside another."""

MOST_FORMS = 256
"""Of a forward whose rows' inputs may each have several."""


@dataclass(eq=False)
class Media:
    """Media inputs, which requests may share."""

    options: list[Inputs]
    """In every form that they may have by now."""
    causes: set[str] = field(default_factory=set)
    growing: dict[str, range] = field(default_factory=dict)
    """Retracted requests that hold them: whenever one is considered the table gains so many columns."""


class KnownHistories(Histories):
    """What is live, and held, in a scheduler with these bugs. Memory is bounded by the stream."""

    def __init__(self, family: str, bugs: Collection[str], server: Mapping[str, object]) -> None:
        """server: the arguments that it was started with."""
        super().__init__(family)
        self.bugs = frozenset(bugs)
        self.server = server
        self.media: dict[str, Media] = {}
        """By request."""
        self.batched: dict[str, Media] = {}
        """By request: what the running batch took when it joined."""
        self.causes: dict[str, set[str]] = {}
        """By request: which bugs have touched it."""
        self.retracted: dict[str, int] = {}
        """Turns of streaming sessions -> how often they were retracted."""
        self.shared: dict[str, tuple[str, str]] = {}
        """Session -> two turns that run on one record."""
        self.because: dict[str, str] = {}
        """Of those sessions in which no retraction has led to it -> the bug that has."""
        self.gone: set[str] = set()
        """Refused turns that have left their session."""
        self.loosened: dict[str, str] = {}
        """Session -> its turn that was in flight when a refused one ended."""
        self.recorded: dict[str, int] = {}
        """Sessions whose record came from another engine -> how often it came."""
        self.beside: set[str] = set()
        """Sessions that were asked for a turn which they had to refuse."""
        self.ended: dict[str, int] = {}
        """Requests that have ended -> their tokens, over all beams."""
        self.failed: dict[str, str] = {}
        """Turns that were given up before they ran, and stay in flight -> by which bug."""
        self.sent_back: dict[str, str] = {}
        """Beam searches that were retracted with their rows -> by which bug."""
        self.told = 0
        """Tokens of the last output, where they are what the model answered."""
        self.unkept = 0
        """Tokens of chunks that were forgotten."""
        self.kept_rows = 0
        """Rows that nobody will give back."""
        self.tail: set[str] = set()
        """Beam searches whose rows hang on the running batch."""
        self.pausing = False
        """A pause with retraction has come since the last forward."""
        self.due: set[str] = set()
        """Bugs that the clients' last messages, since the last forward, let end the loop."""
        self.last: events.Forward | None = None
        self.at = 0
        self.read_at = -1
        """Of the forward that is being read: its event, what its rows hold, and its table where that is odd."""
        self.rows: list[Media] = []
        self.table: IntArray | None = None
        self.fatal: events.Forward | None = None
        """The one that ended the loop."""
        self.looked: set[tuple[int, int | None]] = set()
        """Where something is known: event, and row of a forward."""

    def see(self, event: events.Event, at: int) -> None:
        """An event, before it is judged."""
        self.at = at
        match event:
            case events.Output(req=req, tokens=told):
                answers = dict(zip(self.last.reqs, self.last.answers, strict=False)) if self.last else {}
                self.told = len(told) if told == answers.get(req) else 0
                refused = self.causes.get(req, set()) & {FAILED, WAITED} and event.finished
                live = None if req in self.unsettled else self.live.get(req)
                judged = live is not None and (not live.refuse or bool(event.finished))
                if judged and (not refused or event.message == IN_FLIGHT):
                    self.looked.add((at, None))
            case events.Control(what="pause retract"):
                self.pausing = True
            case events.Forward(draft=False):
                self.forget(event)
                if mode_of(event.mode).parts[0].emits:
                    self.tail = {req for at, req in enumerate(event.reqs) if req in event.reqs[:at]}
                self.pausing, self.due, self.last = False, set(), event
                self.looked |= {(at, row) for row, req in enumerate(event.reqs) if self.turned_away(req)}
            case events.Transfer(req=req):
                self.batched[req] = self.held(req)
                if (live := self.live.get(req)) is not None and live.session:
                    self.recorded[live.session] = self.recorded.get(live.session, 0) + 1
            case _:
                pass

    def forget(self, event: events.Forward) -> None:
        """Searches whose prompt goes on have kept nothing of their last chunk."""
        for req in dict.fromkeys(event.reqs):
            live = self.live.get(req)
            if UNKEPT in self.bugs and live is not None and live.beams > 1 and live.computed and not live.running:
                self.touch(req, UNKEPT)
                live.computed, count = live.window
                self.unkept += count

    def turned_away(self, req: str) -> bool:
        """Whether a turn is refused because of one that stays in flight: what it is fed then is the engine's affair."""
        live = self.live.get(req)
        return live is not None and bool(live.refuse) and not self.causes.get(req, set()).isdisjoint((FAILED, WAITED))

    def held(self, req: str) -> Media:
        return self.media.get(req) or Media([NOTHING])

    def touch(self, req: str, *causes: str) -> None:
        self.causes.setdefault(req, set()).update(causes)

    # ------------------------------------------------------------ requests and sessions

    def arrive(self, event: events.Arrived) -> LiveRequest | None:
        if event.offset == 0 and ZERO in self.bugs:
            self.touch(event.req, ZERO)
            event = msgspec.structs.replace(event, offset=None)
        session = self.sessions.get(event.session)
        before = self.live.get(session.last) if session is not None and session.streaming else None
        if event.replace and not event.parent and session is not None and session.turns and not session.streaming:
            self.due.add(REPLACE)
        if event.embeds and session is not None:
            self.due.add(EMBEDS)
        live = super().arrive(event)
        prompt = tuple(map(_run, event.prompt))
        own = prompt_table(self.family, prompt)
        brings = any(not run.is_text for run in prompt)
        may_refuse = live is None or live.refuse is not False
        if session is not None and may_refuse and brings and own.shape[1] > 1:
            self.due.add(REFUSED)
        if live is None or live.refuse:
            self.beside.add(event.session)
            if session is not None and session.in_flight in self.failed:
                self.touch(event.req, self.failed[session.in_flight])
            return live
        start = live.width - own.shape[1]
        made = Media([NOTHING])
        if live.parent:
            parents = self.held(live.parent)
            cuts = event.offset is not None
            made = _each(parents, partial(cut, tokens=start)) if cuts and OFFSET not in self.bugs else parents
            self.touch(event.req, *self.causes.get(live.parent, ()), *[OFFSET] * cuts)
            if STAYS in self.causes.get(live.parent, ()):
                return live
            if live.forgotten is not None and ABORTED in self.bugs:  # it may have come before its parent's media went
                made = Media([*made.options, NOTHING], made.causes | {ABORTED})
        if brings:
            items = self._items(prompt, start)
            if MERGED in self.bugs:  # whoever holds the parent's, holds these
                made = made if made.options[0].width else Media([NOTHING])
                made.options = [merged(one, own, items) for one in made.options]
                made.causes |= {MERGED} if live.parent else set()
            else:
                made = _each(made, lambda one: continued(one, own, items, start))
        self.media[event.req] = made
        if before is not None and not before.finished and before.name in self.retracted:
            self.join(before, live)
        beside = self.live.get(self.loosened.pop(event.session, ""))
        if beside is not None and not beside.finished:
            self.touch(event.req, REFUSED)
            self.shared[event.session] = (beside.name, live.name)
            self.because[event.session] = REFUSED
        return live

    def _items(self, prompt: History, start: int) -> tuple[tuple[int, int], ...]:
        """Half-open token ranges of a prompt's media, where it begins at token `start`."""
        stops = list(accumulate((run_length(self.family, run) for run in prompt), initial=start))
        return tuple(pair for run, pair in zip(prompt, pairwise(stops), strict=True) if not run.is_text)

    def join(self, before: LiveRequest, live: LiveRequest) -> None:
        """A turn is taken while a retracted one waits: its tokens are put into the array of both."""
        before.width = live.width
        self.shared[live.session] = (before.name, live.name)
        self.because.pop(live.session, None)

    def close(self, session: str) -> None:
        closing = self.sessions.get(session)
        if closing is not None and not closing.streaming and CLOSED in self.bugs:
            for turn in closing.turns:
                self.drop(turn, CLOSED)
        super().close(session)

    def drop(self, req: str, cause: str) -> None:
        """Its media inputs are gone; who shares them has them still."""
        self.media[req] = Media([NOTHING], self.held(req).causes | {cause})

    def retract(self, name: str) -> None:
        live = self.live.get(name)
        if live is not None:
            media = self.held(name)
            if FROM_T in self.bugs and live.outputs:
                media.growing[name] = range(live.delivered, len(live.outputs) + 1)
                media.causes.add(FROM_T)
            if live.beams > 1 and live.running:
                self.sent_back[name] = PAUSED if self.pausing else PREEMPTED
                self.kept_rows += live.beams - 1
        super().retract(name)
        session = self.sessions.get(live.session) if live is not None else None
        if live is None or session is None or not session.streaming or ENDS not in self.bugs:
            return
        if name not in session.turns:  # a refusal's dummy token
            return
        self.retracted[name] = self.retracted.get(name, 0) + 1
        self.touch(name, ENDS)
        if self.retracted[name] == 1:
            session.in_flight, session.last = "", name
            saved = session.turns[name]
            saved.finished, saved.outputs = "length", live.delivered

    def too_long(self, live: LiveRequest) -> None:
        saved = None if live.session not in self.sessions else self.sessions[live.session].turns.get(live.name)
        super().too_long(live)
        if saved is not None and STAYS in self.bugs:
            saved.history, saved.width, saved.tabulated, saved.finished = (text(1),), 1, 1, "abort"
            saved.outputs = self.told
            self.sessions[live.session].turns[live.name] = saved
            self.drop(live.name, STAYS)
            self.touch(live.name, STAYS)

    def abort(self, name: str) -> None:
        super().abort(name)
        for live in self.live.values():
            session = self.sessions.get(live.session)
            if live.refuse and session is not None and name in ("", live.name):
                self.loosen(live, session.in_flight)

    def loosen(self, live: LiveRequest, in_flight: str) -> None:
        """A refused turn ends, or is given up: the one that is in flight is so no more."""
        session = self.sessions.get(live.session)
        if REFUSED not in self.bugs or session is None or live.name in session.turns or live.name in self.gone:
            return
        self.gone.add(live.name)
        if in_flight:
            session.in_flight = ""
            self.loosened[live.session] = in_flight

    def finish(self, live: LiveRequest, reason: str) -> None:
        self.ended[live.name] = live.total * live.beams
        session = self.sessions.get(live.session)
        left = self.retracted.get(live.name, 0)
        in_flight = "" if session is None else session.in_flight
        never_ran = not live.computed
        super().finish(live, reason)
        self.loosen(live, in_flight)
        if left and session is not None:
            session.turns[live.name].finished = "length"
            self.drop(live.name, ENDS)
            if left > 1 and in_flight != live.name:  # it had no session any more
                session.in_flight = in_flight
        elif reason == "abort" and ABORTED in self.bugs:
            self.drop(live.name, ABORTED)
        never_came = self.server.get("disaggregation_mode") == "decode" and live.name not in self.batched
        stays = next((bug for bug, so in ((FAILED, never_came), (WAITED, never_ran)) if so and bug in self.bugs), "")
        if session is not None and session.streaming and live.name in session.turns and reason == "abort" and stays:
            session.in_flight = live.name
            self.failed[live.name] = stays

    # ------------------------------------------------------------ rows

    def read(
        self, live: LiveRequest, event: events.Forward, row: int, tokens: Tokens, columns: Sequence[tuple[int, ...]]
    ) -> Place:
        name = live.name
        self.looked |= {(self.at, None), (self.at, row)}
        if self.read_at != self.at:  # the first row
            self.read_at = self.at
            self.rows = [self.row(event, n) for n in range(len(event.reqs))]
            self.table = self.odd(event, columns_of(event))
        if self.table is not None:
            start = sum(event.tokens[:row])
            return _row_of(self.table[:, start : start + tokens.count], tokens)
        if event.reqs.index(name) < row and MEMBERS in self.bugs:
            self.touch(name, MEMBERS)
            return _place(NOTHING)
        media = self.rows[row]
        if mode_of(event.mode).packed and SHARES in self.bugs:
            self.touch(name, SHARES, *media.causes)
            return self.shares(event, row, tokens)
        if event.mode == "draft_decode" and event.step and STILL in self.bugs:
            self.touch(name, STILL, *media.causes)
            delta = media.options[0].delta - event.step
            return Place(rows=((), (), ()), tabulated=0, delta=Delta(delta), has_media=True)
        by_delta = event.mode in BY_DELTA and (event.mode not in DRAFTS or DRAFTED in self.bugs)
        if by_delta and event.mode in DRAFTS and tokens.first < media.options[0].width:
            self.touch(name, DRAFTED)
        seen = np.array(columns, dtype=np.int64)
        fitting = [one for one in media.options if np.array_equal(_columns(one, tokens, by_delta), seen)]
        media.options = fitting or media.options
        self.touch(name, *media.causes)
        return _place(media.options[0], by_delta)

    def row(self, event: events.Forward, row: int) -> Media:
        """The media inputs of a row, once its request is in the batch."""
        name = event.reqs[row]
        live = self.live.get(name)
        if live is None or (event.reqs.index(name) < row and MEMBERS in self.bugs):
            return Media([NOTHING])
        mode = mode_of(event.mode)
        joins = mode.prefills and not (mode.composite and live.running)
        if joins and not event.draft:
            self.batched[name] = self.held(name)
        media = self.batched.get(name) or self.held(name)
        media.options = grown(media, name if joins else "", 2 * live.total + 64, self.bugs)
        return media

    def odd(self, event: events.Forward, seen: IntArray | None) -> IntArray | None:
        """The table of a forward in which a row brings too many columns or too few; None where none does. seen: the
        engine's, which says in which form rows' inputs are."""
        may = may_be_odd(event.mode, len(event.reqs), sum(event.tokens))
        if self.bugs.isdisjoint((ENDED, MERGED)) or event.positions is None or not may:
            return None
        firsts = event.prefix_lens if event.mode in WINDOWS else tuple(length - 1 for length in event.seq_lens)
        places = np.array(event.positions, dtype=np.int64)[: sum(event.tokens)]
        first: IntArray | None = None
        even = False
        for held in islice(product(*(media.options for media in self.rows)), MOST_FORMS):
            try:
                columns = brought(event.mode, held, firsts, event.tokens, places, self.bugs)
            except Unmade:
                continue
            counts = [one.shape[1] for one in columns]
            if sum(counts) == len(places) and (event.mode in BY_DELTA or counts == list(event.tokens)):
                even = True
                continue
            table = spread(columns, len(places), bool(self.server.get("enable_two_batch_overlap")))
            if table is None:
                table = np.concatenate(columns, axis=1)
            if seen is not None and np.array_equal(table, seen):
                break
            first = table if first is None else first
        else:
            return first if first is not None or even else np.full((3, len(places)), -1)  # it should have raised
        for media, one in zip(self.rows, held, strict=True):
            media.options = [one]
        for req in event.reqs:
            self.touch(req, ENDED, *(cause for media in self.rows for cause in media.causes))
        return table

    def unfit(self) -> bool:
        """Whether the forward that failed brought too many columns or too few, and these."""
        event = self.fatal
        seen = None if event is None else columns_of(event)
        if event is None or seen is None:
            return False
        self.rows = [self.row(event, n) for n in range(len(event.reqs))]
        table = self.odd(event, seen)
        return table is not None and table.shape[1] != sum(event.tokens) and np.array_equal(table, seen)

    def shares(self, event: events.Forward, row: int, tokens: Tokens) -> Place:
        """Packed columns, dealt out as if every request had as many."""
        share = sum(event.tokens) // len(event.reqs)
        deltas = [(self.batched.get(req) or self.held(req)).options[0].delta for req in event.reqs]
        start = sum(event.tokens[:row])
        line = [0] * (max(tokens) + 1)
        for at, index in enumerate(tokens, start):
            line[index] = index + deltas[at // share]
        return Place(rows=(tuple(line),) * 3, tabulated=len(line), delta=Delta(0), has_media=True)

    # ------------------------------------------------------------ the end

    @property
    def going(self) -> list[LiveRequest]:
        """Requests that have not ended."""
        return [live for live in self.live.values() if not live.finished]

    @property
    def running(self) -> int:
        """How many of them have their whole prompt."""
        return sum(live.running for live in self.going)

    def searches(self) -> list[LiveRequest]:
        """Beam searches that have their rows."""
        return [live for live in self.going if live.beams > 1 and live.running]

    def paired(self, cause: str) -> list[tuple[str, str]]:
        """Turns that run on one record because of that bug."""
        return [pair for session, pair in self.shared.items() if cause == self.because.get(session, ENDS)]

    def second_turn(self, session: str, refused: bool) -> bool:
        """Whether a session has a turn that waits, and that is to be refused or not."""
        return any(
            live.session == session and not live.computed and bool(live.refuse) is refused for live in self.going
        )


def grown(media: Media, considered: str, most: int, bugs: Collection[str]) -> list[Inputs]:
    """The forms that they may have now. considered: the request that has just been admitted, and was considered at
    least once; from there on it grows them no more. most: columns that anybody reads."""
    options = media.options
    for name, counts in list(media.growing.items()):
        kept = name != considered or 0 in counts
        found = {one.width: one for one in options} if kept else {}
        for count in counts:
            for one in options:
                table = one.table
                while count and 0 < table.shape[1] <= most:
                    table = topped_up(table, count, bugs)
                    found.setdefault(table.shape[1], Inputs(table, one.delta, one.items))
        options = list(found.values()) or options
        if name == considered:
            del media.growing[name]
    return options


def _each(media: Media, change: Callable[[Inputs], Inputs | None]) -> Media:
    """Media inputs of its own, from those of another in whatever form."""
    made = {one.table.tobytes(): one for one in (change(each) or NOTHING for each in media.options)}
    return Media(list(made.values()), set(media.causes))


def _place(inputs: Inputs, by_delta: bool = False) -> Place:
    table = inputs.table[:, :0] if by_delta else inputs.table
    rows = tuple(map(tuple, table.tolist()))
    return Place(rows=rows, tabulated=table.shape[1], delta=Delta(inputs.delta), has_media=bool(inputs.width))


def _row_of(columns: IntArray, tokens: Tokens) -> Place:
    """These columns, int64 [3, n], for these tokens."""
    lines = np.zeros((len(columns), max(tokens) + 1), dtype=np.int64)
    lines[:, list(tokens)] = columns
    rows = tuple(map(tuple, lines.tolist()))
    return Place(rows=rows, tabulated=lines.shape[1], delta=Delta(0), has_media=True)


def columns_of(event: events.Forward) -> IntArray | None:
    """A forward's table as it came, int64 [3, n]."""
    return None if event.rows is None else np.array(event.rows, dtype=np.int64)


def _columns(inputs: Inputs, tokens: Tokens, by_delta: bool) -> IntArray:
    """The columns of these tokens, int64 [3, n]."""
    return np.array(_place(inputs, by_delta).columns(tuple(tokens)), dtype=np.int64)


def _run(run: events.PromptRun) -> Run:
    return Run(kind=run.kind, tokens=run.tokens, grid=run.grid, seconds_per_grid=run.seconds_per_grid)

"""The judge of an event stream: one pass, memory bounded by what is live.

It follows the client's history (`live.py`), knows from the declared modes (`spec/modes`) which tokens each row of a
forward must read, lays what the engine read beside it as the specification's views, and asks every rule of each view.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ropecheck.adapters import events
from ropecheck.conformance.judge.outcome import Failure, TableView, failure_of
from ropecheck.conformance.judge.signature import raise_signature
from ropecheck.conformance.trace.live import Histories, LiveRequest
from ropecheck.conformance.trace.shape import shape_of
from ropecheck.spec import scheduling
from ropecheck.spec.history import OutOfDomain
from ropecheck.spec.modes import mode_of
from ropecheck.spec.modes.declaration import Mode, Tokens
from ropecheck.spec.rules import Rule, Violation, rules_of
from ropecheck.spec.views import ArrivedTurn, Row, Seen, Tables

MODE = "scheduler"
"""Stands for the mode where a failure belongs to no forward."""


class Judge:
    """Feed it events in order; what it yields are failures. Raises BadTrace for a stream that is not one."""

    def __init__(self, prefix: str = "", histories: Callable[[str], Histories] = Histories) -> None:
        """prefix: stands before the names of modes, so that failures of two kinds of run are told apart. histories:
        what is right, of a family's requests."""
        self._prefix = prefix
        self._of_family = histories
        self.checked: dict[str, int] = {}
        self.by_mode: dict[str, dict[str, int]] = {}
        self.modes: dict[str, int] = {}
        self.situations: dict[str, int] = {}
        self.forwards = 0
        self.events = 0
        self.dropped = 0
        """Events that the recorder says are missing."""
        self.header: events.TraceHeader | None = None
        self._histories: Histories | None = None

    @property
    def live(self) -> int:
        """Requests whose history is held at this moment."""
        return 0 if self._histories is None else len(self._histories.live)

    def feed(self, event: events.Event) -> Iterator[Failure]:
        """Judge one event."""
        at, self.events = self.events, self.events + 1
        if isinstance(event, events.TraceHeader):
            self._begin(event)
            return
        if self._histories is None:
            raise BadTrace("the first event is no header")
        histories = self._histories
        match event:
            case events.Forward():
                yield from self._forward(histories, event, at)
            case events.Output():
                yield from self._output(histories, event, at)
            case events.Arrived():
                histories.arrive(event)
                self._saw("turn" if event.session else "request")
            case events.Retracted(req=req):
                histories.retract(req)
                self._saw("retraction")
            case events.Transfer(req=req, answers=answers):
                histories.transfer(req, answers)
                self._saw("transfer")
            case events.Aborted(req=req):
                histories.abort(req)
            case events.Opened():
                histories.open(event)
            case events.Closed(session=session):
                histories.close(session)
            case events.Rest():
                yield from _held(histories)
                waiting = tuple(live.name for live in histories.live.values() if not live.finished)
                view = scheduling.AtRest(retained=event.retained, leak=event.leak, unanswered=waiting)
                yield from self._ask(view, MODE, at)
                yield from self._ask(scheduling.LoopEnd(), MODE, at)
                histories.rest()
            case events.Dropped(events=count):
                self.dropped += count
                histories.gap()
                self._saw("gap")
            case events.Died():
                yield from _held(histories)
                error = raise_signature(event.error, event.where)
                message = f"{event.error}: {event.message}"
                end = scheduling.LoopEnd(error=error, message=message)
                yield from self._ask(end, MODE, at, where=event.where)
                histories.rest()

    def _begin(self, header: events.TraceHeader) -> None:
        if header.version not in events.READ:
            raise BadTrace(
                f"a trace of version {header.version}; this suite reads {' and '.join(map(str, events.READ))}"
            )
        if self._histories is not None and self.header is not None:
            if header.part != self.header.part + 1:
                raise BadTrace(f"part {header.part} after part {self.header.part}")
            self.header = header
            return
        try:
            self._histories = self._of_family(header.family)
        except (OutOfDomain, KeyError) as error:
            raise BadTrace(f"family {header.family!r}: {error}") from error
        self.header = header
        if header.part:
            self._histories.gap()

    def _saw(self, situation: str) -> None:
        key = f"{MODE} x {situation}"
        self.situations[key] = self.situations.get(key, 0) + 1

    # ------------------------------------------------------------ forwards

    def _forward(self, histories: Histories, event: events.Forward, at: int) -> Iterator[Failure]:
        self.forwards += 1
        name = self._prefix + event.mode
        self.modes[name] = self.modes.get(name, 0) + 1
        try:
            mode = mode_of(event.mode)
        except OutOfDomain as error:
            raise BadTrace(str(error)) from error
        lives: list[LiveRequest | None] = []
        for req in event.reqs:
            live = histories.live.get(req)
            if live is not None and live.refuse:
                lives.append(None)  # what the engine feeds for a request that it refuses is its own affair
                continue
            lives.append(live)
            if histories.judged(req):
                state = "unknown" if live is None else "gone" if live.absent > 1 else "live"
                yield from self._ask(scheduling.Member(mode=name, req=req, state=state), name, at, live)
        reads: list[Tokens | None] = []
        for row, live in enumerate(lives):
            if live is None:
                reads.append(None)
                continue
            tokens, found = self._reads(mode, name, event, row, live, at)
            yield from found
            reads.append(tokens)
        width = sum(event.tokens[row] if read is None else read.count for row, read in enumerate(reads))
        yield from self._tables(mode, name, event, width, at)
        yield from self._rows(histories, name, event, lives, reads, at)
        if not event.draft:
            for row, (live, read) in enumerate(zip(lives, reads, strict=True)):
                if live is not None and read is not None and event.reqs.index(live.name) == row:
                    _advance(mode, event, row, live, read)
            _leave(histories, set(event.reqs))

    def _reads(
        self, mode: Mode, name: str, event: events.Forward, row: int, live: LiveRequest, at: int
    ) -> tuple[Tokens, list[Failure]]:
        """Which tokens the row must read, and what is wrong with its being asked to."""
        if event.draft and mode.prefills:
            start, count = live.window
            if mode.served:  # behind tokens that the target verified stand others of the block, which are given up
                count = max(count, event.tokens[row])
            return mode.parts[0].tokens(prefix_len=start, extend_len=count), []
        if mode.draft:  # the one number that such a mode chooses is how many tokens a row has
            seq_len = live.verified if mode.behind_verify else live.total - 1
            fields = {one.name: (seq_len,) if one.each else event.tokens[row] for one in mode.fields}
            return mode.row(fields, 0, event.step), []
        if mode.prefills and not (live.running and mode.composite and event.tokens[row] == 1):
            start, count = event.prefix_lens[row], event.tokens[row]
            view = scheduling.Window(
                mode=name, start=start, count=count, computed=live.computed, total=live.total, free=live.free
            )
            found = list(self._ask(view, name, at, live, row))
            found += self._count(name, event, row, live, start + count, at)
            if live.free and start:
                self._saw("prefix hit")
            # A begin before the history names no tokens; its rule has said so.
            return mode.parts[0].tokens(prefix_len=start if start >= 0 else live.computed, extend_len=count), found
        if live.undecided:
            live.resume()
        if event.reqs.index(live.name) < row:  # a further beam of the request is as long as its first
            found = list(self._count(name, event, row, live, live.total, at))
            return mode.parts[-1].tokens(seq_len=live.total, members=1), found
        newest = scheduling.Newest(mode=name, computed=live.computed, total=live.total)
        found = list(self._ask(newest, name, at, live, row))
        if mode.verifies:
            live.verified = live.total - 1
            parents = event.parents[row] if event.parents else tuple(range(event.tokens[row] - 1))
            return mode.tokens(seq_len=live.total - 1, parents=parents), found
        found += self._count(name, event, row, live, live.total, at)
        return mode.running.tokens(seq_len=live.total), found

    def _count(
        self, name: str, event: events.Forward, row: int, live: LiveRequest, right: int, at: int
    ) -> Iterator[Failure]:
        if event.seq_lens and not event.draft:
            view = scheduling.TokenCount(mode=name, seq_len=event.seq_lens[row], right=right)
            yield from self._ask(view, name, at, live, row)

    def _tables(self, mode: Mode, name: str, event: events.Forward, width: int, at: int) -> Iterator[Failure]:
        positions = event.positions
        rows = event.rows
        view = Tables(
            mode=name,
            tokens=width,
            positions=None
            if positions is None
            else Seen(dtype=event.dtypes[0], shape=(len(positions),), values=(positions,)),
            rows=None
            if rows is None
            else Seen(dtype=event.dtypes[1], shape=(len(rows), len(rows[0]) if rows else 0), values=rows),
            index_dtype=mode.index_dtype,
            one_dimensional=not mode.three_rows,
        )
        yield from self._ask(view, name, at)

    def _rows(
        self,
        histories: Histories,
        name: str,
        event: events.Forward,
        lives: Sequence[LiveRequest | None],
        reads: Sequence[Tokens | None],
        at: int,
    ) -> Iterator[Failure]:
        if event.positions is None:
            return
        start = 0
        for row, (live, read) in enumerate(zip(lives, reads, strict=True)):
            count = event.tokens[row] if read is None else read.count
            end = start + count
            positions = event.positions[start:end]
            columns = None if event.rows is None else tuple(axis[start:end] for axis in event.rows)
            start = end
            tables = (positions, *(columns or ()))
            if live is None or read is None or any(len(table) != count for table in tables):
                continue
            place = live.place if columns is None else histories.read(live, event, row, read, columns)
            view = Row(mode=name, place=place, tokens=tuple(read), positions=positions, columns=columns)
            yield from self._ask(view, name, at, live, row, neighbours=lives)

    # ------------------------------------------------------------ what the client gets

    def _output(self, histories: Histories, event: events.Output, at: int) -> Iterator[Failure]:
        live = histories.live.get(event.req)
        if live is None or event.req in histories.unsettled:
            return
        if live.refuse:
            yield from self._refusal(live, event.finished == "abort", event, at)
            histories.finish(live, "abort")
            return
        if live.refuse is not None and (event.finished or event.tokens):
            dummy = not live.delivered and live.width == 1  # a refused turn runs as one token
            refused = event.finished == "abort" and (dummy or not live.outputs) and _refusal(event.message)
            yield from self._refusal(live, refused, event, at)
        sure = _refusal(event.message)
        if live.held is not None and event.finished == "abort" and (sure or (live.given_up and not live.delivered)):
            histories.refused(live, sure)
            return
        if live.session and event.finished == "abort" and _too_long(event.message):
            histories.too_long(live)
            return
        end = live.delivered + len(event.tokens)
        if event.finished == "abort":  # a request that the engine drops may end with a dummy token
            live.delivered += len(event.tokens) if tuple(live.outputs[live.delivered : end]) == event.tokens else 0
        elif event.tokens:
            # A search answers with one of the paths that its forwards offered: only how long it is is known.
            answered = tuple(live.outputs) if live.beams == 1 else event.tokens[: len(live.outputs)]
            view = scheduling.Reply(
                got=event.tokens, before=live.delivered, answered=answered, limit=live.max_new_tokens
            )
            yield from self._ask(view, MODE, at, live)
            live.delivered += len(event.tokens)
        if event.finished:
            if live.replaced_by is not None and live.went_on > 2:
                went_on = scheduling.Member(mode=MODE, req=live.name, state="replaced")
                yield from self._ask(went_on, MODE, at, live.replaced_by)
            histories.finish(live, event.finished)
            yield from _let_go(live)

    def _refusal(self, live: LiveRequest, refused: bool, event: events.Output, at: int) -> Iterator[Failure]:
        if live.refuse and not event.finished:
            return  # a dummy token before its end
        view = ArrivedTurn(saved=None, new=(), parent_known=not live.refuse, refused=refused, note=event.message)
        live.refuse = None
        yield from self._ask(view, "session", at, live)

    # ------------------------------------------------------------ asking

    def _ask(
        self,
        view: Any,
        mode: str,
        at: int,
        live: LiveRequest | None = None,
        row: int | None = None,
        neighbours: Sequence[LiveRequest | None] = (),
        where: str = "",
    ) -> Iterator[Failure]:
        for one in rules_of(type(view)):
            if one.when is not None and not one.when(view):
                continue
            self.checked[one.id] = self.checked.get(one.id, 0) + 1
            by_mode = self.by_mode.setdefault(one.id, {})
            by_mode[mode] = by_mode.get(mode, 0) + 1
            wrong = one.check(view)
            if wrong is not None:
                failure = self._failure(one, wrong, view, mode, at, live, row, neighbours, where)
                if live is not None and live.held is not None:
                    live.held.append(failure)
                else:
                    yield failure

    def _failure(
        self,
        one: Rule,
        wrong: Violation,
        view: Any,
        mode: str,
        at: int,
        live: LiveRequest | None,
        row: int | None,
        neighbours: Sequence[LiveRequest | None],
        where: str,
    ) -> Failure:
        deltas = [other.place.delta for other in neighbours if other is not None and other is not live]
        parent, forgotten = (None, None) if live is None else (live.parent_place, live.forgotten)
        signature = wrong.shape or shape_of(view, wrong, deltas, parent, forgotten)
        follows = ""
        if live is not None:
            follows, live.wrong = live.wrong, live.wrong or one.id
        who = f"request {live.name}: " if live is not None else ""
        expected, observed = _tables_of(view)
        return failure_of(
            one.id,
            mode,
            wrong,
            row,
            signature=signature,
            step=at,
            message=who + (wrong.message or f"{wrong.axis} is {wrong.observed}, must be {wrong.expected}"),
            expected=expected,
            observed=observed,
            where=where,
            follows=follows,
        )


class BadTrace(ValueError):
    """The stream is not a trace, or not one that this suite can read; the message says why."""


def _let_go(live: LiveRequest) -> list[Failure]:
    """The engine has taken a turn that it might have refused: what is wrong with it counts."""
    held, live.held = live.held or [], None
    return held


def _held(histories: Histories) -> list[Failure]:
    return [failure for live in histories.live.values() for failure in _let_go(live)]


def _tables_of(view: Any) -> tuple[TableView | None, TableView | None]:
    if not isinstance(view, Row) or view.columns is None:
        return None, None
    right = tuple(zip(*(view.place.column(index) for index in view.tokens), strict=True))
    return (
        TableView(positions=tuple(view.tokens), rows=right),
        TableView(positions=tuple(view.positions), rows=tuple(map(tuple, view.columns))),
    )


def _too_long(message: str) -> bool:
    """Whether an abort's message speaks of a prompt for which a server has no room."""
    return any(words in message for words in ("exceeds the maximum allowed length", "too long"))


def _refusal(message: str) -> bool:
    """Whether an abort's message speaks of the session: a client's own abort, or a full server, is no refusal."""
    return any(word in message.lower() for word in ("session", "request id", "replace", "append", "streaming"))


def _advance(mode: Mode, event: events.Forward, row: int, live: LiveRequest, read: Tokens) -> None:
    """What the forward does to the history: tokens are computed, and the model answers."""
    answers = event.answers[row] if event.answers else ()
    live.newest = len(answers)
    live.went_on += live.running
    if mode.verifies:
        live.computed = live.verified + len(answers)
        live.window = (live.verified, read.count)
        live.outputs.extend(answers)
        return
    end = read.first + read.count
    live.window = (read.first, read.count)
    live.free = False
    live.computed = end
    if end == live.total:
        live.running = True
        live.undecided, live.pending = False, None
        live.outputs.extend(answers)
    elif live.undecided and end >= live.width + live.delivered and answers:
        live.pending = (end, answers[0])


def _leave(histories: Histories, here: set[str]) -> None:
    """Requests that have ended, and that the engine runs without, are forgotten."""
    gone = []
    for live in histories.live.values():
        if live.finished and live.name not in here:
            live.absent += 1
            if live.absent > 2:
                gone.append(live.name)
        elif live.finished and live.absent:
            live.absent += 1
    for name in gone:
        del histories.live[name]

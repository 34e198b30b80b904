"""The reference model as an engine behind the worker protocol: what a right engine answers.

It sees what any engine sees: turns one at a time, each with its own table, and batches of lengths. It keeps one record
per request, never changed in place, so that nothing is shared by accident. Mutants override its small methods.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np
import numpy.typing as npt

from ropecheck.adapters import protocol
from ropecheck.conformance.plan.planner import decoded
from ropecheck.reference import compose, rotary, tables
from ropecheck.reference.tables import BatchTables, Part
from ropecheck.reference.timeline import IntArray, Timeline
from ropecheck.spec.modes import mode_of
from ropecheck.spec.rotary import Layout, Scaling

PAD_VALUE = 1_000_000
"""Padded placeholder ids start here."""


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """What the engine holds for one request. table covers its whole prompt; items are half-open token ranges."""

    ids: tuple[int, ...]
    table: IntArray
    delta: int
    items: tuple[tuple[int, int], ...]
    max_new_tokens: int
    session: int | None = None
    parent: int | None = None
    output_ids: tuple[int, ...] = ()
    prefix_len: int = 0
    fill_ids: tuple[int, ...] | None = None
    delta_cache: int | None = None
    finished: bool = False
    aborted: bool = False
    retracted: bool = False
    begun: bool = False
    """It is out of the waiting queue."""
    media_width: int = 0
    """Columns of table up to the end of the last turn that brought media."""


@dataclass(frozen=True, slots=True)
class HeldSession:
    streaming: bool
    known: tuple[int, ...] = ()
    last: int | None = None
    in_flight: int | None = None


class ReferenceEngine:
    """One job's engine. `run` answers one step."""

    def __init__(self) -> None:
        self.held: dict[int, Held] = {}
        self.sessions: dict[int, HeldSession] = {}
        self.forwards = 0

    def run(self, step: protocol.Step) -> protocol.Result:
        """Answer one step. Raises KeyError for a request that does not exist."""
        match step:
            case protocol.SubmitStep():
                self.held[step.req] = self.turn_record(step.ids, step.media, self.nothing(), (), step.max_new_tokens)
            case protocol.Open():
                self.sessions[step.session] = HeldSession(step.streaming)
            case protocol.TurnStep():
                self.turn(step)
            case protocol.Generate():
                self.generate(step)
            case protocol.Finish():
                self.leave(step.req, finished=True)
            case protocol.Abort():
                self.leave(step.req, finished=False)
            case protocol.Retract():
                self.retract(step.req)
            case protocol.Schedule():
                self.schedule(step)
            case protocol.Observe():
                return protocol.States(tuple(self.state(req) for req in step.reqs if req in self.held))
            case protocol.Cost():
                return protocol.Counted(self.copies(step.forward), ())
            case protocol.BuildForward():
                return self.forward(step)
            case protocol.Rotary():
                return self.rotate(step)
            case protocol.PromptTable():
                return protocol.NotOfferedAnswer(
                    "the reference's builders take histories; a table of theirs proves nothing"
                )
        return protocol.Done()

    # ------------------------------------------------------------ requests and sessions

    def nothing(self) -> IntArray:
        """The table of an empty history: int64 [3, 0]."""
        return np.zeros((3, 0), dtype=np.int64)

    def turn_record(
        self,
        ids: tuple[int, ...],
        media: protocol.Media | None,
        before: IntArray,
        kept: tuple[int, ...],
        max_new_tokens: int,
        items: tuple[tuple[int, int], ...] = (),
        media_width: int = 0,
    ) -> Held:
        """A new request: `before` and `kept` are the history's columns and tokens that it continues."""
        own = compose.text_table(len(ids)) if media is None else decoded(media.table)
        table = self.appended(before, own)
        start = len(kept)
        if media is not None:
            items = (*items, *((first + start, stop + start) for item in media.items for first, stop in item.spans))
            media_width = table.shape[1]
        return Held((*kept, *ids), table, compose.delta(table), items, max_new_tokens, media_width=media_width)

    def appended(self, table: IntArray, turn: IntArray) -> IntArray:
        """A history's table, int64 [3, P], and that of a turn alone, [3, Q], as one of [3, P + Q]."""
        return compose.appended(table, turn)

    def turn(self, step: protocol.TurnStep) -> None:
        session = self.sessions[step.session]
        parent = session.last if session.streaming else step.parent
        if self.refuses(session, step):
            self.held[step.req] = replace(
                self.turn_record(step.ids, None, self.nothing(), (), step.max_new_tokens), aborted=True
            )
            return
        if step.bos:
            step = without_start(step)
        if parent is None:
            held = self.turn_record(step.ids, step.media, self.nothing(), (), step.max_new_tokens)
        else:
            held = self.continued(step, self.held[parent])
        self.held[step.req] = replace(held, session=step.session, parent=parent)
        if session.streaming:
            self.sessions[step.session] = replace(session, in_flight=step.req)
        else:
            known = tuple(req for req in session.known if not step.replace or not self.descends(req, step.parent))
            self.sessions[step.session] = replace(session, known=(*known, step.req))

    def descends(self, turn: int, parent: int | None) -> bool:
        """Whether a turn goes on from another; every turn does from None."""
        before = self.held[turn].parent
        return parent is None or before == parent or (before is not None and self.descends(before, parent))

    def refuses(self, session: HeldSession, step: protocol.TurnStep) -> bool:
        if session.streaming:
            return session.in_flight is not None or step.replace or bool(step.offset) or step.drop_previous_output
        if step.parent is None:
            return False
        if step.parent not in session.known:
            return True
        parent = self.held[step.parent]
        return not (step.replace or parent.finished or (parent.aborted and parent.begun))

    def continued(self, step: protocol.TurnStep, parent: Held) -> Held:
        """The new turn's record after its parent's prompt and reply."""
        reply = () if step.drop_previous_output else parent.output_ids[: parent.max_new_tokens]
        kept = parent.ids + reply
        before = self.appended(parent.table, compose.text_table(len(reply)))
        items, width = parent.items, parent.media_width
        if step.offset:
            kept, before = kept[: step.offset], before[:, : step.offset]
            items = tuple((start, min(stop, step.offset)) for start, stop in items if start < step.offset)
            width = min(width, step.offset)
        return self.turn_record(step.ids, step.media, before, kept, step.max_new_tokens, items, width)

    def generate(self, step: protocol.Generate) -> None:
        held = self.held[step.req]
        self.held[step.req] = replace(held, output_ids=held.output_ids + step.ids)

    def leave(self, req: int, finished: bool) -> None:
        held = self.held[req]
        self.held[req] = replace(held, finished=finished, aborted=not finished)
        session = None if held.session is None else self.sessions[held.session]
        if session is not None and session.streaming and held.session is not None:
            last = req if finished else session.last
            self.sessions[held.session] = replace(session, in_flight=None, last=last)

    def retract(self, req: int) -> None:
        self.held[req] = replace(self.held[req], prefix_len=0, fill_ids=None, retracted=True, begun=False)

    def schedule(self, step: protocol.Schedule) -> None:
        held = self.held[step.req]
        self.held[step.req] = replace(held, prefix_len=step.hit, fill_ids=self.fill_ids(held))

    def fill_ids(self, held: Held) -> tuple[int, ...]:
        return self.padded_ids(held) + held.output_ids

    def padded_ids(self, held: Held) -> tuple[int, ...]:
        ids = list(held.ids)
        for number, (start, stop) in enumerate(held.items):
            ids[start:stop] = [PAD_VALUE + number] * (stop - start)
        return tuple(ids)

    def state(self, req: int) -> protocol.RequestState:
        held = self.held[req]
        media = bool(held.items)
        delta = np.array([[held.delta]], dtype=np.int64)
        cache = None if held.delta_cache is None else tensor(np.full((3, 1), held.delta_cache, dtype=np.int64))
        return protocol.RequestState(
            req=req,
            ids=self.padded_ids(held),
            unpadded_ids=held.ids,
            fill_ids=held.fill_ids,
            output_ids=held.output_ids,
            prefix_len=held.prefix_len,
            table=tensor(held.table) if media else None,
            delta=tensor(delta) if media else None,
            delta_cache=cache,
            offsets=held.items,
            aborted=held.aborted,
        )

    # ------------------------------------------------------------ forwards

    def line(self, req: int) -> Timeline:
        """The columns of one request."""
        held = self.held[req]
        return Timeline(table=held.table, delta=held.delta, tabulated=held.media_width, has_media=bool(held.items))

    def forward(self, step: protocol.BuildForward) -> protocol.Result:
        self.forwards += 1
        for req in step.reqs:
            self.held[req] = replace(self.held[req], begun=True)
            self.cache_delta(req)
        lines = [self.line(req) for req in step.reqs]
        found = self.tables(step, lines)
        answered = [
            self.answer("" if label == 0 else f"step {label}", step, built) for label, built in enumerate(found)
        ]
        if step.repeat:
            self.forwards += 1
            answered.append(self.answer("again", step, self.tables(step, lines)[0]))
        if step.padding is not None:
            answered.append(self.answer("padded", step, self.pad(step, step.padding, found[0])))
        return protocol.TablesAnswer(tuple(answered), changed=self.changed(step))

    def cache_delta(self, req: int) -> None:
        """What a later decode adds to seq_len, kept as some engines do."""
        held = self.held[req]
        if held.items and held.delta_cache is None:
            self.held[req] = replace(held, delta_cache=held.delta - 1)

    def tables(self, step: protocol.BuildForward, lines: Sequence[Timeline]) -> list[BatchTables]:
        """The forward's tables; one per forward of the mode's loop."""
        mode = mode_of(step.mode)
        parts, at = [], 0
        for row_mode, part in zip(mode.parts, step.batch.parts, strict=True):
            parts.append(Part(row_mode, lines[at : at + len(part.reqs)], part.fields))
            at += len(part.reqs)
        steps = 1 if step.path in ("direct", "kernel") else mode.loops(parts[0].fields)
        found = [tables.tables_of(mode, parts, number) for number in range(steps)]
        return [tables.padded(one, step.tier) for one in found] if step.tier else found

    def pad(self, step: protocol.BuildForward, padding: protocol.Padding, built: BatchTables) -> BatchTables:
        return tables.padded(built, padding.tokens)

    def changed(self, step: protocol.BuildForward) -> tuple[str, ...]:
        """Inputs that building the batch altered: none."""
        return ()

    def copies(self, step: protocol.BuildForward) -> int:
        """Host-to-device copies: the budget's floor."""
        return 0

    def rotate(self, step: protocol.Rotary) -> protocol.Rotated:
        """The rotation. A view's columns are the table's: messages carry no buffers."""
        t, h, w = step.sections
        layout = Layout(
            step.head_size,
            step.rotary_dim,
            (t, h, w),
            next((name for name in ("cycled", "alternating", "interleaved") if getattr(step, name)), "contiguous"),
            step.base,
            None if step.scaling is None else Scaling(*step.scaling),
        )

        def turned(part: protocol.Tensor) -> protocol.Tensor:
            heads = np.frombuffer(part.data, dtype=np.float32).astype(np.float64)
            out = rotary.rotated(decoded(step.table), heads.reshape(part.shape[0], -1, step.head_size), layout)
            return protocol.Tensor("float32", part.shape, out.astype(np.float32).tobytes())

        return protocol.Rotated(turned(step.query), turned(step.key))

    def answer(self, label: str, step: protocol.BuildForward, built: BatchTables) -> protocol.TablePair:
        """The tables as an engine would hand them over."""
        index = built.positions.astype(built.index_dtype, copy=False)
        rows = None if built.rows is None or step.path == "kernel" else tensor(built.rows)
        return protocol.TablePair(label, tensor(index), rows)


def answer(job: protocol.Job, engine: ReferenceEngine) -> protocol.JobAnswer:
    """Run one job on a fresh engine."""
    results: list[protocol.Result] = []
    started = time.perf_counter_ns()
    for step in job.steps:
        try:
            results.append(engine.run(step))
        except Exception as error:  # an engine's exception is an answer, not the end of the worker
            results.append(protocol.Raised("engine", type(error).__name__, str(error), "reference"))
    return protocol.JobAnswer(job.id, tuple(results), time.perf_counter_ns() - started, engine.forwards)


def without_start(step: protocol.TurnStep) -> protocol.TurnStep:
    """The turn without its start of sequence, which stands at 0: everything moves up by one."""
    media = step.media
    if media is not None:
        items = tuple(
            msgspec.structs.replace(item, start=item.start - 1, stop=item.stop - 1, more=_one_less(item.more))
            for item in media.items
        )
        media = protocol.Media(tensor(decoded(media.table)[:, 1:] - 1), media.delta, items)
    return msgspec.structs.replace(step, ids=step.ids[1:], media=media, bos=False)


def _one_less(spans: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    return tuple((start - 1, stop - 1) for start, stop in spans)


def tensor(array: npt.NDArray[np.generic]) -> protocol.Tensor:
    """An array as it travels."""
    return protocol.Tensor(array.dtype.name, tuple(array.shape), np.ascontiguousarray(array).tobytes())

"""The known bugs at work: an engine that has them and is right otherwise, to say what a scenario must come to.

A run expects of a scenario what the judge says of this engine's answers, number for number. What fails and was not
predicted is another bug; what was predicted and is right is an entry that says too much, or a bug that is gone.
Consequences are predicted like anything else: they come out of what the wrong engine holds.
"""

import copy
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import msgspec
import numpy as np

from ropecheck.adapters import protocol
from ropecheck.conformance.judge.outcome import Failure
from ropecheck.conformance.judge.verdict import judge
from ropecheck.conformance.known.base import alike
from ropecheck.conformance.known.inputs import (
    ASIDE,
    BY_DELTA,
    DRAFTS,
    ENDED,
    NOTHING,
    Inputs,
    Unmade,
    brought,
    may_be_odd,
)
from ropecheck.conformance.plan.planner import Plan, decoded
from ropecheck.conformance.reference_engine import PAD_VALUE, Held, ReferenceEngine, answer, tensor, without_start
from ropecheck.conformance.scenario.operations import Abort, Build, Operation, Retract, Rotate, Scenario, Submit, Turn
from ropecheck.reference import compose
from ropecheck.reference.rotary import bounded
from ropecheck.reference.tables import BatchTables
from ropecheck.reference.timeline import IntArray, Timeline

FROM_T = "retraction-continues-from-t"
AGAIN = "retraction-tops-up-again"
SHARED = "retraction-grows-a-shared-table"
OFFSET = "offset-keeps-the-parents-media"
ABORTED = "abort-drops-the-media"
START = "a-start-of-sequence-keeps-its-column"
REPLACE = "replace-all-changes-a-dict-in-a-loop"
SHARES = "packed-columns-in-equal-shares"
STALE = "frozen-kv-padding-is-stale"
NEVER = "multi-layer-rows-are-never-copied"
MEMBERS = "members-have-no-delta"
DRAFTED = "text-is-drafted-from"
READER = "positions-pass-the-reader"
CYCLED = "glm-sections-in-tensors-as-qwens"
STILL = "draft-rows-stand-still"
GRAPHS = "draft-graphs-have-no-rows"
IDLE = "idle-has-no-table"
MERGED = "media-join-the-parents"
FILLS = "carried-tokens-keep-placeholders"

BUGS: dict[str, str] = {
    FROM_T: "a retracted request's table goes on behind the t row of its last column, not behind its largest position",
    AGAIN: "each time that a retracted request is considered its table gains its outputs once more",
    SHARED: "a text turn shares its parent's media inputs: a retraction of the one grows the table of both",
    OFFSET: "a turn with an offset holds its parent's table, delta and items, whatever it dropped of them",
    ABORTED: "a turn that was given up has no media any more: one that continues it takes its tokens for text",
    START: "the start of sequence that a turn leaves out keeps its column, and the last token before gets it",
    REPLACE: "replace without a parent, in a session that has a turn, raises half-way",
    SHARES: "packed columns are dealt out as if every request had as many nodes as every other",
    STALE: "the padding of a smaller batch holds what an earlier batch of the same runner left there",
    NEVER: "the three rows of the shared buffers stay as they were allocated",
    MEMBERS: "rows behind the requests' own get delta 0, and raise where a table reaches its request's token",
    DRAFTED: "a draft that reads a token of the prompt's table places it by delta, as if it were text",
    READER: "a position past the last one that the rotary embedding has prepared raises",
    CYCLED: "the tensor version of the rotary embedding deals GLM-V's sections out as Qwen3-VL's",
    STILL: "the draft loop advances the index and not the rows: every forward reads the first one's columns",
    GRAPHS: "the graphs of EAGLE drafts never get the three rows: zeros for every token",
    IDLE: "an idle batch has no table of three rows",
    MERGED: "a turn's media are put into the inputs that its parent holds, too: columns behind the parent's prompt, as "
    "if nothing stood before them, and the delta beside the parent's",
    FILLS: "a streaming turn's tokens are carried on from its parent's, with placeholders for its own media",
    ENDED: "a window of a session's turn has as many columns as its table has left, and behind the table one",
    ASIDE: "every decode reads the delta that was put aside first, not only one beside a request whose table reaches "
    "its token",
}
"""Every cause of scenarios by the name that entries use, and what comes out."""


class Raises(Exception):
    """The engine raises."""

    def __init__(self, type: str, message: str, function: str) -> None:
        self.raised = protocol.Raised("engine", type, message, function)


class KnownEngine(ReferenceEngine):
    """A right engine but for these bugs."""

    def __init__(self, bugs: Collection[str]) -> None:
        super().__init__()
        self.bugs = bugs
        self.inputs: dict[int, Inputs] = {}
        """By request; text alone has none."""
        self.parents: dict[int, int | None] = {}
        """By request: the turn that it continues."""
        self.items = 0
        """Media items that came so far."""
        self.pads: dict[int, tuple[int, ...]] = {}
        """By request: what stands for each of its items' spans in its tokens."""
        self.carried: dict[int, tuple[int, ...]] = {}
        """By request: the tokens that its parent's array of them became."""
        self.left: dict[int, IntArray] = {}
        """What the buffers of a frozen-KV draft's runner hold, by its branches."""

    def run(self, step: protocol.Step) -> protocol.Result:
        if isinstance(step, protocol.SubmitStep | protocol.TurnStep):
            self.pads[step.req] = tuple(self.number(step.media)) if step.media else ()
        try:
            result = super().run(step)
        except Raises as error:
            return error.raised
        except KeyError as error:  # a request that never came to be
            return protocol.Raised("adapter", "KeyError", str(error), "")
        if isinstance(step, protocol.SubmitStep):
            self.hold(step.req, None, step.media, 0)
        return result

    # ------------------------------------------------------------ requests and sessions

    def turn(self, step: protocol.TurnStep) -> None:
        session = self.sessions[step.session]
        if REPLACE in self.bugs and step.replace and step.parent is None and session.known and not session.streaming:
            self.clear(step.session, session.known[0])
            raise Raises("RuntimeError", "dictionary changed size during iteration", "create_req")
        self.parents[step.req] = session.last if session.streaming else step.parent
        super().turn(step)
        if step.bos and START not in self.bugs:
            step = without_start(step)
        held = self.held[step.req]
        if held.aborted:
            return
        if (parent_req := self.parents[step.req]) is not None:
            own = self.pads[step.req]
            self.pads[step.req] = (*self.pads[parent_req][: len(held.items) - len(own)], *own)
        if FILLS in self.bugs and session.streaming and session.last is not None:
            self.carry(step, self.held[session.last])
        continued = self.parents[step.req]
        parent = None if continued is None else self.inputs.get(continued)
        if parent is not None and step.offset and OFFSET not in self.bugs:
            parent = cut(parent, step.offset)
        self.hold(step.req, parent, step.media, len(held.ids) - len(step.ids))

    def padded_ids(self, held: Held) -> tuple[int, ...]:
        """With an item's number, or what its pixels have in common with others of the job."""
        ids = list(held.ids)
        pads = next((self.pads.get(req, ()) for req, other in self.held.items() if other is held), ())
        for (start, stop), pad in zip(held.items, pads, strict=False):
            ids[start:stop] = [pad] * (stop - start)
        return tuple(ids)

    def number(self, media: protocol.Media) -> Iterator[int]:
        """What stands for each span of these items, which come now."""
        for item in media.items:
            self.items += 1
            yield from [PAD_VALUE + (item.pixels or self.items)] * len(item.spans)

    def carry(self, step: protocol.TurnStep, parent: Held) -> None:
        """A turn goes on in its parent's array of tokens, where that is the parent's prompt and some of its reply."""
        reply = parent.output_ids[: parent.max_new_tokens]
        there = parent.fill_ids or ()
        if 0 <= len(there) - len(parent.ids) <= len(reply):
            self.carried[step.req] = there + reply[len(there) - len(parent.ids) :] + step.ids

    def hold(self, req: int, parent: Inputs | None, media: protocol.Media | None, start: int) -> None:
        """The media inputs of a new request, whose own turn starts at token `start`.

        Those of the turn that it continues where it brings none, and its own behind them where it does.
        """
        if media is not None:
            own = tuple((first + start, stop + start) for item in media.items for first, stop in item.spans)
            if MERGED in self.bugs:  # whoever holds the parent's, holds these
                self.inputs[req] = joined = parent or copy.copy(NOTHING)
                vars(joined).update(vars(merged(joined, decoded(media.table), own)))
            else:
                self.inputs[req] = continued(parent, decoded(media.table), own, start)
        elif parent is not None:
            self.inputs[req] = parent

    def clear(self, session: int, turn: int) -> None:
        """A turn, and all that continue it, can no longer be continued."""
        gone = {turn}
        for req in (known := self.sessions[session].known):
            if self.parents[req] in gone:
                gone.add(req)
        self.sessions[session] = replace(self.sessions[session], known=tuple(req for req in known if req not in gone))

    def leave(self, req: int, finished: bool) -> None:
        super().leave(req, finished)
        if not finished and ABORTED in self.bugs:
            self.inputs.pop(req, None)

    def schedule(self, step: protocol.Schedule) -> None:
        super().schedule(step)
        if step.req in self.carried:
            held, there = self.held[step.req], self.carried[step.req]
            right = self.padded_ids(held)
            same = next((n for n, pair in enumerate(zip(there, right, strict=True)) if pair[0] != pair[1]), step.hit)
            fill = there + held.output_ids
            self.held[step.req] = replace(held, fill_ids=fill, prefix_len=min(step.hit, same))
        for _ in range(step.attempts):
            self.top_up(step.req)

    def top_up(self, req: int) -> None:
        """A retracted request's table gains columns for its outputs."""
        held, inputs = self.held[req], self.inputs.get(req)
        if inputs is None or not held.retracted or not held.output_ids:
            return
        if SHARED not in self.bugs:
            inputs = self.inputs[req] = copy.copy(inputs)
        inputs.table = topped_up(inputs.table, len(held.output_ids), self.bugs)
        if AGAIN not in self.bugs:
            inputs.table = inputs.table[:, : len(held.ids) + len(held.output_ids)]

    def state(self, req: int) -> protocol.RequestState:
        right, inputs = super().state(req), self.inputs.get(req)
        if inputs is None:
            return msgspec.structs.replace(right, table=None, delta=None, delta_cache=None, offsets=())
        return msgspec.structs.replace(
            right,
            table=tensor(inputs.table),
            delta=tensor(np.array([inputs.deltas], dtype=np.int64).T),
            delta_cache=tensor(np.tile(np.array(inputs.aside, dtype=np.int64) - 1, (3, 1))) if inputs.aside else None,
            offsets=inputs.items,
        )

    # ------------------------------------------------------------ forwards

    def cache_delta(self, req: int) -> None:
        """Which forwards put a delta aside, `tables` knows."""

    def tables(self, step: protocol.BuildForward, lines: Sequence[Timeline]) -> list[BatchTables]:
        if ENDED not in self.bugs:
            self.put_aside(step)
        if step.mode == "beam_decode" and MEMBERS in self.bugs and any(self.reaches(step)):
            raise Raises("IndexError", "list index out of range", "_compute_mrope_positions_decode")
        members = len(step.batch.parts[0].reqs) if step.mode == "beam_decode" and MEMBERS in self.bugs else None
        lines = [
            NO_MEDIA if members is not None and row >= members else self.read(step.mode, req)
            for row, req in enumerate(step.reqs)
        ]
        found = super().tables(step, lines)
        if ENDED in self.bugs or MERGED in self.bugs:
            own = step.reqs if members is None else step.reqs[:members]
            held = [self.inputs.get(req, NOTHING) for req in own] + [NOTHING] * (len(step.reqs) - len(own))
            found = [self.odd(step, one, held) for one in found]
        if step.mode == "draft_decode" and STILL in self.bugs:
            return [replace(one, rows=found[0].rows) for one in found]
        if step.mode == "idle" and IDLE in self.bugs:
            return [replace(one, rows=None) for one in found]
        return [self.dealt(step, one, lines) for one in found] if step.mode == "ragged_verify" else found

    def odd(self, step: protocol.BuildForward, right: BatchTables, rows: Sequence[Inputs]) -> BatchTables:
        """The tables with as many columns as these rows bring."""
        if right.rows is None or not may_be_odd(step.mode, len(step.reqs), right.live):
            return right
        firsts, counts = zip(*((int(span.tokens[0]), len(span.tokens)) for span in right.spans), strict=True)
        try:
            columns = brought(step.mode, rows, firsts, counts, right.positions[: right.live], self.bugs)
        except Unmade as error:
            raise Raises("RuntimeError", *error.args) from error
        return replace(right, rows=np.concatenate([*columns, right.rows[:, right.live :]], axis=1))

    def read(self, mode: str, req: int) -> Timeline:
        """The columns that a forward reads of a request."""
        inputs = self.inputs.get(req)
        if inputs is None:
            return NO_MEDIA
        by_delta = mode in BY_DELTA and (mode not in DRAFTS or DRAFTED in self.bugs)
        table = self.nothing() if by_delta else inputs.table
        return Timeline(table=table, delta=inputs.delta, tabulated=table.shape[1], has_media=True)

    def reaches(self, step: protocol.BuildForward) -> list[bool]:
        """Per row of a decode, whether its request's table reaches the token that it reads."""
        rows = zip(step.reqs, step.batch.seq_lens, strict=False)
        return [req in self.inputs and self.inputs[req].width >= seq_len for req, seq_len in rows]

    def put_aside(self, step: protocol.BuildForward) -> None:
        """A delta that columns are made with one at a time is put aside for the next time."""
        if step.mode in ("decode", "beam_decode"):
            reaching = self.reaches(step)
            for req, reaches in zip(step.reqs, reaching, strict=True):
                if any(reaching) and not reaches and req in self.inputs:
                    self.inputs[req].put_aside()
        elif step.reqs and step.mode not in BY_DELTA:
            for req, (start, count) in zip(step.reqs, step.batch.windows, strict=True):
                inputs = self.inputs.get(req)
                if inputs is not None and start + count > inputs.width:  # a session's turn: others' tables reach
                    inputs.put_aside()

    def dealt(self, step: protocol.BuildForward, right: BatchTables, lines: Sequence[Timeline]) -> BatchTables:
        """Packed columns, each with the delta of the request that would own it if all owned as many."""
        width, rows = right.positions.size, len(lines)
        if SHARES not in self.bugs:
            return right
        if width % rows:
            message = f"shape '[{rows}, -1]' is invalid for input of size {width}"
            raise Raises("RuntimeError", message, "compute_spec_mrope_positions")
        deltas = np.repeat(np.array([line.delta for line in lines], dtype=np.int64), width // rows)
        return replace(right, rows=np.broadcast_to(right.positions + deltas, (3, width)))

    def pad(self, step: protocol.BuildForward, padding: protocol.Padding, built: BatchTables) -> BatchTables:
        right = super().pad(step, padding, built)
        if right.rows is None:
            return right
        eagle = padding.kind == "graph" and step.mode in ("draft_decode", "draft_extend_v2")
        if (padding.kind == "multi_layer" and NEVER in self.bugs) or (eagle and GRAPHS in self.bugs):
            return replace(right, rows=np.zeros_like(right.rows))
        if padding.kind == "frozen_kv" and STALE in self.bugs:
            branches, width = step.batch.number("topk", 1), right.positions.size
            before = self.left.get(branches, self.nothing())
            held = np.zeros((3, max(width, before.shape[1])), dtype=np.int64)
            held[:, : before.shape[1]] = before
            held[:, : right.live] = right.rows[:, : right.live]
            self.left[branches] = held
            return replace(right, rows=held[:, :width])
        return right

    def rotate(self, step: protocol.Rotary) -> protocol.Rotated:
        behind = (position for position in decoded(step.table).flat if position >= step.longest)
        if READER in self.bugs and (first := next(behind, None)) is not None:
            message = f"index {first} is out of bounds for dimension 0 with size {step.longest}"
            raise Raises("IndexError", message, "forward_native")
        if CYCLED in self.bugs and step.method == "native":
            step = msgspec.structs.replace(step, cycled=False)
        return super().rotate(step)


NO_MEDIA = Timeline(table=np.zeros((3, 0), dtype=np.int64), delta=0, tabulated=0, has_media=False)


def continued(parent: Inputs | None, own: IntArray, items: tuple[tuple[int, int], ...], start: int) -> Inputs:
    """The media inputs of a turn that brings some, at token `start`: behind those of the turn that it continues."""
    before = np.zeros((len(own), 0), dtype=np.int64) if parent is None else parent.table[:, :start]
    between = compose.text_table(start - before.shape[1], len(own))
    table = compose.appended(compose.appended(before, between), own)
    return Inputs(table, compose.delta(table), (() if parent is None else parent.items) + items)


def merged(parent: Inputs, own: IntArray, items: tuple[tuple[int, int], ...]) -> Inputs:
    """A parent's media inputs when a turn's have joined them."""
    if not parent.width:
        return Inputs(own, compose.delta(own), items)
    table = np.concatenate([parent.table, own], axis=1)
    return Inputs(table, parent.delta, parent.items + items, (*parent.more, compose.delta(own)), parent.aside)


def topped_up(table: IntArray, outputs: int, bugs: Collection[str]) -> IntArray:
    """A retracted request's table with columns for so many outputs more. int64 [3, P] -> [3, P + outputs]."""
    free = int(table[0, -1]) + 1 if FROM_T in bugs else compose.free_position(table)
    return np.concatenate([table, free + compose.text_table(outputs)], axis=1)


def cut(inputs: Inputs, tokens: int) -> Inputs | None:
    """The media inputs of a history's first tokens; None where they hold no media."""
    items = tuple((start, min(stop, tokens)) for start, stop in inputs.items if start < tokens)
    if not items:
        return None
    if tokens >= inputs.width:
        return Inputs(inputs.table, inputs.delta, items)
    table = inputs.table[:, :tokens]
    return Inputs(table, compose.delta(table), items)


def bugs_of(causes: Iterable[str]) -> frozenset[str]:
    """Those of these causes that this engine can have."""
    return frozenset(causes) & frozenset(BUGS)


def touches(scenario: Scenario, bugs: frozenset[str]) -> bool:
    """Whether any of these bugs may show there: no more than a look at the operations."""
    arriving = (op for op in scenario.ops if isinstance(op, Submit | Turn))
    if all(run.is_text for op in arriving for run in op.prompt):
        bugs &= {REPLACE, SHARES, STALE, NEVER, READER, CYCLED, STILL, GRAPHS, IDLE}
    if ABORTED in bugs:
        given_up = {op.req for op in scenario.ops if isinstance(op, Abort)}
        if any(isinstance(op, Turn) and op.parent in given_up for op in scenario.ops):
            return True
    return any(_touches(op, bugs) for op in scenario.ops)


def _touches(op: Operation, bugs: frozenset[str]) -> bool:
    match op:
        case Retract():
            return not bugs.isdisjoint((FROM_T, AGAIN, SHARED))
        case Turn():
            afresh = op.replace and op.parent is None
            return not bugs.isdisjoint((MERGED, ENDED)) or any(
                so and bug in bugs for so, bug in ((op.offset, OFFSET), (afresh, REPLACE), (op.bos, START))
            )
        case Build():
            return SHOWN_IN.get(op.batch.mode) in bugs or SHOWN_IN.get(op.buffer) in bugs
        case Rotate():
            return (READER in bugs and bounded(op.layout)) or (CYCLED in bugs and op.layout == "cycled")
    return False


SHOWN_IN = {
    "ragged_verify": SHARES,
    "frozen_kv": STALE,
    "multi_layer": NEVER,
    "beam_decode": MEMBERS,
    "draft_decode": STILL,
    "graph": GRAPHS,
    "idle": IDLE,
    **dict.fromkeys(DRAFTS, DRAFTED),
}
"""Mode or buffer -> the bug of its own."""


def attributed(
    planned: Plan, found: Sequence[Failure], shared: Mapping[tuple[str, str, str], Collection[str]]
) -> tuple[Failure, ...]:
    """Failures that several bugs may show alike, each with those that give it alone. shared: by what they show."""
    asked = sorted({bug for one in found for bug in shared.get(one.key, ())})
    alone = {bug: predicted(planned, frozenset({bug})) for bug in asked}

    def causes(failure: Failure) -> tuple[str, ...]:
        return tuple(bug for bug in shared.get(failure.key, ()) if any(alike(failure, one) for one in alone[bug]))

    return tuple(msgspec.structs.replace(one, causes=causes(one)) for one in found) if asked else tuple(found)


def predicted(planned: Plan, bugs: frozenset[str]) -> tuple[Failure, ...]:
    """What fails in a scenario on an engine with these bugs."""
    if not bugs or not touches(planned.scenario, bugs):
        return ()
    return judge(planned, answer(planned.job, KnownEngine(bugs))).failures

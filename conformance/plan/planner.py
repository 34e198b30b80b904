"""Scenario -> job: the lifecycle's numbers put into protocol steps, and beside each step what it must answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
import numpy as np

from ropecheck.adapters import protocol
from ropecheck.conformance.plan import rotary
from ropecheck.conformance.plan.rotary import RotaryCheck
from ropecheck.reference import operations as ops
from ropecheck.reference.batches import Batch, Expected
from ropecheck.reference.lifecycle import Transition, apply
from ropecheck.reference.requests import MEDIA_IDS, Request, State, line_of, turn_line
from ropecheck.reference.rotary import table_of
from ropecheck.reference.timeline import Timeline, run_lengths
from ropecheck.spec import cost
from ropecheck.spec.history import OutOfDomain
from ropecheck.spec.rules import all_rules


@dataclass(frozen=True, slots=True)
class TableCheck:
    """The result at `result` must hold these tables."""

    op: int
    result: int
    expected: Expected
    labels: Mapping[str, str]
    """Label in the answer -> label in expected.tables ("again" -> "")."""
    situations: tuple[str, ...] = ()
    """"mode x situation", as the report counts them."""
    positions_only: bool = False
    echoed: bool = False
    """The 1-D table was handed to the engine: comparing it says that it was kept, not that it is right."""
    right: dict[str, RightAnswer] = field(default_factory=dict)
    """Label -> the answer that a right engine gives, so that most verdicts are one comparison. Filled by the judge."""


class RightAnswer(NamedTuple):
    """The right table as it travels, and the rules that it satisfies."""

    positions: protocol.Tensor
    mrope: protocol.Tensor | None
    rules: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ExpectedState:
    """What one request must hold."""

    request: Request
    line: Timeline
    media_mask: tuple[bool, ...]
    spans: tuple[tuple[int, int], ...]
    """Half-open token ranges of its media items, in the whole history."""
    parent_line: Timeline | None
    """The columns of the turn that it continues."""
    scheduled: bool
    """The scheduler has just admitted it: fill ids are built."""


@dataclass(frozen=True, slots=True)
class StateCheck:
    """The result at `result` must hold these states; `since` is the result index of the observation before."""

    op: int
    result: int
    kind: str
    """Operation tag: what happened between the two observations."""
    subject: frozenset[int]
    """Requests that the operation may change."""
    parent: int | None
    since: int | None
    expected: tuple[ExpectedState, ...]
    history_rules: tuple[str, ...] = ()
    """For a turn: the session rules that its history is an example of; the last one names a failure."""


@dataclass(frozen=True, slots=True)
class CostCheck:
    """The result at `result` must not count more host-to-device copies than the budget."""

    op: int
    result: int
    mode: str
    rule: str
    budget: int
    waits: int
    """How often it may wait for the device."""


@dataclass(frozen=True, slots=True)
class LawCheck:
    """Both readings agree. A reading is a list of (result index, first and last + 1 column of each of its tables)."""

    op: int
    result: int
    law: str
    req: int
    left: tuple[Reading, ...]
    right: tuple[Reading, ...] | None


@dataclass(frozen=True, slots=True)
class Reading:
    """Where one forward's tables hold one request: columns start .. stop - 1 of the tables with these labels."""

    op: int
    req: int
    result: int
    labels: tuple[str, ...]
    start: int
    stop: int


Check = TableCheck | StateCheck | CostCheck | LawCheck | RotaryCheck


@dataclass(frozen=True, slots=True)
class Plan:
    """A scenario, the job for a worker, and what its answer is checked against."""

    scenario: ops.Scenario
    job: protocol.Job
    checks: tuple[Check, ...]


class _Mark(NamedTuple):
    """Where a planner stood after an operation."""

    op: ops.Operation
    state: State
    steps: int
    checks: int
    last_observed: int | None


class _Planner:
    """Plans scenarios one after another. Scenarios of a sweep begin alike: what an earlier one began with is kept."""

    def __init__(self) -> None:
        self.shape: tuple[str, str, bool, bool] | None = None
        self.marks: list[_Mark] = []
        self.states: dict[tuple[int, bool], ExpectedState] = {}

    def run(self, scenario: ops.Scenario, device: str) -> None:
        self.device = device
        for law in scenario.laws:
            if law.law not in all_rules() or law.law == "laws.same_step_twice" or not law.law.startswith("laws."):
                raise OutOfDomain(f"laws: unknown law {law.law!r}")
            if (law.law == "laws.text_rows_are_the_index") != (law.right is None):
                raise OutOfDomain(f"laws: {law.law} compares {'one reading' if law.right else 'two readings'}")
        for number in range(self._begin(scenario), len(scenario.ops)):
            op = scenario.ops[number]
            try:
                moved = apply(self.state, op)
            except OutOfDomain as error:
                raise OutOfDomain(f"ops[{number}] ({_tag(op)}): {error}") from None
            self._step(number, op, moved)
            self.marks.append(_Mark(op, self.state, len(self.steps), len(self.checks), self.last_observed))

    def laws(self, scenario: ops.Scenario) -> list[LawCheck]:
        return [self._law(law) for law in scenario.laws]

    def _begin(self, scenario: ops.Scenario) -> int:
        """Go back to where this scenario and the last one part; returns the number of operations they share."""
        self.repeat = scenario.repeat
        self.observes = any(isinstance(op, ops.Turn | ops.Retract) for op in scenario.ops)
        shape = (self.device, scenario.family, scenario.repeat, self.observes)
        shared = 0
        if shape == self.shape:
            for mark, op in zip(self.marks, scenario.ops, strict=False):
                if mark.op is not op and mark.op != op:
                    break
                shared += 1
        self.shape = shape
        del self.marks[shared:]
        if shared:
            mark = self.marks[-1]
            self.state, self.last_observed = mark.state, mark.last_observed
            del self.steps[mark.steps :], self.checks[mark.checks :]
        else:
            self.state, self.last_observed = State(family=scenario.family), None
            self.steps: list[protocol.Step] = []
            self.checks: list[Check] = []
        return shared

    def _law(self, law: ops.Law) -> LawCheck:
        left = self._readings(law.left)
        right = None if law.right is None else self._readings(law.right)
        last = max((*left, *(right or ())), key=lambda reading: reading.op)
        return LawCheck(last.op, last.result, law.law, law.left.req, left, right)

    def _readings(self, pick: ops.Pick) -> tuple[Reading, ...]:
        out = []
        for check in self.checks:
            if not isinstance(check, TableCheck) or check.op not in pick.ops or check.positions_only:
                continue
            if pick.req not in check.expected.batch.reqs:
                continue
            row = check.expected.batch.reqs.index(pick.req)
            spans = [span for span in check.expected.tables[""].spans if span.request == row]
            labels = tuple(label for label in check.expected.tables if label != "padded")
            out.append(Reading(check.op, pick.req, check.result, labels, spans[0].start, spans[-1].stop))
        if not out:
            raise OutOfDomain(f"laws: operations {list(pick.ops)} run no forward of request {pick.req}")
        return tuple(out)

    def _step(self, number: int, op: ops.Operation, moved: Transition) -> None:
        if isinstance(op, ops.Extend | ops.Mixed):
            self._schedule(number, op)
        self.steps.extend(self._before(op, moved))
        for expected in moved.forwards:
            self._forward(number, op, expected)
        if isinstance(op, ops.Rotate):
            self._rotate(number, op)
        self.state = moved.state
        self.steps.extend(protocol.Generate(req, ids) for req, ids in moved.emitted.items())
        if self.observes and not isinstance(op, ops.Open | ops.MeasureCost | ops.Rotate):
            self._observe(number, op, frozenset())

    def _before(self, op: ops.Operation, moved: Transition) -> list[protocol.Step]:
        match op:
            case ops.Submit():
                request = moved.state.requests[op.req]
                return [protocol.Submit(op.req, request.ids, _media(moved.state, request), op.max_new_tokens)]
            case ops.Open():
                return [protocol.Open(op.session, op.streaming)]
            case ops.Turn():
                request = moved.state.requests[op.req]
                return [
                    protocol.Turn(
                        session=op.session,
                        req=op.req,
                        ids=request.turn_ids,
                        media=_media(moved.state, request),
                        parent=op.parent,
                        replace=op.replace,
                        offset=op.offset,
                        drop_previous_output=op.drop_previous_output,
                        max_new_tokens=op.max_new_tokens,
                    )
                ]
            case ops.Finish():
                return [protocol.Finish(op.req)]
            case ops.Abort():
                return [protocol.Abort(op.req)]
            case ops.Retract():
                return [protocol.Retract(op.req)]
            case ops.Reschedule():
                return [protocol.Schedule(op.req, attempts=op.refusals)]
            case _:
                return []

    def _schedule(self, number: int, op: ops.Extend | ops.Mixed) -> None:
        """Before its first window after arrival or retraction a request is admitted by the scheduler."""
        admitted = [w for w in op.windows if not self.state.requests[w.req].admitted]
        self.steps.extend(protocol.Schedule(window.req, hit=window.hit) for window in admitted)
        if self.observes and admitted:
            self._observe(number, op, frozenset(window.req for window in admitted))

    def _forward(self, number: int, op: ops.Operation, expected: Expected) -> None:
        measured = op.of if isinstance(op, ops.MeasureCost) else op
        forward = _message(measured, expected.batch, self.repeat and not isinstance(op, ops.MeasureCost))
        if isinstance(op, ops.MeasureCost):
            rule, budget = _budget(op.of, expected)
            waits = cost.synchronisations(any(line.has_media for line in expected.lines))
            self.checks.append(CostCheck(number, len(self.steps), expected.batch.mode, rule, budget, waits))
            self.steps.append(protocol.Cost(forward))
            return
        labels = {label: label for label in expected.tables}
        if forward.repeat:
            labels["again"] = ""
        situations = tuple(f"{expected.mode} x {situation}" for situation in sorted(expected.situations))
        echoed = forward.path == "direct" and forward.mode in ("target_verify", "draft_decode") and not op_is_ragged(op)
        self.checks.append(TableCheck(number, len(self.steps), expected, labels, situations, echoed=echoed))
        self.steps.append(forward)
        if isinstance(op, ops.Extend) and op.kernel:
            self.checks.append(TableCheck(number, len(self.steps), expected, {"": ""}, positions_only=True))
            self.steps.append(
                protocol.Forward(
                    mode=forward.mode,
                    reqs=forward.reqs,
                    seq_lens=forward.seq_lens,
                    prefix_lens=forward.prefix_lens,
                    extend_lens=forward.extend_lens,
                    path="kernel",
                )
            )

    def _rotate(self, number: int, op: ops.Rotate) -> None:
        for method in rotary.methods(op.method, self.device):
            check = RotaryCheck(number, len(self.steps), op.req, op.layout, method, table_of(self.state, op))
            self.checks.append(check)
            self.steps.extend(rotary.steps(check))

    def _expected_state(self, request: Request, scheduled: bool) -> ExpectedState:
        """As built before, if the request has not changed since."""
        known = self.states.get((request.req, scheduled))
        if known is None or known.request is not request:
            known = self.states[request.req, scheduled] = _expected_state(self.state, request, scheduled)
        return known

    def _observe(self, number: int, op: ops.Operation, scheduled: frozenset[int]) -> None:
        alive = [r for r in self.state.requests.values() if r.status != "aborted"]
        subject = scheduled or _subject(op)
        parent = self.state.requests[op.req].parent if isinstance(op, ops.Turn) else None
        expected = tuple(self._expected_state(request, request.req in scheduled) for request in alive)
        self.checks.append(
            StateCheck(
                op=number,
                result=len(self.steps),
                kind=_tag(op),
                subject=subject,
                parent=parent,
                since=self.last_observed,
                expected=expected,
                history_rules=_history_rules(self.state, op) if isinstance(op, ops.Turn) else (),
            )
        )
        self.last_observed = len(self.steps)
        self.steps.append(protocol.Observe(tuple(request.req for request in alive)))


_planner = _Planner()


def plan(scenario: ops.Scenario, device: str = "cpu") -> Plan:
    """The job of a scenario. Raises OutOfDomain, naming the operation, where no public request leads."""
    _planner.run(scenario, device)
    checks = (*_planner.checks, *_planner.laws(scenario))
    if not any(isinstance(check, TableCheck | CostCheck | RotaryCheck) for check in checks):
        raise OutOfDomain("ops: the scenario runs no forward and no rotation, so there is nothing to check")
    steps = list(_planner.steps)
    if device != "cpu" and not scenario.laws:  # a law compares the engine's own tables with each other: they travel
        for check in checks:
            if isinstance(check, TableCheck) and not check.positions_only:
                steps[check.result] = _with_lines(steps[check.result], check.expected)
    job = protocol.Job(id=scenario.id, steps=tuple(steps), device=device)
    return Plan(scenario, job, checks)


def _with_lines(step: protocol.Step, expected: Expected) -> protocol.Step:
    """The forward with its requests' columns, to be compared where the tables are."""
    lines = tuple(
        protocol.Line(protocol.Tensor("int64", tuple(line.table.shape), line.table.tobytes()), line.delta)
        for line in expected.lines
    )
    return msgspec.structs.replace(step, expect=lines) if isinstance(step, protocol.Forward) else step


def op_is_ragged(op: ops.Operation) -> bool:
    """Ragged verifies go through the engine's own window builder, whatever their path says."""
    return isinstance(op, ops.Verify) and op.ragged


def _tag(op: ops.Operation) -> str:
    return str(op.__struct_config__.tag)


def _subject(op: ops.Operation) -> frozenset[int]:
    match op:
        case ops.Submit() | ops.Turn() | ops.Accept() | ops.Retract() | ops.Reschedule() | ops.Finish() | ops.Abort():
            return frozenset({op.req})
        case _:
            return frozenset()


def _history_rules(state: State, op: ops.Turn) -> tuple[str, ...]:
    """The session rules that say what this turn's history is, the most telling one last."""
    request = state.requests[op.req]
    if request.parent is None:
        return ("session.replace_all",) if op.replace else ("session.append",)
    parent = state.requests[request.parent]
    if op.offset:
        return ("session.offset",)
    if op.drop_previous_output:
        return ("session.drop_previous_output",)
    rules = ["session.append"]
    siblings = [r for r in state.requests.values() if r.parent == parent.req and r.req != op.req]
    if op.replace:
        rules.append("session.replace_with_parent")
    elif state.sessions[op.session].streaming:
        rules.append("session.streaming_append")
    elif siblings:
        rules.append("session.branch")
    if any(sibling.status == "aborted" for sibling in siblings):
        rules.append("session.abort_and_retry")
    if parent.outputs > parent.max_new_tokens:
        rules.append("session.reply_that_counts")
    return tuple(rules)


def _media(state: State, request: Request) -> protocol.Media | None:
    """What the engine's processor would build from this turn alone."""
    if not request.brings_media:
        return None
    line = turn_line(state, request)
    items = []
    start = 0
    for run, count in zip(request.turn, run_lengths(state.family, request.turn), strict=True):
        if not run.is_text:
            items.append(protocol.Item(run.kind, start, start + count))
        start += count
    table = protocol.Tensor("int64", tuple(line.table.shape), line.table.tobytes())
    return protocol.Media(table, line.delta, tuple(items))


def _expected_state(state: State, request: Request, scheduled: bool) -> ExpectedState:
    spans = []
    start = 0
    for run, count in zip(request.prompt, run_lengths(state.family, request.prompt), strict=True):
        if not run.is_text:
            spans.append((start, start + count))
        start += count
    media = set(MEDIA_IDS.values())
    mask = tuple(token in media for token in request.ids)
    parent = None if request.parent is None else line_of(state, state.requests[request.parent])
    return ExpectedState(request, line_of(state, request), mask, tuple(spans), parent, scheduled)


def _message(op: ops.Operation, batch: Batch, repeat: bool) -> protocol.Forward:
    forward = protocol.Forward(
        mode=batch.mode,
        reqs=batch.reqs,
        seq_lens=batch.seq_lens,
        prefix_lens=batch.prefix_lens,
        extend_lens=batch.extend_lens,
        decoding=batch.decoding,
        positions=batch.positions,
        topk=batch.topk,
        num_steps=batch.num_steps,
        num_draft_tokens=batch.num_draft_tokens,
        parents=batch.parents,
        verify_lens=batch.verify_lens,
        ragged_tokens=batch.ragged_tokens,
        block_offsets=batch.block_offsets,
        block_size=batch.block_size,
        repeat=repeat,
        padding=_padding(op, batch),
        host_lengths=op.host_lengths if isinstance(op, ops.Draft | ops.Verify | ops.DraftExtend) else True,
        path=op.path if isinstance(op, ops.Draft | ops.Verify | ops.DraftExtend) else "direct",
    )
    return forward


def _padding(op: ops.Operation, batch: Batch) -> protocol.Padding | None:
    match op:
        case ops.Decode() if op.pad:
            return protocol.Padding(op.pad, op.pad_batch, op.pad_batch)
        case ops.Draft() if op.pad:
            return protocol.Padding(op.pad, op.pad_batch, op.pad_batch * op.topk)
        case ops.Verify() | ops.DraftExtend() if op.pad:
            return protocol.Padding(op.pad, op.pad_batch, op.pad_batch * batch.num_draft_tokens)
        case ops.Extend() if op.pad:
            return protocol.Padding(op.pad, len(batch.reqs), op.pad_tokens)
        case ops.Idle() if op.pad_batch:
            return protocol.Padding("dp", op.pad_batch, op.pad_batch)
        case _:
            return None


def _budget(op: ops.Decode | ops.Verify | ops.Draft | ops.DraftExtend, expected: Expected) -> tuple[str, int]:
    """The rule that limits this forward's copies, and its number."""
    media = any(line.has_media for line in expected.lines)
    mode = expected.batch.mode
    if isinstance(op, ops.Decode):
        return "cost.decode", cost.decode(media)
    if isinstance(op, ops.DraftExtend) and op.host_lengths:
        return "cost.host_lengths", cost.host_lengths(media)
    return ("cost.media", cost.media(mode)) if media else ("cost.text_only", cost.text_only(mode))


def decoded(tensor: protocol.Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """A tensor as an int64 array. Raises ProtocolError when bytes and shape disagree or the dtype is no integer."""
    try:
        dtype = np.dtype(tensor.dtype).newbyteorder("<")
        if dtype.kind not in "iu":
            raise protocol.ProtocolError(f"tensor of dtype {tensor.dtype}: tables are integers")
        return np.frombuffer(tensor.data, dtype=dtype).reshape(tensor.shape).astype(np.int64, copy=False)
    except (TypeError, ValueError) as error:
        raise protocol.ProtocolError(f"tensor {tensor.dtype}{list(tensor.shape)}: {error}") from None

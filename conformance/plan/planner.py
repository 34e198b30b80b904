"""Scenario -> job: the lifecycle's numbers put into protocol steps, and beside each step what it must answer."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
import numpy as np

from ropecheck.adapters import protocol
from ropecheck.conformance.plan import rotary
from ropecheck.conformance.plan.rotary import RotaryCheck
from ropecheck.conformance.scenario import dimensions
from ropecheck.conformance.scenario import operations as ops
from ropecheck.conformance.scenario.forward import KEPT, SMALL, ExpectedTables, buffer_tokens
from ropecheck.conformance.scenario.lifecycle import Transition, apply
from ropecheck.reference.requests import BOS, MEDIA_IDS, Request, State, tokens_of, turn_line
from ropecheck.reference.rotary import table_of
from ropecheck.reference.timeline import IntArray, Timeline, laid
from ropecheck.reference.turns import may_be_refused
from ropecheck.spec.history import OutOfDomain, text
from ropecheck.spec.modes import mode_of
from ropecheck.spec.modes.declaration import PREFILLING
from ropecheck.spec.rules import all_rules
from ropecheck.spec.views import ArrivedTurn, SavedTurn


@dataclass(frozen=True, slots=True)
class TableCheck:
    """The result at `result` must hold these tables."""

    op: int
    result: int
    expected: ExpectedTables
    labels: Mapping[str, str]
    """Label in the answer -> label in expected.tables ("again" -> "")."""
    situations: tuple[str, ...] = ()
    """"mode x situation", as the report counts them."""
    positions_only: bool = False
    echoed: bool = False
    """The 1-D table was handed to the engine: comparing it says that it was kept, not that it is right."""


@dataclass(frozen=True, slots=True, eq=False)
class ExpectedState:
    """What one request must hold. Requests of several scenarios that must hold the same have the same object."""

    request: Request
    line: Timeline
    media_mask: tuple[bool, ...]
    spans: tuple[tuple[int, int], ...]
    """Half-open token ranges of its media items, in the whole history."""
    parent_line: Timeline | None
    """The columns of the turn that it continues."""
    scheduled: bool
    """The scheduler has just admitted it: fill ids are built."""
    small: bool
    """It is likely to come again."""


@dataclass(frozen=True, slots=True)
class StateCheck:
    """The result at `result` must hold these states; `since` is the result index of the observation before."""

    op: int
    result: int
    kind: str
    """Operation tag: what happened between the two observations."""
    subject: frozenset[int]
    """Requests that the operation may change."""
    own: frozenset[int]
    """Requests that the operation prefills: they are none that it must leave alone."""
    parent: int | None
    since: int | None
    expected: tuple[ExpectedState, ...]
    hits: Mapping[int, int] = field(default_factory=dict)
    """Requests that have just been admitted -> tokens that the prefix cache holds of them."""
    replaced: frozenset[int] = frozenset()
    """Turns that a later one of their session has replaced."""
    turn: ArrivedTurn | None = None
    """For a turn: what its client asked for; what the engine took it to be is not in it yet."""


@dataclass(frozen=True, slots=True)
class CostCheck:
    """The result at `result` must not count more host-to-device copies, and waits, than the mode's budget."""

    op: int
    result: int
    mode: str
    has_media: bool
    allowed: tuple[int, int]
    """Copies of a text-only batch, and of one with media."""
    extra: int
    """Copies besides, for lengths on the host."""


@dataclass(frozen=True, slots=True)
class LawCheck:
    """Both readings agree. A reading is a list of (result index, first and last + 1 column of each of its tables)."""

    op: int
    result: int
    law: str
    req: int
    left: "tuple[Reading, ...]"
    right: "tuple[Reading, ...] | None"


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
CHECKS = (TableCheck, CostCheck, RotaryCheck)
"""A scenario has at least one of these."""
OBSERVED = (ops.Turn, ops.Retract)
"""A scenario with one of these has its requests' state looked at, after every operation but `UNOBSERVED`."""
ARRIVALS = (ops.Submit, ops.Turn)
UNOBSERVED = (ops.Open, ops.MeasureCost, ops.Rotate)


@dataclass(frozen=True, slots=True)
class Plan:
    """A scenario, the job for a worker, and what its answer is checked against."""

    scenario: ops.Scenario
    job: protocol.Job
    checks: tuple[Check, ...]
    situations: tuple[str, ...] = ()
    """What its arrivals are examples of, as the report counts them."""
    optional: tuple[StateCheck, ...] = ()
    """Those of turns that the engine may refuse. What comes after such a turn is planned for one that it takes."""


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
        self.states: dict[tuple[object, ...], ExpectedState] = {}

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
                raise OutOfDomain(f"ops[{number}] ({ops.tag(op)}): {error}") from None
            self._step(number, op, moved)
            self.marks.append(_Mark(op, self.state, len(self.steps), len(self.checks), self.last_observed))

    def laws(self, scenario: ops.Scenario) -> list[LawCheck]:
        return [self._law(law) for law in scenario.laws]

    def _begin(self, scenario: ops.Scenario) -> int:
        """Go back to where this scenario and the last one part; returns the number of operations they share."""
        self.repeat = scenario.repeat
        self.observes = any(isinstance(op, OBSERVED) for op in scenario.ops)
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
            spans = [span for span in check.expected.tables[""].spans if span.row == row]
            labels = tuple(label for label in check.expected.tables if label != "padded")
            out.append(Reading(check.op, pick.req, check.result, labels, spans[0].start, spans[-1].stop))
        if not out:
            raise OutOfDomain(f"laws: operations {list(pick.ops)} run no forward of request {pick.req}")
        return tuple(out)

    def _step(self, number: int, op: ops.Operation, moved: Transition) -> None:
        if isinstance(op, ops.Build):
            self._schedule(number, op)
        self.steps.extend(self._before(op, moved))
        if moved.forward is not None:
            self._forward(number, op, moved.forward)
        if isinstance(op, ops.Rotate):
            self._rotate(number, op)
        before, self.state = self.state, moved.state
        self.steps.extend(protocol.Generate(req, ids) for req, ids in moved.emitted.items())
        if self.observes and not isinstance(op, UNOBSERVED):
            turn = _turn_of(before, op, moved.state.requests[op.req]) if isinstance(op, ops.Turn) else None
            self._observe(number, op, {}, turn)

    def _before(self, op: ops.Operation, moved: Transition) -> list[protocol.Step]:
        match op:
            case ops.Submit():
                request = moved.state.requests[op.req]
                media = _media(moved.state, request, op.items)
                return [protocol.SubmitStep(op.req, request.ids, media, op.max_new_tokens)]
            case ops.Turn():
                request = moved.state.requests[op.req]
                return [
                    protocol.TurnStep(
                        session=op.session,
                        req=op.req,
                        ids=((BOS,) if op.bos else ()) + request.turn_ids,
                        media=_media(moved.state, request, op.items, op.bos),
                        parent=op.parent,
                        replace=op.replace,
                        offset=op.offset,
                        drop_previous_output=op.drop_previous_output,
                        max_new_tokens=op.max_new_tokens,
                        bos=op.bos,
                    )
                ]
            case ops.Open() | ops.Finish() | ops.Abort() | ops.Retract():
                return [op]
            case ops.Reschedule():
                return [protocol.Schedule(op.req, attempts=op.refusals)]
            case _:
                return []

    def _schedule(self, number: int, op: ops.Build) -> None:
        """Before its first window after arrival or retraction a request is admitted by the scheduler."""
        admitted: dict[int, int] = {}
        for part in op.batch.parts:
            hits = part.fields.get("prefix_len", (0,) * len(part.reqs))
            for req, hit in zip(part.reqs, hits if isinstance(hits, tuple) else (), strict=True):
                request = self.state.requests[req]
                if request.status in ("waiting", "retracted") and not request.admitted and _prefills(op, part):
                    admitted[req] = hit if isinstance(hit, int) else 0
                    self.steps.append(protocol.Schedule(req, hit=admitted[req]))
        if self.observes and admitted:
            self._observe(number, op, admitted)

    def _forward(self, number: int, op: ops.Operation, expected: ExpectedTables) -> None:
        if isinstance(op, ops.MeasureCost):
            self._cost(number, op.of, expected)
            return
        assert isinstance(op, ops.Build)
        forward = _message(op, expected, self.repeat)
        labels = {label: label for label in expected.tables}
        if forward.repeat:
            labels["again"] = ""
        echoed = forward.path == "direct" and expected.mode.given_indices
        self.checks.append(TableCheck(number, len(self.steps), expected, labels, expected.counted, echoed=echoed))
        self.steps.append(forward)
        if op.kernel:
            self.checks.append(TableCheck(number, len(self.steps), expected, {"": ""}, positions_only=True))
            self.steps.append(protocol.BuildForward(batch=expected.batch, path="kernel"))

    def _cost(self, number: int, op: ops.Build, expected: ExpectedTables) -> None:
        mode = expected.mode
        if mode.copies is None:
            raise OutOfDomain(f"{mode.name} states no budget of copies")
        media = any(line.has_media for line in expected.lines)
        extra = mode.host_copies if op.host_lengths else 0
        self.checks.append(CostCheck(number, len(self.steps), mode.name, media, mode.copies, extra))
        self.steps.append(protocol.Cost(_message(op, expected, False)))

    def _rotate(self, number: int, op: ops.Rotate) -> None:
        for method in rotary.methods(op.method, self.device, op.layout):
            check = RotaryCheck(
                number, len(self.steps), op.req, op.layout, method, table_of(self.state, op.req, op.layout, op.method)
            )
            self.checks.append(check)
            self.steps.extend(rotary.steps(check))

    def _expected_state(self, request: Request, scheduled: bool) -> ExpectedState:
        parent = None if request.parent is None else self.state.requests[request.parent].line
        standing = (request.req, request.status, request.line, request.ids, request.output_ids, request.brings_media)
        known = self.states.get((*standing, parent, scheduled))
        if known is None:
            known = _expected_state(self.state, request, parent, scheduled)
            if known.small:
                if len(self.states) >= KEPT:
                    self.states.clear()
                self.states[*standing, parent, scheduled] = known
        return known

    def _observe(
        self, number: int, op: ops.Operation, hits: Mapping[int, int], turn: ArrivedTurn | None = None
    ) -> None:
        alive = [r for r in self.state.requests.values() if r.status != "aborted"]
        subject = frozenset(hits) or _subject(op)
        parent = self.state.requests[op.req].parent if isinstance(op, ops.Turn) else None
        expected = tuple(self._expected_state(request, request.req in hits) for request in alive)
        self.checks.append(
            StateCheck(
                op=number,
                result=len(self.steps),
                kind=ops.tag(op),
                subject=subject,
                own=_prefilled(op),
                parent=parent,
                since=self.last_observed,
                expected=expected,
                hits=hits,
                replaced=frozenset(r.req for r in alive if self.state.sessions and _is_replaced(self.state, r)),
                turn=turn,
            )
        )
        self.last_observed = len(self.steps)
        self.steps.append(protocol.Observe(tuple(request.req for request in alive)))


_planner = _Planner()


def plan(scenario: ops.Scenario, device: str = "cpu") -> Plan:
    """The job of a scenario. Raises OutOfDomain, naming the operation, where no public request leads."""
    _planner.run(scenario, device)
    checks = (*_planner.checks, *_planner.laws(scenario))
    if not any(isinstance(check, CHECKS) for check in checks):
        raise OutOfDomain("ops: the scenario runs no forward and no rotation, so there is nothing to check")
    steps = list(_planner.steps)
    if device != "cpu" and not scenario.laws:  # a law compares the engine's own tables with each other: they travel
        for check in checks:
            if isinstance(check, TableCheck) and not check.positions_only:
                steps[check.result] = _with_right(steps[check.result], check)
    job = protocol.Job(id=scenario.id, steps=tuple(steps), device=device)
    optional = tuple(
        one for one in checks if isinstance(one, StateCheck) and one.turn is not None and one.turn.may_refuse
    )
    return Plan(scenario, job, checks, _arrivals(scenario, checks), optional)


def _arrivals(scenario: ops.Scenario, checks: tuple[Check, ...]) -> tuple[str, ...]:
    """The bounds that its requests and turns cross as they arrive, and its batches as they are built."""
    found: set[str] = set()
    for op in scenario.ops:
        if isinstance(op, ops.Build) and op.lengths:
            found.add(f"lengths in memory {op.lengths}")
        if isinstance(op, ARRIVALS):
            found |= dimensions.of_media(op.prompt, op.items)
            found |= {"turn with a start of sequence"} if getattr(op, "bos", False) else set()
    replaced: set[int | None] = set()
    for check in checks:
        op = scenario.ops[check.op]
        if isinstance(check, StateCheck) and check.turn is not None and isinstance(op, ops.Turn):
            found |= dimensions.of_turn(check.turn, again=op.parent in replaced)
            replaced |= {op.parent} if op.replace and op.parent is not None else set()
    return dimensions.counted(found)


def _with_right(step: protocol.Step, check: TableCheck) -> protocol.Step:
    """The forward with the right tables, to be compared where the engine's are."""
    right = []
    for label, name in check.labels.items():
        tables = check.expected.tables[name]
        right.append(
            protocol.TablePair(label, _tensor(tables.positions), None if tables.rows is None else _tensor(tables.rows))
        )
    return msgspec.structs.replace(step, expect=tuple(right)) if isinstance(step, protocol.BuildForward) else step


def _tensor(array: IntArray) -> protocol.Tensor:
    return protocol.Tensor("int64", tuple(array.shape), array.tobytes())


def _subject(op: ops.Operation) -> frozenset[int]:
    match op:
        case ops.Submit() | ops.Turn() | ops.Accept() | ops.Retract() | ops.Reschedule() | ops.Finish() | ops.Abort():
            return frozenset({op.req})
        case _:
            return frozenset()


def _turn_of(state: State, op: ops.Turn, made: Request) -> ArrivedTurn:
    """What the turn's client asked for, in the state before it."""
    session = state.sessions[op.session]
    parent = session.last if session.streaming else op.parent
    known = session.streaming or parent is None or parent in session.known
    saved = state.requests.get(parent) if parent is not None and known else None
    siblings = [] if saved is None else [r for r in state.requests.values() if r.parent == saved.req]
    settled = saved is None or session.streaming or op.replace or saved.status in ("finished", "aborted")
    return ArrivedTurn(
        saved=None
        if saved is None
        else SavedTurn(prompt=saved.ids, outputs=saved.output_ids, max_new_tokens=saved.max_new_tokens),
        new=made.turn_ids,
        streaming=session.streaming,
        replace=op.replace,
        offset=op.offset,
        drop_previous_output=op.drop_previous_output,
        siblings=bool(siblings),
        aborted_sibling=any(sibling.status == "aborted" for sibling in siblings),
        in_flight=session.in_flight is not None,
        parent_known=known,
        parent_finished=settled,
        may_refuse=may_be_refused(state, op.session, op.parent, op.replace),
    )


def _prefilled(op: ops.Operation) -> frozenset[int]:
    if not isinstance(op, ops.Build):
        return frozenset()
    return frozenset(req for part in op.batch.parts if _prefills(op, part) for req in part.reqs)


def _is_replaced(state: State, request: Request) -> bool:
    if request.session is None or request.status == "refused":
        return False
    session = state.sessions[request.session]
    return not session.streaming and request.req not in session.known


def _prefills(op: ops.Build, part: ops.BatchPart) -> bool:
    return mode_of(part.mode or op.batch.mode).reads == PREFILLING


def _media(state: State, request: Request, handed: str, bos: bool = False) -> protocol.Media | None:
    """What the engine's processor would build from this turn alone. handed: how it hands its items over. bos: behind a
    start of sequence."""
    if not request.brings_media:
        return None
    before = (text(1),) if bos else ()
    line, runs = turn_line(state, request, before), laid(state.family, (*before, *request.turn))
    items = [protocol.Item(run.kind, start, stop) for run, start, stop in runs if not run.is_text]
    table = protocol.Tensor("int64", tuple(line.table.shape), line.table.tobytes())
    return protocol.Media(table, line.delta, _handed(items, handed), handed == "view")


def _handed(items: list[protocol.Item], how: str) -> tuple[protocol.Item, ...]:
    """The items as a processor hands them over: `scenario.dimensions.ITEMS`."""
    if how == "joined":
        kinds = dict.fromkeys(item.kind for item in items)
        groups = ([item for item in items if item.kind == kind] for kind in kinds)
        return tuple(
            msgspec.structs.replace(first, more=tuple((one.start, one.stop) for one in rest)) for first, *rest in groups
        )
    if how == "equal":
        return tuple(msgspec.structs.replace(item, pixels=1) for item in items)
    return tuple(reversed(items) if how == "reversed" else items)


def _expected_state(state: State, request: Request, parent: Timeline | None, scheduled: bool) -> ExpectedState:
    spans = tuple((start, stop) for run, start, stop in laid(state.family, request.prompt) if not run.is_text)
    media = set(MEDIA_IDS.values())
    mask = tuple(token in media for token in request.ids)
    small = tokens_of(request) <= SMALL
    return ExpectedState(request, request.line, mask, spans, parent, scheduled, small)


def _message(op: ops.Build, expected: ExpectedTables, repeat: bool) -> protocol.BuildForward:
    mode, tables = expected.mode, expected.tables[""]
    path = op.path or ("caller" if mode.prepared else "direct")
    tier = op.buffer == "tier"
    padding = None
    if op.buffer and not tier:
        rows = op.buffer_rows or len(expected.lines)
        padding = protocol.Padding(op.buffer, rows, buffer_tokens(op, tables, len(expected.lines)))
    given = mode.given_indices and path == "direct"
    return protocol.BuildForward(
        batch=expected.batch,
        positions=tuple(tables.positions.tolist()) if given else (),
        repeat=repeat,
        padding=padding,
        tier=op.buffer_tokens if tier else 0,
        host_lengths=op.host_lengths,
        strided=op.lengths == "strided",
        lagging=op.lengths == "lagging",
        path=path,
    )


def decoded(tensor: protocol.Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """A tensor as an int64 array. Raises ProtocolError when bytes and shape disagree or the dtype is no integer."""
    try:
        dtype = np.dtype(tensor.dtype).newbyteorder("<")
        if dtype.kind not in "iu":
            raise protocol.ProtocolError(f"tensor of dtype {tensor.dtype}: tables are integers")
        return np.frombuffer(tensor.data, dtype=dtype).reshape(tensor.shape).astype(np.int64, copy=False)
    except (TypeError, ValueError) as error:
        raise protocol.ProtocolError(f"tensor {tensor.dtype}{list(tensor.shape)}: {error}") from None

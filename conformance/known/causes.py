"""Why a known failure happens: when its bug applies, and what wrong value comes out.

An entry of the known-failure list names its cause. A failure of the entry's shape that the cause does not predict is
another bug, and new. Each function looks at the scenario as far as the failing operation, by the specification alone,
and answers whether this bug gives this failure; values are computed from the right ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from ropecheck.conformance.judge.outcome import Failure
from ropecheck.conformance.known.script_causes import SCRIPT_CAUSES
from ropecheck.conformance.scenario.forward import expected_of
from ropecheck.conformance.scenario.lifecycle import apply
from ropecheck.conformance.scenario.operations import (
    Abort,
    Build,
    Operation,
    Reschedule,
    Retract,
    Rotate,
    Scenario,
    Turn,
)
from ropecheck.conformance.scripts.script import Script
from ropecheck.reference.requests import Request, State, line_of, turn_line
from ropecheck.reference.rotary import LAYOUTS
from ropecheck.reference.timeline import run_lengths
from ropecheck.spec.history import History

Column = tuple[int, ...]


@dataclass(frozen=True)
class Situation:
    """A failure, and the scenario that it happened in."""

    scenario: Scenario
    failure: Failure

    @cached_property
    def states(self) -> tuple[State, ...]:
        """Before each operation up to the failing one, and after it."""
        out = [State(family=self.scenario.family)]
        for op in self.scenario.ops[: self.failure.step + 1]:
            out.append(apply(out[-1], op, build=False).state)
        return tuple(out)

    @property
    def op(self) -> Operation:
        return self.scenario.ops[self.failure.step]

    @cached_property
    def request(self) -> Request | None:
        """The request that holds or was given the wrong value; of a turn that raised, the turn's."""
        number = self.failure.difference.request if self.failure.difference is not None else None
        if number is None and isinstance(self.op, Turn):
            number = self.op.req
        return self.states[-1].requests.get(-1 if number is None else number)

    def before(self, request: Request) -> Request:
        """The request before the failing operation."""
        return self.states[-2].requests.get(request.req, request)

    def ancestors(self, request: Request) -> Iterator[Request]:
        """The request, its parent, its parent's parent, .."""
        found: Request | None = request
        while found is not None:
            yield found
            found = None if found.parent is None else self.states[-1].requests.get(found.parent)

    def turn_of(self, request: Request) -> Turn | None:
        """The operation that brought a session's request."""
        return next((op for op in self.scenario.ops if isinstance(op, Turn) and op.req == request.req), None)

    def observed(self) -> list[Column]:
        """The wrong table, column by column; empty where the failure carries none."""
        view = self.failure.observed
        return [] if view is None or view.rows is None else list(zip(*view.rows, strict=True))


def retraction_continues_from_t(s: Situation) -> bool:
    """A retracted request's table goes on after the t row of its last column, not after the largest position in it.

    The table is that of the last turn that brought media; a text turn shares it.
    """
    lineage = [] if s.request is None else list(s.ancestors(s.request))
    base = next((one for one in lineage if _was_retracted(s, one) and one.has_media), None)
    if base is None:
        return False
    if base is not lineage[0]:
        return s.failure.rule != "retraction.table"  # a later turn holds what its parent held, and goes on from it
    line = line_of(s.states[-1], base)
    table = [tuple(column) for column in line.table[:, : line.tabulated].T.tolist()]
    seen = s.observed()[: len(base.ids) + base.outputs]
    if not seen:
        return s.failure.rule != "retraction.table"
    first = table[-1][0] + 1
    return seen[: len(table)] == table[: len(seen)] and all(
        column == (first + k,) * len(column) for k, column in enumerate(seen[len(table) :])
    )


def retraction_tops_up_again(s: Situation) -> bool:
    """Every time that a retracted request is considered its table gains its outputs once more."""
    request, found = s.request, s.failure.difference
    if request is None or found is None:
        return False
    considered = 0
    for op, state in zip(s.scenario.ops[: s.failure.step + 1], s.states, strict=False):
        now = state.requests.get(request.req)
        if now is not None and now.status == "retracted":
            named = isinstance(op, Build) and request.req in op.batch.reqs
            considered += op.refusals if isinstance(op, Reschedule) and op.req == request.req else int(named)
    outputs = s.before(request).outputs
    if not isinstance(found.observed, int):
        return False
    surplus = found.observed - len(request.ids) - outputs
    if request.parent is not None:  # others of its session may have topped the same table up
        return surplus > 0
    return considered > 1 and 0 < surplus <= considered * outputs


def offset_keeps_the_parents_media(s: Situation) -> bool:
    """A turn with an offset holds its parent's table, delta and items, whatever it dropped of them."""
    request = s.request
    if request is None:
        return False
    lineage = list(s.ancestors(request))
    if not any((turn := s.turn_of(one)) is not None and turn.offset for one in lineage):
        return False
    held, found = kept_by_offsets(s, request), s.failure.difference
    if s.failure.rule.endswith(".media_spans"):
        return found is not None and found.observed == str(held.spans)
    owner = _owner(s, request)
    if any(_was_retracted(s, one) for one in s.ancestors(owner) if one is not owner):
        return bool(held.spans)  # its media were appended to a table that may have been topped up before
    if s.failure.rule.endswith(".delta"):
        return found is not None and found.observed == held.delta
    if s.failure.rule.endswith(".table") and s.failure.observed is not None:
        return _is_or_was_topped_up(s, owner, held.table)
    return bool(held.spans)


def _owner(s: Situation, request: Request) -> Request:
    """Whose media object the request holds: that of the last turn that brought media."""
    return next((one for one in s.ancestors(request) if one.brings_media), request)


def _is_or_was_topped_up(s: Situation, owner: Request, table: list[Column]) -> bool:
    """Whether what is observed is this table; behind it, where a request that holds it too was retracted, stand columns
    for outputs, after the t row of its last."""
    seen = s.observed()
    tail = seen[len(table) :]
    sharing = (one for one in s.states[-1].requests.values() if _owner(s, one).req == owner.req)
    if not table or seen[: len(table)] != table or (tail and not any(_was_retracted(s, one) for one in sharing)):
        return False
    return all(column == (table[-1][0] + 1 + k,) * len(column) for k, column in enumerate(tail))


@dataclass(frozen=True)
class Kept:
    """Items, table and delta that an engine holds which cuts tokens at an offset, and no media."""

    spans: list[tuple[int, int]]
    table: list[Column]
    delta: int


def kept_by_offsets(s: Situation, request: Request) -> Kept:
    """What the request holds: its parent's, and behind as many tokens as it really keeps its own."""
    parent = s.states[-1].requests.get(-1 if request.parent is None else request.parent)
    base = Kept([], [], 0)
    if parent is not None and not _released(s, parent, request):
        base = kept_by_offsets(s, parent)
    if not request.brings_media:
        return base
    start = len(request.ids) - len(request.turn_ids)
    table = base.table[:start]
    free = max((max(column) + 1 for column in table), default=0)
    own = turn_line(s.states[-1], request).table
    table += [(free + k,) * own.shape[0] for k in range(start - len(table))]
    free = max((max(column) + 1 for column in table), default=0)
    table += [tuple(column) for column in (own + free).T.tolist()]
    delta = max(max(column) for column in table) + 1 - len(table)
    return Kept([*base.spans, *_spans(s, request.turn, start)], table, delta)


def _released(s: Situation, parent: Request, turn: Request) -> bool:
    """Whether the parent was aborted, and its media given up, before the turn came."""
    for op in s.scenario.ops[: s.failure.step + 1]:
        if isinstance(op, Turn) and op.req == turn.req:
            return False
        if isinstance(op, Abort) and op.req == parent.req:
            return True
    return False


def replace_all_changes_a_dict_in_a_loop(s: Situation) -> bool:
    """replace without a parent, in a session that has a turn."""
    op = s.op
    if not isinstance(op, Turn) or not op.replace or op.parent is not None:
        return False
    return bool(s.states[-2].sessions[op.session].known) and "dictionary changed size" in s.failure.message


def retraction_grows_a_shared_table(s: Situation) -> bool:
    """The retracted request is a text turn, which shares its parent's media object: the parent's table grows too."""
    victim = s.request
    if victim is None:
        return False
    lineages = [
        {one.req for one in s.ancestors(request)}
        for request in s.states[-1].requests.values()
        if request.req != victim.req and _was_retracted(s, request) and not request.brings_media
    ]
    if s.failure.rule.startswith(("session.", "request.")):  # it continues from a turn whose table has grown
        return any({one.req for one in s.ancestors(victim)} & lineage for lineage in lineages)
    return any(victim.req in lineage for lineage in lineages)


def packed_columns_in_equal_shares(s: Situation) -> bool:
    """Packed columns are dealt out as if every request had as many nodes as every other."""
    if not isinstance(s.op, Build):
        return False
    batch = expected_of(s.states[-2], s.op)
    width, rows = batch.tables[""].positions.size, len(batch.lines)
    counts = {span.stop - span.start for span in batch.tables[""].spans}
    if s.failure.rule == "table.present":
        return width % rows != 0 and "is invalid for input of size" in s.failure.message
    return width % rows == 0 and (len(counts) > 1 or s.op.buffer == "tier")


def frozen_kv_padding_is_stale(s: Situation) -> bool:
    """The padding of a smaller batch holds what an earlier batch of the same runner left there."""
    if not isinstance(s.op, Build):
        return False
    live = expected_of(s.states[-2], s.op).tables[""]
    left: dict[int, Column] = {}
    for op, state in zip(s.scenario.ops[: s.failure.step], s.states, strict=False):
        if isinstance(op, Build) and op.buffer == s.op.buffer and op.batch.mode == s.op.batch.mode:
            rows = expected_of(state, op).tables[""].rows
            assert rows is not None
            left |= {index: tuple(column) for index, column in enumerate(rows.T.tolist())}
    seen = s.observed()
    rest = range(live.positions.size, len(seen))
    return any(index in left for index in rest) and all(
        seen[index] == left.get(index, (0,) * len(seen[index])) for index in rest
    )


def multi_layer_rows_are_never_copied(s: Situation) -> bool:
    """The three rows of the shared buffers stay as they were allocated."""
    seen = s.observed()
    loaded = isinstance(s.op, Build) and s.op.buffer == "multi_layer"
    return loaded and bool(seen) and not any(any(column) for column in seen)


def members_have_no_delta(s: Situation) -> bool:
    """Rows behind the requests' own get delta 0; where a table reaches its request's token they have no entry."""
    if not isinstance(s.op, Build) or s.op.batch.mode != "beam_decode":
        return False
    if s.failure.rule == "table.present":
        rows = [s.states[-2].requests[req] for req in s.op.batch.reqs]
        return any(one.has_media for one in rows) and "list index out of range" in s.failure.message
    found = s.failure.difference
    return found is not None and found.column is not None and found.column >= len(s.op.batch.parts[0].reqs)


def text_is_drafted_from(s: Situation) -> bool:
    """A draft that reads a token of the prompt's table places it by delta, as if it were text."""
    if not isinstance(s.op, Build) or s.op.batch.mode != s.failure.mode or s.request is None:
        return False
    expected = expected_of(s.states[-2], s.op)
    row = expected.batch.reqs.index(s.request.req) if s.request.req in expected.batch.reqs else -1
    return row >= 0 and bool((expected.tables[""].spans[row].tokens < expected.lines[row].tabulated).any())


def positions_pass_the_reader(s: Situation) -> bool:
    """A position of the request's table lies past the last one that the rotary embedding has prepared."""
    if not isinstance(s.op, Rotate):
        return False
    line = line_of(s.states[-1], s.states[-1].requests[s.op.req])
    longest = LAYOUTS[s.op.layout].longest
    return int(line.table.max()) >= longest and f"of {longest} prepared" in s.failure.message


def _was_retracted(s: Situation, request: Request) -> bool:
    return any(isinstance(op, Retract) and op.req == request.req for op in s.scenario.ops[: s.failure.step + 1])


def _spans(s: Situation, runs: History, start: int) -> list[tuple[int, int]]:
    out = []
    for run, count in zip(runs, run_lengths(s.scenario.family, runs), strict=True):
        if not run.is_text:
            out.append((start, start + count))
        start += count
    return out


Cause = Callable[[Situation], bool]

CAUSES: Mapping[str, Cause] = {
    cause.__name__.replace("_", "-"): cause
    for cause in (
        retraction_continues_from_t,
        retraction_tops_up_again,
        offset_keeps_the_parents_media,
        replace_all_changes_a_dict_in_a_loop,
        retraction_grows_a_shared_table,
        packed_columns_in_equal_shares,
        frozen_kv_padding_is_stale,
        multi_layer_rows_are_never_copied,
        members_have_no_delta,
        text_is_drafted_from,
        positions_pass_the_reader,
    )
}
"""Every cause by the name that entries use."""


def known_cause(name: str) -> bool:
    """Whether there is a cause of that name, of scenarios or of scripts."""
    return name in CAUSES or name in SCRIPT_CAUSES


def predicts(name: str, scenario: Scenario | Script, failure: Failure) -> bool:
    """Whether this cause gives this failure; "" predicts nothing in particular and so everything."""
    if not name:
        return True
    if isinstance(scenario, Script):
        return name in SCRIPT_CAUSES and SCRIPT_CAUSES[name](scenario, failure)
    return name in CAUSES and CAUSES[name](Situation(scenario, failure))

"""A scheduler's failure at function level: the forwards that it made of the failing one's requests, as a scenario.

What a client's script made the scheduler do stands in the event stream: arrivals, windows, answers, retractions, ends.
Said as operations, up to the forward that fails, the same forwards are built without a scheduler. Where they fail alike
the fault lies in what builds their tables. Where they do not, it lies in the scheduler, or in what other requests left
behind: those are left out that are neither of the forward nor of its sessions.
"""

from collections.abc import Iterator

import msgspec

from ropecheck.adapters import events
from ropecheck.conformance.judge.outcome import Failure, Outcome
from ropecheck.conformance.scenario import operations as ops
from ropecheck.conformance.scenario import words
from ropecheck.conformance.scenario.forward import ExpectedTables
from ropecheck.conformance.scenario.lifecycle import apply
from ropecheck.conformance.trace.judge import Judge
from ropecheck.conformance.trace.live import Histories, LiveRequest, brought
from ropecheck.conformance.trace.verdict import PREFIX
from ropecheck.reference.requests import State
from ropecheck.spec.history import OutOfDomain
from ropecheck.spec.modes import mode_of
from ropecheck.spec.rules import rules_of
from ropecheck.spec.views import Row, Tables

_decoder = msgspec.json.Decoder(events.Event)


def said(trace: bytes, failure: Failure, name: str) -> ops.Scenario | str:
    """The failure's forward and what led to it, of its requests and their sessions alone; or why that cannot be said.

    trace: the whole stream, of which `failure` is one. name: the scenario's."""
    told = [_decoder.decode(line) for line in events.lines(trace)]
    try:
        return _said(told[: failure.step + 1], failure, name)
    except OutOfDomain as error:
        return str(error)
    except (LookupError, ValueError) as error:
        return f"the engine's numbers fit no operation ({type(error).__name__}: {error})"


def _said(told: list[events.Event], failure: Failure, name: str) -> ops.Scenario:
    header, last = told[0], told[-1]
    assert isinstance(header, events.TraceHeader)
    of_tables = {rule.id for rule in (*rules_of(Row), *rules_of(Tables))}
    if not isinstance(last, events.Forward) or failure.rule not in of_tables:
        raise OutOfDomain(f"{failure.rule} speaks of no forward's tables")
    if last.draft:
        raise OutOfDomain("the forward is the draft model's")
    made: list[Histories] = []

    def histories(family: str) -> Histories:
        made.append(Histories(family))
        return made[0]

    judge = Judge(histories=histories)
    numbers, sessions = _kept(told, last)
    found: list[ops.Operation] = []
    for event in told:
        before = len(found)
        if made:
            found += _operations(event, made[0], numbers, sessions)
        for _ in judge.feed(event):
            pass  # asked for the histories alone
    found = found[: before + 1]  # what a verify's tokens do comes behind its tables
    batch = found[-1].batch if len(found) > before and isinstance(found[-1], ops.Build) else None
    if batch is None or (batch.mode, batch.reqs) != (last.mode, tuple(numbers[req] for req in last.reqs)):
        raise OutOfDomain(f"no operation builds this {last.mode} of {', '.join(last.reqs)}")
    _refuse_other_tables(found, header.family, failure)
    return ops.Scenario(name, tuple(found), header.family, "a scheduler's forwards, as its event stream tells them")


def _kept(told: list[events.Event], last: events.Forward) -> tuple[dict[str, int], dict[str, int]]:
    """Requests of the forward and all of their sessions, and these sessions, by name: their numbers in the scenario."""
    arrived = [event for event in told if isinstance(event, events.Arrived)]
    own = set(last.reqs)
    within = {one.session: None for one in arrived if one.session and one.req in own}
    kept = dict.fromkeys(one.req for one in arrived if one.req in own or one.session in within)
    if missing := own - kept.keys():
        raise OutOfDomain(f"nothing is known of request {min(missing)}")
    return {req: n for n, req in enumerate(kept)}, {session: n for n, session in enumerate(within)}


def _operations(
    event: events.Event, histories: Histories, numbers: dict[str, int], sessions: dict[str, int]
) -> Iterator[ops.Operation]:
    """What an event is to the kept requests. histories: as they stand before it."""
    match event:
        case events.Opened(session=session, streaming=streaming) if session in sessions:
            yield ops.Open(sessions[session], streaming)
        case events.Closed(session=session) if session in sessions:
            raise OutOfDomain("no operation closes a session")
        case events.Arrived(req=req) if req in numbers:
            yield _arrival(event, numbers, sessions, histories)
        case events.Retracted(req=req) if req in numbers:
            yield ops.Retract(numbers[req])
        case events.Transfer(req=req) if req in numbers:
            raise OutOfDomain("another engine computed the prompt")
        case events.Output(req=req, finished=finished) if finished and req in numbers:
            live = histories.live.get(req)
            if live is not None and not live.refuse:
                yield ops.Abort(numbers[req]) if finished == "abort" else ops.Finish(numbers[req])
        case events.Forward() if not event.draft:
            yield from _forward(event, histories, numbers)


def _arrival(
    event: events.Arrived, numbers: dict[str, int], sessions: dict[str, int], histories: Histories
) -> ops.Operation:
    req = numbers[event.req]
    prompt = brought(event)
    if event.embeds or event.beams > 1:
        raise OutOfDomain("no operation " + ("sends embeddings" if event.embeds else "searches beams"))
    if not event.session:
        return ops.Submit(req, prompt, event.max_new_tokens)
    if event.offset is not None and event.offset <= 0:
        raise OutOfDomain(f"no operation has an offset of {event.offset}")
    if event.parent and event.parent not in numbers:
        raise OutOfDomain("its turn is not of the session that it names")
    streaming = histories.sessions[event.session].streaming if event.session in histories.sessions else False
    return ops.Turn(
        session=sessions[event.session],
        req=req,
        prompt=prompt,
        parent=numbers[event.parent] if event.parent and not streaming else None,
        replace=event.replace,
        offset=event.offset or 0,
        drop_previous_output=event.drop_previous_output,
        max_new_tokens=event.max_new_tokens,
    )


def _forward(event: events.Forward, histories: Histories, numbers: dict[str, int]) -> Iterator[ops.Operation]:
    """The forward's rows of kept requests; a refused turn's dummy token is none."""
    rows: list[tuple[int, int, LiveRequest]] = []
    for row, req in enumerate(event.reqs):
        live = histories.live.get(req)
        if req in numbers and live is None:
            raise OutOfDomain(f"nothing is known of request {req}")
        if req in numbers and live is not None and not live.refuse:
            rows.append((row, numbers[req], live))
    reqs = [req for _, req, _ in rows]
    if not rows:
        return
    mode = mode_of(event.mode)
    if mode.prefills:
        # A row of one token beside windows is a decode once its prompt is complete.
        decodes = [req for row, req, live in rows if mode.composite and live.running and event.tokens[row] == 1]
        windows = [
            words.window(req, event.tokens[row], event.prefix_lens[row] if live.free else 0)
            for row, req, live in rows
            if req not in decodes
        ]
        if decodes and windows:
            yield words.mixed(windows, decodes)
        else:
            yield words.extend(windows) if windows else words.decode(decodes)
    elif mode.emits and not mode.composite:
        yield words.decode(reqs)
    elif mode.verifies:
        trees = [event.parents[row] if event.parents else tuple(range(event.tokens[row] - 1)) for row, _, _ in rows]
        if mode.packed:
            yield words.ragged_verify(reqs, trees)
        else:
            yield words.verify(reqs, trees, max(tree.count(node) for tree in trees for node in (*tree, 0)) or 1)
        for row, number, _ in rows:
            yield ops.Accept(number, len(event.answers[row]) if event.answers else 0)
    else:
        raise OutOfDomain(f"a forward of the mode {event.mode} is not said as an operation")


def _refuse_other_tables(found: list[ops.Operation], family: str, failure: Failure) -> None:
    """Raises OutOfDomain where the last operation is no forward that must read what the failing one had to."""
    state, forward = State(family=family), None
    for op in found:
        after = apply(state, op)
        state, forward = after.state, after.forward
    row = None if failure.difference is None else failure.difference.request
    if failure.expected is None or row is None or forward is None:
        return  # it speaks of the whole table
    if _right(forward, row) != (failure.expected.positions, failure.expected.rows):
        raise OutOfDomain("the scheduler's own choices lead to other tokens there")


def _right(forward: ExpectedTables, row: int) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...] | None]:
    tables = forward.tables[""]
    span = tables.spans[row]
    rows = None if tables.rows is None else tuple(map(tuple, tables.rows[:, span.start : span.stop].tolist()))
    return tuple(span.tokens.tolist()), rows


def compared(failure: Failure, scenario: ops.Scenario, outcome: Outcome) -> str:
    """What a failure came to at function level: "" alike (same rule, mode and shape, or the same wrong number), else in
    words that end a line "not at function level: .."."""
    if outcome.unrun or outcome.not_offered:
        why = outcome.unrun[0].message if outcome.unrun else outcome.not_offered[0][1]
        return f"it could not run there: {why}"
    mode = failure.mode.removeprefix(PREFIX)
    there = [one for one in outcome.failures if one.step == len(scenario.ops) - 1]
    if any((one.rule, one.mode) == (failure.rule, mode) and _alike(one, failure) for one in there):
        return ""
    if there:
        return f"it fails otherwise there ({there[0].rule}: {there[0].signature})"
    return "the same forwards are right there: the fault is in the scheduler, or in what other requests leave behind"


def _alike(one: Failure, failure: Failure) -> bool:
    mine, theirs = one.difference, failure.difference
    same = (
        mine is not None
        and theirs is not None
        and (mine.axis, mine.expected, mine.observed) == (theirs.axis, theirs.expected, theirs.observed)
    )
    return one.signature == failure.signature or same

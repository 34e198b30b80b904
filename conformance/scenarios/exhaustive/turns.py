"""Every sequence of turns of one session."""

from collections.abc import Iterator
from dataclasses import dataclass

from ropecheck.conformance.scenario.lifecycle import apply
from ropecheck.conformance.scenario.operations import Abort, Finish, Open, Operation, Scenario, Turn
from ropecheck.conformance.scenario.words import decode, extend, window
from ropecheck.conformance.scenarios.exhaustive.scopes import SessionScope
from ropecheck.reference.requests import State, tokens_of


@dataclass(frozen=True, slots=True)
class Ending:
    """How a turn goes on after it arrived. kind: "finish", "abort early" (before its prefill), "abort late"."""

    kind: str
    reply: int = 0


def walk_turns(scope: SessionScope) -> Iterator[Scenario]:
    """Every scenario of the scope: `turns` turns, the last one left running after its reply."""
    start = Open(0, streaming=scope.streaming)
    state = apply(State(family="qwen2_vl"), start).state
    for number, ops in enumerate(_sequences(state, scope, 0), start=1):
        yield Scenario(name=f"{scope.name} #{number}", ops=(start, *ops))


def _sequences(state: State, scope: SessionScope, req: int) -> Iterator[tuple[Operation, ...]]:
    last = req == scope.turns - 1
    for turn in _turns(state, scope, req):
        arrived = apply(state, turn, build=False).state
        total = tokens_of(arrived.requests[req])
        if last:
            for hit in range(total if scope.hits else 1):
                for reply in range(1, scope.reply + 1):
                    yield (turn, extend((window(req, 0, hit),)), *(decode((req,)) for _ in range(reply)))
            continue
        for ending in _endings(scope):
            ops = (turn, *_ending(req, ending))
            after = state
            for op in ops:
                after = apply(after, op, build=False).state
            for rest in _sequences(after, scope, req + 1):
                yield (*ops, *rest)


def _turns(state: State, scope: SessionScope, req: int) -> Iterator[Turn]:
    """Every way in which this turn can continue."""
    session = state.sessions[0]
    if scope.streaming or req == 0:
        for prompt in scope.first if req == 0 else scope.later:
            yield Turn(0, req, prompt)
        return
    parents = [known for known in session.known if state.requests[known].status == "finished"]
    for prompt in scope.later:
        if scope.rewrites or not parents:
            yield Turn(0, req, prompt, replace=scope.rewrites)
        for parent in parents:
            yield Turn(0, req, prompt, parent)
            if scope.rewrites:
                yield Turn(0, req, prompt, parent, replace=True)
                yield Turn(0, req, prompt, parent, drop_previous_output=True)
                for keep in range(1, tokens_of(state.requests[parent])):
                    yield Turn(0, req, prompt, parent, offset=keep)


def _endings(scope: SessionScope) -> Iterator[Ending]:
    for reply in range(1, scope.reply + 1):
        yield Ending("finish", reply)
    if scope.aborts:
        yield Ending("abort early")
        yield Ending("abort late")


def _ending(req: int, ending: Ending) -> tuple[Operation, ...]:
    if ending.kind == "abort early":
        return (Abort(req),)
    prefill = extend((window(req),))
    if ending.kind == "abort late":
        return (prefill, Abort(req))
    return (prefill, *(decode((req,)) for _ in range(ending.reply - 1)), Finish(req))

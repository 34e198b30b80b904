"""Faults in session operations."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import msgspec

from ropecheck.adapters.protocol import RequestState, Tensor, TurnStep
from ropecheck.conformance.plan.planner import decoded
from ropecheck.conformance.reference_engine import Held, HeldSession, ReferenceEngine
from ropecheck.conformance.selftest.mutants.base import Mutant, altered
from ropecheck.reference import compose
from ropecheck.reference.timeline import IntArray

Engine = ReferenceEngine
Continued = Callable[[TurnStep, Held], Held]
"""The right engine's way from a turn and the request that it continues to the new one."""
Refuses = Callable[[HeldSession, TurnStep], bool]

MUTANTS: list[Mutant] = []
fault = partial(altered, MUTANTS)


@fault("append skips the reply", "S1 (#39145)", "no columns for the generated tokens", "continued")
def _skips_reply(_engine: Engine, right: Continued, step: TurnStep, parent: Held) -> Held:
    """The new turn's table is put straight behind the parent's prompt."""
    held = right(step, parent)
    if step.media is None or step.offset:
        return held
    table = compose.appended(parent.table, decoded(step.media.table))
    return replace(held, table=table, delta=compose.delta(table), media_width=table.shape[1])


@fault("append starts after t", "S1", "the new turn starts after the last t, not the largest row", "appended")
def _next_from_t(_engine: Engine, right: Callable[..., IntArray], table: IntArray, turn: IntArray) -> IntArray:
    moved = right(table, turn)
    if table.size and turn.size:
        moved[:, table.shape[1] :] = turn + int(table[0, -1]) + 1
    return moved


@fault("append keeps the delta", "S4, O8", "the parent's delta is used after new media", "continued")
def _keeps_delta(_engine: Engine, right: Continued, step: TurnStep, parent: Held) -> Held:
    held = right(step, parent)
    return replace(held, delta=parent.delta) if step.media is not None and parent.items else held


@fault("append stacks deltas", "S4 (#33716)", "delta has the shape [2, 1]", "state")
def _stacks_delta(_engine: Engine, right: Callable[[int], RequestState], req: int) -> RequestState:
    """Every turn's delta is kept beside the earlier ones."""
    held = right(req)
    if held.delta is None or len(held.offsets) < 2:
        return held
    return msgspec.structs.replace(held, delta=Tensor("int64", (2, 1), held.delta.data * 2))


@fault("append leaves items unmoved", "S4, S6", "items point into the parent's tokens", "continued")
def _items_unmoved(_engine: Engine, right: Continued, step: TurnStep, parent: Held) -> Held:
    """A later turn's items keep their places within that turn."""
    held = right(step, parent)
    if step.media is None:
        return held
    own = tuple(span for item in step.media.items for span in item.spans)
    return replace(held, items=(*held.items[: len(held.items) - len(own)], *own))


@fault("append writes the parent", "S1 (#39145)", "the saved parent's table grows", "turn")
def _writes_parent(engine: Engine, right: Callable[[TurnStep], None], step: TurnStep) -> None:
    right(step)
    session = engine.sessions[step.session]
    parent = session.last if session.streaming else step.parent
    held = engine.held[step.req]
    if parent is not None and parent in engine.held and not held.aborted and step.media is not None:
        old = engine.held[parent]
        engine.held[parent] = replace(old, table=held.table, delta=held.delta, items=held.items)


@fault("branch sees its sibling", "S1", "a branch continues from another child", "continued")
def _sibling_sees_sibling(engine: Engine, right: Continued, step: TurnStep, parent: Held) -> Held:
    """The newest child instead of the parent named."""
    newest = [held for held in engine.held.values() if held.session == step.session and not held.aborted]
    if not engine.sessions[step.session].streaming and len(newest) > 1 and not step.offset:
        parent = newest[-1]
    return right(step, parent)


@fault("offset keeps the media", "found in 0.5.23", "tokens are cut, table and delta are not", "continued")
def _offset_keeps_media(_engine: Engine, right: Continued, step: TurnStep, parent: Held) -> Held:
    held = right(step, parent)
    if not step.offset or step.media is not None or not parent.items:
        return held
    return replace(held, table=parent.table, delta=parent.delta, items=parent.items)


@fault("offset keeps one more", "slip", "k + 1 tokens are kept", "continued")
def _offset_one_more(_engine: Engine, right: Continued, step: TurnStep, parent: Held) -> Held:
    return right(msgspec.structs.replace(step, offset=step.offset + 1) if step.offset else step, parent)


@fault("replace keeps the history", "slip", "nothing is replaced", "turn")
def _replace_keeps_history(engine: Engine, right: Callable[[TurnStep], None], step: TurnStep) -> None:
    """Replacing everything still continues from the first turn."""
    known = engine.sessions[step.session].known
    replaced = step.replace and step.parent is None and known
    right(msgspec.structs.replace(step, parent=known[0]) if replaced else step)


@fault("replace after drops the reply", "slip", "the reply is lost", "continued")
def _replace_after_drops_reply(_engine: Engine, right: Continued, step: TurnStep, parent: Held) -> Held:
    return right(step, replace(parent, output_ids=()) if step.replace else parent)


@fault("drop_previous_output keeps the reply", "slip", "the reply stays", "continued")
def _drop_keeps_reply(_engine: Engine, right: Continued, step: TurnStep, parent: Held) -> Held:
    return right(msgspec.structs.replace(step, drop_previous_output=False), parent)


@fault("reply is not cut", "slip", "tokens past max_new_tokens stay", "continued")
def _reply_uncut(_engine: Engine, right: Continued, step: TurnStep, parent: Held) -> Held:
    return right(step, replace(parent, max_new_tokens=1 << 20))


@fault("abort leaves tokens", "S1", "a retry continues from the aborted turn", "leave")
def _abort_leaves_tokens(engine: Engine, right: Callable[[int, bool], None], req: int, finished: bool) -> None:
    right(req, finished)
    session = engine.held[req].session
    if session is not None and engine.sessions[session].streaming and not finished:
        engine.sessions[session] = replace(engine.sessions[session], last=req)


@fault("streaming drops the reply", "S4", "the next turn follows the prompt", "continued")
def _streaming_drops_reply(engine: Engine, right: Continued, step: TurnStep, parent: Held) -> Held:
    return right(step, replace(parent, output_ids=()) if engine.sessions[step.session].streaming else parent)


@fault("append drops the last token", "slip", "the reply ends one early", "continued")
def _append_drops_last_token(_engine: Engine, right: Continued, step: TurnStep, parent: Held) -> Held:
    """The reply's last token, which has no cache entry, is lost."""
    return right(step, replace(parent, output_ids=parent.output_ids[:-1]))


@fault("nothing is refused", "slip", "doubled and unfinished turns are let in", "refuses")
def _refuses_nothing(_engine: Engine, _right: Refuses, session: HeldSession, step: TurnStep) -> bool:
    return not session.streaming and step.parent is not None and step.parent not in session.known


@fault("second child is refused", "slip", "branches are not let in", "refuses")
def _refuses_second_child(_engine: Engine, right: Refuses, session: HeldSession, step: TurnStep) -> bool:
    return right(session, step) or (not session.streaming and len(session.known) > 1)

"""Faults in retraction, ownership and freshness: what the engine holds between forwards."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
import numpy as np

from ropecheck.adapters import protocol
from ropecheck.conformance.plan.planner import decoded
from ropecheck.conformance.reference_engine import PAD_VALUE, Held, ReferenceEngine, tensor
from ropecheck.conformance.selftest.mutants.base import Mutant, altered
from ropecheck.reference.timeline import IntArray

Engine = ReferenceEngine
Schedule = Callable[[protocol.Schedule], None]
Ids = Callable[[Held], tuple[int, ...]]

MUTANTS: list[Mutant] = []
fault = partial(altered, MUTANTS)


def _grown(table: IntArray, count: int, start: int) -> IntArray:
    """The table, int64 [axes, T], with `count` text columns from position `start`."""
    tail = np.broadcast_to(start + np.arange(count, dtype=np.int64), (table.shape[0], count))
    return np.concatenate([table, tail], axis=1)


def _topped_up(engine: Engine, right: Schedule, step: protocol.Schedule, start: int | None = None) -> None:
    """As some engines do, the outputs' columns are written into the table when the request is scheduled again; from
    `start`, where that is wrong."""
    right(step)
    held = engine.held[step.req]
    missing = len(held.ids) + len(held.output_ids) - held.table.shape[1]
    if held.retracted and held.items and missing > 0:
        first = held.delta + int(held.table.shape[1]) if start is None else start
        engine.held[step.req] = replace(held, table=_grown(held.table, missing, first))


@fault("retract tops up from t", "found in 0.5.23", "outputs continue after the last t", "schedule")
def _tops_up_from_t(engine: Engine, right: Schedule, step: protocol.Schedule) -> None:
    table = engine.held[step.req].table
    _topped_up(engine, right, step, int(table[0, -1]) + 1 if table.size else 0)


@fault("retract tops up at the index", "slip", "outputs get no delta", "schedule")
def _tops_up_at_index(engine: Engine, right: Schedule, step: protocol.Schedule) -> None:
    _topped_up(engine, right, step, int(engine.held[step.req].table.shape[1]))


@fault("columns lost when refused", "slip", "a refused request's table shrinks", "schedule")
def _loses_columns(engine: Engine, right: Schedule, step: protocol.Schedule) -> None:
    """A second look at a retracted request takes back what the first one wrote, and more."""
    before = engine.held[step.req]
    _topped_up(engine, right, step)
    held = engine.held[step.req]
    if held.retracted and held.items and before.table.shape[1] > len(held.ids):
        engine.held[step.req] = replace(held, table=held.table[:, : len(held.ids)])


@fault("table moves at each attempt", "slip", "a refused request is not left alone", "schedule")
def _moves_at_each_attempt(engine: Engine, right: Schedule, step: protocol.Schedule) -> None:
    """Each time the scheduler looks at a retracted request its table moves on by one."""
    right(step)
    held = engine.held[step.req]
    if held.retracted and held.items:
        engine.held[step.req] = replace(held, table=held.table + step.attempts)


@fault("retract forgets the outputs", "slip", "only the prompt is prefilled again", "fill_ids")
def _forgets_outputs(engine: Engine, right: Ids, held: Held) -> tuple[int, ...]:
    return engine.padded_ids(held) if held.retracted else right(held)


@fault("retract writes the parent", "found in 0.5.23", "a shared table grows", "schedule")
def _writes_parent(engine: Engine, right: Schedule, step: protocol.Schedule) -> None:
    right(step)
    held = engine.held[step.req]
    if not held.retracted or held.session is None or not held.items:
        return
    for req, other in engine.held.items():
        if req != step.req and other.session == held.session and other.items:
            engine.held[req] = replace(other, table=_grown(other.table, 2, other.delta + other.table.shape[1]))


@fault("decode writes its neighbours", "X5, T3", "a delta is shared by all", "forward")
def _writes_neighbours(
    engine: Engine, right: Callable[[protocol.BuildForward], protocol.Result], step: protocol.BuildForward
) -> protocol.Result:
    """A decode leaves its delta on every request."""
    result = right(step)
    if step.mode == "decode":
        media = [engine.held[req].delta for req in step.reqs if engine.held[req].items]
        for req, held in list(engine.held.items()):
            if media and held.items and req not in step.reqs:
                engine.held[req] = replace(held, delta=media[0])
    return result


@fault("delta cache is handed on", "S39, S1, T1", "a cached delta outlives its table", "continued")
def _stale_cache(
    _engine: Engine, right: Callable[[protocol.TurnStep, Held], Held], step: protocol.TurnStep, parent: Held
) -> Held:
    """The cached delta is filled once and handed on to later turns."""
    return replace(right(step, parent), delta_cache=parent.delta_cache)


@fault("fill ids not rebuilt", "S5 (#38068)", "raw placeholders stay in the fill ids", "fill_ids")
def _stale_fill(_engine: Engine, right: Ids, held: Held) -> tuple[int, ...]:
    """Fill ids are rebuilt only when their number changes."""
    return held.ids + held.output_ids if held.session is not None else right(held)


@fault("second image not padded", "S4", "raw placeholders stay in the prompt", "padded_ids")
def _raw_placeholders(_engine: Engine, right: Ids, held: Held) -> tuple[int, ...]:
    return held.ids if held.session is not None and len(held.items) > 1 else right(held)


@fault("padding starts early", "slip", "a text token is overwritten", "padded_ids")
def _pads_text(_engine: Engine, right: Ids, held: Held) -> tuple[int, ...]:
    """Padding starts one token early."""
    early = {start - 1 for start, _stop in held.items if start}
    return tuple(PAD_VALUE if at in early else value for at, value in enumerate(right(held)))


@fault("abort releases the parent's media", "S1", "the parent loses its table", "leave")
def _loses_media(engine: Engine, right: Callable[[int, bool], None], req: int, finished: bool) -> None:
    right(req, finished)
    session = engine.held[req].session
    if finished or session is None:
        return
    for other, held in list(engine.held.items()):
        if other != req and held.session == session and held.items:
            engine.held[other] = replace(held, items=(), table=held.table[:, :0])


@fault("text turn forgets the media", "O8", "no table, no delta", "state")
def _no_table(engine: Engine, right: Callable[[int], protocol.RequestState], req: int) -> protocol.RequestState:
    state, held = right(req), engine.held[req]
    if held.session is None or state.table is None or held.media_width == len(held.ids):
        return state
    return msgspec.structs.replace(state, table=None, delta=None)


@fault("media turn's table starts at that turn", "S1", "the parent's columns are missing", "turn_record")
def _short_table(
    _engine: Engine,
    right: Callable[..., Held],
    ids: tuple[int, ...],
    media: protocol.Media | None,
    before: IntArray,
    kept: tuple[int, ...],
    *rest: Any,
) -> Held:
    held = right(ids, media, before, kept, *rest)
    return replace(held, table=decoded(media.table)) if media is not None and kept else held


def _told(name: str, says: str) -> Callable[[Callable[[Held, protocol.RequestState], dict[str, Any]]], None]:
    """Plant an engine that holds other values than it works with: the decorated function gives the fields that are
    wrong."""

    def plant(change: Callable[[Held, protocol.RequestState], dict[str, Any]]) -> None:
        @fault(name, "slip", says, "state")
        def state(engine: Engine, right: Callable[[int], protocol.RequestState], req: int) -> protocol.RequestState:
            found = right(req)
            return msgspec.structs.replace(found, **change(engine.held[req], found))

    return plant


_told("raw ids are padded too", "the client's own tokens are overwritten")(lambda _, right: {"unpadded_ids": right.ids})
_told("outputs end at a retraction", "what was generated is dropped with the memory")(
    lambda held, _: {"output_ids": ()} if held.retracted else {}
)
_told("a hit counts one token more", "prefix_len is one past the cached tokens")(
    lambda held, _: {"prefix_len": held.prefix_len + 1} if held.prefix_len else {}
)


@_told("a retraction moves the delta", "the delta counts a token more")
def _delta_moved(held: Held, right: protocol.RequestState) -> dict[str, Any]:
    return {"delta": tensor(decoded(right.delta) + 1)} if held.retracted and right.delta is not None else {}


@_told("a retraction pads anew", "the prefix cache no longer knows the media")
def _padded_anew(held: Held, right: protocol.RequestState) -> dict[str, Any]:
    """A retracted request's media get new pad values."""
    media = {at for start, stop in held.items for at in range(start, stop)}
    shift = 1000 if held.retracted else 0
    return {"ids": tuple(value + shift if at in media else value for at, value in enumerate(right.ids))}


_told("a retraction releases an item", "its media are gone when it is prefilled again")(
    lambda held, _: {"offsets": held.items[1:]} if held.retracted else {}
)


@_told("table cut when scheduled", "the last column is left out")
def _cut_to_prompt(held: Held, right: protocol.RequestState) -> dict[str, Any]:
    """Once it is scheduled, a request's table is cut by a column."""
    if right.table is None or held.fill_ids is None or held.retracted:
        return {}
    return {"table": tensor(decoded(right.table)[:, :-1])}


_told("a retraction aborts", "a request that must wait is given up")(
    lambda held, _: {"aborted": True} if held.retracted else {}
)

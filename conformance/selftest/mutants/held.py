"""Faults in retraction, ownership and freshness: what the engine holds between forwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from ropecheck.adapters import protocol
from ropecheck.conformance.plan.planner import decoded
from ropecheck.conformance.reference_engine import PAD_VALUE, Held, ReferenceEngine, tensor
from ropecheck.conformance.selftest.mutants.base import Mutant
from ropecheck.reference.timeline import IntArray


def _grown(table: IntArray, count: int, start: int) -> IntArray:
    """The table with `count` text columns from position `start`."""
    tail = np.broadcast_to(start + np.arange(count, dtype=np.int64), (table.shape[0], count))
    return np.concatenate([table, tail], axis=1)


class TopsUp(ReferenceEngine):
    """A right engine that, as some do, writes the outputs' columns into the table when it schedules again."""

    def start(self, held: Held) -> int:
        return held.delta + int(held.table.shape[1])

    def schedule(self, step: protocol.Schedule) -> None:
        super().schedule(step)
        held = self.held[step.req]
        if held.retracted and held.items:
            missing = len(held.ids) + len(held.output_ids) - held.table.shape[1]
            if missing > 0:
                self.held[step.req] = replace(held, table=_grown(held.table, missing, self.start(held)))


class TopsUpFromT(TopsUp):
    def start(self, held: Held) -> int:
        return int(held.table[0, -1]) + 1


class TopsUpAtIndex(TopsUp):
    def start(self, held: Held) -> int:
        return int(held.table.shape[1])


class LosesColumnsWhenRefused(TopsUp):
    """A second look at a retracted request takes back what the first one wrote, and more."""

    def schedule(self, step: protocol.Schedule) -> None:
        before = self.held[step.req]
        super().schedule(step)
        held = self.held[step.req]
        if held.retracted and held.items and before.table.shape[1] > len(held.ids):
            self.held[step.req] = replace(held, table=held.table[:, : len(held.ids)])


class MovesAtEachAttempt(ReferenceEngine):
    """Each time the scheduler looks at a retracted request its table moves on by one."""

    def schedule(self, step: protocol.Schedule) -> None:
        super().schedule(step)
        held = self.held[step.req]
        if held.retracted and held.items:
            self.held[step.req] = replace(held, table=held.table + step.attempts)


class RetractForgetsOutputs(ReferenceEngine):
    def fill_ids(self, held: Held) -> tuple[int, ...]:
        return self.padded_ids(held) if held.retracted else super().fill_ids(held)


class RetractWritesParent(ReferenceEngine):
    """The table shared with the parent grows."""

    def schedule(self, step: protocol.Schedule) -> None:
        super().schedule(step)
        held = self.held[step.req]
        if not held.retracted or held.session is None or not held.items:
            return
        for req, other in self.held.items():
            if req != step.req and other.session == held.session and other.items:
                self.held[req] = replace(other, table=_grown(other.table, 2, other.delta + other.table.shape[1]))


class DecodeWritesNeighbours(ReferenceEngine):
    """A decode leaves its delta on every request."""

    def forward(self, step: protocol.BuildForward) -> protocol.Result:
        result = super().forward(step)
        if step.mode == "decode":
            media = [self.held[req].delta for req in step.reqs if self.held[req].items]
            for req, held in list(self.held.items()):
                if media and held.items and req not in step.reqs:
                    self.held[req] = replace(held, delta=media[0])
        return result


class StaleCache(ReferenceEngine):
    """The cached delta is filled once and handed on to later turns."""

    def continued(self, step: protocol.TurnStep, parent: Held) -> Held:
        return replace(super().continued(step, parent), delta_cache=parent.delta_cache)


class StaleFill(ReferenceEngine):
    """Fill ids are rebuilt only when their number changes."""

    def fill_ids(self, held: Held) -> tuple[int, ...]:
        return held.ids + held.output_ids if held.session is not None else super().fill_ids(held)


class RawPlaceholders(ReferenceEngine):
    def padded_ids(self, held: Held) -> tuple[int, ...]:
        return held.ids if held.session is not None and len(held.items) > 1 else super().padded_ids(held)


class PadsText(ReferenceEngine):
    """Padding starts one token early."""

    def padded_ids(self, held: Held) -> tuple[int, ...]:
        ids = list(super().padded_ids(held))
        for start, _stop in held.items:
            if start:
                ids[start - 1] = PAD_VALUE
        return tuple(ids)


class LosesMediaOnAbort(ReferenceEngine):
    """Aborting a turn releases its parent's media."""

    def leave(self, req: int, finished: bool) -> None:
        super().leave(req, finished)
        session = self.held[req].session
        if finished or session is None:
            return
        for other, held in list(self.held.items()):
            if other != req and held.session == session and held.items:
                self.held[other] = replace(held, items=(), table=held.table[:, :0])


class TurnWithoutTable(ReferenceEngine):
    """A text turn forgets the media before it."""

    def state(self, req: int) -> protocol.RequestState:
        right = super().state(req)
        held = self.held[req]
        if held.session is None or right.table is None or held.media_width == len(held.ids):
            return right
        fields = {name: getattr(right, name) for name in right.__struct_fields__}
        return protocol.RequestState(**fields | {"table": None, "delta": None})


class ShortTurnTable(ReferenceEngine):
    """A media turn's table covers that turn alone."""

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
        right = super().turn_record(ids, media, before, kept, max_new_tokens, items, media_width)
        return replace(right, table=decoded(media.table)) if media is not None and kept else right


def _told(change: Callable[[Held, protocol.RequestState], dict[str, Any]]) -> type[ReferenceEngine]:
    """An engine that holds other values than it works with. change: the fields that are wrong."""

    class Told(ReferenceEngine):
        def state(self, req: int) -> protocol.RequestState:
            right = super().state(req)
            return msgspec.structs.replace(right, **change(self.held[req], right))

    return Told


def _delta_moved(held: Held, right: protocol.RequestState) -> dict[str, Any]:
    return {"delta": tensor(decoded(right.delta) + 1)} if held.retracted and right.delta is not None else {}


def _padded_anew(held: Held, right: protocol.RequestState) -> dict[str, Any]:
    """A retracted request's media get new pad values."""
    media = {at for start, stop in held.items for at in range(start, stop)}
    shift = 1000 if held.retracted else 0
    return {"ids": tuple(value + shift if at in media else value for at, value in enumerate(right.ids))}


def _cut_to_prompt(held: Held, right: protocol.RequestState) -> dict[str, Any]:
    """Once it is scheduled, a request's table is cut by a column."""
    if right.table is None or held.fill_ids is None or held.retracted:
        return {}
    return {"table": tensor(decoded(right.table)[:, :-1])}


MUTANTS = (
    Mutant("retract tops up from t", "found in 0.5.23", "outputs continue after the last t", TopsUpFromT),
    Mutant("retract tops up at the index", "slip", "outputs get no delta", TopsUpAtIndex),
    Mutant("columns lost when refused", "slip", "a refused request's table shrinks", LosesColumnsWhenRefused),
    Mutant("table moves at each attempt", "slip", "a refused request is not left alone", MovesAtEachAttempt),
    Mutant("retract forgets the outputs", "slip", "only the prompt is prefilled again", RetractForgetsOutputs),
    Mutant("retract writes the parent", "found in 0.5.23", "a shared table grows", RetractWritesParent),
    Mutant("decode writes its neighbours", "X5, T3", "a delta is shared by all", DecodeWritesNeighbours),
    Mutant("delta cache is handed on", "S39, S1, T1", "a cached delta outlives its table", StaleCache),
    Mutant("fill ids not rebuilt", "S5 (#38068)", "raw placeholders stay in the fill ids", StaleFill),
    Mutant("second image not padded", "S4", "raw placeholders stay in the prompt", RawPlaceholders),
    Mutant("padding starts early", "slip", "a text token is overwritten", PadsText),
    Mutant("abort releases the parent's media", "S1", "the parent loses its table", LosesMediaOnAbort),
    Mutant("text turn forgets the media", "O8", "no table, no delta", TurnWithoutTable),
    Mutant("media turn's table starts at that turn", "S1", "the parent's columns are missing", ShortTurnTable),
    Mutant(
        "raw ids are padded too",
        "slip",
        "the client's own tokens are overwritten",
        _told(lambda _held, right: {"unpadded_ids": right.ids}),
    ),
    Mutant(
        "outputs end at a retraction",
        "slip",
        "what was generated is dropped with the memory",
        _told(lambda held, _right: {"output_ids": ()} if held.retracted else {}),
    ),
    Mutant(
        "a hit counts one token more",
        "slip",
        "prefix_len is one past the cached tokens",
        _told(lambda held, _right: {"prefix_len": held.prefix_len + 1} if held.prefix_len else {}),
    ),
    Mutant("a retraction moves the delta", "slip", "the delta counts a token more", _told(_delta_moved)),
    Mutant("a retraction pads anew", "slip", "the prefix cache no longer knows the media", _told(_padded_anew)),
    Mutant(
        "a retraction releases an item",
        "slip",
        "its media are gone when it is prefilled again",
        _told(lambda held, _right: {"offsets": held.items[1:]} if held.retracted else {}),
    ),
    Mutant("table cut when scheduled", "slip", "the last column is left out", _told(_cut_to_prompt)),
    Mutant(
        "a retraction aborts",
        "slip",
        "a request that must wait is given up",
        _told(lambda held, _right: {"aborted": True} if held.retracted else {}),
    ),
)

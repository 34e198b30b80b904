"""One move of each kind, drawn from what is possible in a state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, TypeVar

from hypothesis import strategies as st

from ropecheck.reference.operations import (
    Abort,
    Accept,
    Decode,
    Draft,
    DraftExtend,
    Extend,
    Finish,
    Idle,
    Mixed,
    Open,
    Operation,
    Reschedule,
    Retract,
    Submit,
    Turn,
    Verify,
    Window,
)
from ropecheck.reference.requests import Request, State, tokens_of
from ropecheck.spec.history import History, Run, text

Choice = TypeVar("Choice")

SECONDS = (0.5, 1.0, 1.5, 4.0, 0.04)
"""Seconds per temporal grid step: fractional ones keep or skip positions."""

MOST_REQUESTS = 10
MOST_SESSIONS = 3
LONGEST = 400
"""Tokens after which a request is left alone, so that answers stay small."""


class Draw:
    """Draws of ints, choices, subsets and histories. Each is one bounded integer, which Hypothesis draws fast."""

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        self._draw = draw

    def number(self, low: int, high: int) -> int:
        return int(self._draw(_integers(low, max(low, high))))

    def one(self, choices: Sequence[Choice]) -> Choice:
        return choices[self.number(0, len(choices) - 1)]

    def some(self, choices: Sequence[Request]) -> list[Request]:
        """A non-empty subset, in the given order turned by a random amount."""
        mask = self.number(1, 2 ** len(choices) - 1)
        picked = [choice for bit, choice in enumerate(choices) if mask >> bit & 1]
        turn = self.number(0, len(picked) - 1)
        return picked[turn:] + picked[:turn]

    def flag(self) -> bool:
        return self.number(0, 1) == 1

    def media(self, largest: int) -> Run:
        """An image or a video: 1 x N and N x 1 grids, unequal sides, many frames."""
        height, width = 2 * self.number(1, largest), 2 * self.number(1, largest)
        frames = self.one((1, 1, 1, 2, 3, 9))
        if frames == 1:
            return Run(kind="image", grid=(1, height, width))
        return Run(kind="video", grid=(frames, height, width), seconds_per_grid=self.one(SECONDS))

    def history(self, most: int, largest: int = 5) -> History:
        """A prompt of 1 .. most runs: text, media, adjacent media, media first and last."""
        runs: list[Run] = []
        for _ in range(self.number(1, most)):
            if self.flag() and not (runs and runs[-1].is_text):
                runs.append(text(self.one((1, 2, 3, 5, 17))))
            else:
                runs.append(self.media(largest))
        return tuple(runs)


@lru_cache(maxsize=4096)
def _integers(low: int, high: int) -> Any:
    return st.integers(low, high)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of move: where it is possible, and how to draw one."""

    possible: Callable[[State], bool]
    draw: Callable[[Draw, State], tuple[Operation, ...]]
    weight: int = 1
    """How many times it is among the choices."""


def waiting(state: State) -> list[Request]:
    """Requests with something to prefill."""
    return [r for r in state.requests.values() if r.status in ("waiting", "retracted") and tokens_of(r) <= LONGEST]


def running(state: State) -> list[Request]:
    """Requests that can decode."""
    return [r for r in state.requests.values() if r.status == "running" and tokens_of(r) <= LONGEST]


def _room(state: State) -> bool:
    return len(state.requests) < MOST_REQUESTS


def _submit(draw: Draw, state: State) -> tuple[Operation, ...]:
    return (Submit(len(state.requests), draw.history(4)),)


def _open(draw: Draw, state: State) -> tuple[Operation, ...]:
    return (Open(len(state.sessions), streaming=draw.flag()),)


def _turn(draw: Draw, state: State) -> tuple[Operation, ...]:
    session = state.sessions[draw.number(0, len(state.sessions) - 1)]
    req, prompt = len(state.requests), draw.history(2)
    limit = draw.one((1 << 20, 1 << 20, 1 << 20, 1, 2))
    if session.streaming:
        return (Turn(session.session, req, prompt, max_new_tokens=limit),)
    known = [r for r in session.known if state.requests[r].status in ("finished", "running")]
    if not known or draw.number(0, 9) == 0:
        return (Turn(session.session, req, prompt, replace=bool(known), max_new_tokens=limit),)
    parent = draw.one(known)
    how = draw.one(("append", "append", "append", "append", "replace", "drop", "offset"))
    return (
        Turn(
            session.session,
            req,
            prompt,
            parent,
            replace=how == "replace",
            offset=draw.number(1, tokens_of(state.requests[parent])) if how == "offset" else 0,
            drop_previous_output=how == "drop",
            max_new_tokens=limit,
        ),
    )


def _told(draw: Draw, state: State) -> tuple[Operation, ...]:
    """A whole turn: it arrives, is prefilled, replies and finishes, so that later turns have something to append to."""
    (turn,) = _turn(draw, state)
    assert isinstance(turn, Turn)
    replies = tuple(Decode((turn.req,)) for _ in range(draw.number(0, 2)))
    return (turn, Extend((Window(turn.req),)), *replies, Finish(turn.req))


def _windows(draw: Draw, state: State) -> tuple[Window, ...]:
    windows = []
    cut = False
    for request in draw.some(waiting(state)):
        total = tokens_of(request)
        fresh = not request.admitted and not request.computed
        hit = draw.number(1, total - 1) if fresh and total > 1 and draw.number(0, 2) == 0 else 0
        left = total - max(hit, request.computed)
        tokens = 0
        if not cut and left > 1 and draw.number(0, 2) == 0:
            cut, tokens = True, draw.number(1, left - 1)
        windows.append(Window(request.req, tokens, hit))
    return tuple(windows)


def _extend(draw: Draw, state: State) -> tuple[Operation, ...]:
    return (Extend(_windows(draw, state), split=draw.number(0, 7) == 0),)


def _mixed(draw: Draw, state: State) -> tuple[Operation, ...]:
    return (Mixed(_windows(draw, state), _reqs(draw.some(running(state)))),)


def _decode(draw: Draw, state: State) -> tuple[Operation, ...]:
    reqs = _reqs(draw.some(running(state)))
    pad = draw.one(("", "", "", "", "graph", "dp"))
    return (Decode(reqs, pad=pad, pad_batch=(len(reqs) + draw.number(0, 3)) if pad else 0),)


def _tree(draw: Draw, nodes: int, topk: int) -> tuple[int, ...]:
    """Parents of a chain, or of a random tree whose nodes come in the order of their depth."""
    if topk == 1:
        return tuple(range(nodes - 1))
    parents: list[int] = []
    for node in range(1, nodes):
        low = parents[-1] if parents else 0
        parents.append(draw.number(low, min(node - 1, low + 1)))
    return tuple(parents)


def _round(draw: Draw, state: State) -> tuple[Operation, ...]:
    reqs = _reqs(draw.some(running(state)))
    nodes = draw.number(1, 6)
    topk = draw.one((1, 1, 2, 3))
    trees = tuple(_tree(draw, nodes, topk) for _ in reqs)
    depths = [_depth(tree) for tree in trees]
    path, host = draw.one(("direct", "caller")), draw.flag()
    # A tree of several branches goes through an interpreted kernel on a CPU: the chosen scenarios have those.
    tree_path = path if all(tree == tuple(range(nodes - 1)) for tree in trees) else "direct"
    return (
        Draft(reqs, num_steps=draw.number(2, 6), topk=topk, path=path, host_lengths=host),
        Verify(reqs, trees, topk=topk, path=tree_path, host_lengths=host),
        DraftExtend(reqs, nodes, host_lengths=host, path=path),
        *(Accept(req, draw.number(1, depth + 1)) for req, depth in zip(reqs, depths, strict=True)),
    )


def _ragged(draw: Draw, state: State) -> tuple[Operation, ...]:
    reqs = _reqs(draw.some(running(state)))
    trees = tuple(tuple(range(draw.number(0, 4))) for _ in reqs)
    packed = sum(len(tree) + 1 for tree in trees)
    tier = packed + draw.number(0, 3) if draw.flag() else 0
    return (Verify(reqs, trees, ragged=True, ragged_tokens=tier),)


def _depth(tree: tuple[int, ...]) -> int:
    depths = [0]
    for parent in tree:
        depths.append(depths[parent] + 1)
    return max(depths)


def _reqs(requests: list[Request]) -> tuple[int, ...]:
    return tuple(request.req for request in requests)


def _of_one(make: Callable[[int], Operation], among: Callable[[State], list[Request]], weight: int = 1) -> Kind:
    return Kind(lambda state: bool(among(state)), lambda draw, state: (make(draw.one(among(state)).req),), weight)


def _refusable(state: State) -> list[Request]:
    return [r for r in state.requests.values() if r.status == "retracted" and not r.admitted]


def _abortable(state: State) -> list[Request]:
    return [r for r in state.requests.values() if r.status in ("waiting", "running")]


DRAWS: Mapping[str, Kind] = MappingProxyType(
    {
        "submit": Kind(_room, _submit, 2),
        "extend": Kind(lambda state: bool(waiting(state)), _extend, 5),
        "decode": Kind(lambda state: bool(running(state)), _decode, 3),
        "mixed": Kind(lambda state: bool(waiting(state) and running(state)), _mixed, 4),
        "round": Kind(lambda state: bool(running(state)), _round, 2),
        "ragged": Kind(lambda state: bool(running(state)), _ragged),
        "retract": _of_one(Retract, running),
        "refuse": _of_one(Reschedule, _refusable),
        "finish": _of_one(Finish, running, 2),
        "abort": _of_one(Abort, _abortable),
        "open": Kind(lambda state: len(state.sessions) < MOST_SESSIONS, _open),
        "turn": Kind(lambda state: bool(state.sessions) and _room(state), _turn, 3),
        "told": Kind(lambda state: bool(state.sessions) and _room(state), _told, 4),
        "idle": Kind(lambda state: bool(state.requests), lambda draw, state: (Idle(),)),
    }
)
"""Every kind of move by name."""


def possible(state: State, kinds: Sequence[str]) -> list[str]:
    """The kinds that are possible here, each as often as it weighs."""
    return [kind for kind in kinds if DRAWS[kind].possible(state) for _ in range(DRAWS[kind].weight)]

"""One move of each kind, drawn from what is possible in a state."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, TypeVar

from hypothesis import strategies as st

from ropecheck.adapters.batch import Batch, BatchPart
from ropecheck.conformance.scenario import domains
from ropecheck.conformance.scenario.operations import (
    Abort,
    Accept,
    Build,
    Finish,
    Open,
    Operation,
    Reschedule,
    Retract,
    Submit,
    Turn,
)
from ropecheck.conformance.scenario.words import decode, draft, draft_extend, extend, verify, window
from ropecheck.reference.requests import Request, State, tokens_of
from ropecheck.spec.history import History, Run, text
from ropecheck.spec.modes import all_modes
from ropecheck.spec.modes.declaration import NOBODY, PREFILLING, RUNNING, TEXT, Mode, depths

Choice = TypeVar("Choice")

SECONDS = (0.5, 1.0, 1.5, 4.0, 0.04)
"""Seconds per temporal grid step: fractional ones keep or skip positions."""

NO_STATE = {"seq_len": (0,) * 64}
"""Stands in for what a state says, where only the number of tokens counts."""

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


def _turn(draw: Draw, state: State) -> tuple[Operation, ...]:
    session = state.sessions[draw.number(0, len(state.sessions) - 1)]
    req, prompt = len(state.requests), draw.history(2)
    limit = draw.one((1 << 20, 1 << 20, 1 << 20, 1, 2))
    if session.streaming:
        return (Turn(session.session, req, prompt, max_new_tokens=limit),)
    known = [r for r in session.known if state.requests[r].status != "refused"]
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
    replies = tuple(decode((turn.req,)) for _ in range(draw.number(0, 2)))
    return (turn, extend((window(turn.req),)), *replies, Finish(turn.req))


def _forward(mode: Mode) -> Callable[[Draw, State], tuple[Operation, ...]]:
    """A forward of this mode, its rows and fields drawn from what its declaration says."""

    def draw_forward(draw: Draw, state: State) -> tuple[Operation, ...]:
        left = list(state.requests)
        parts: list[BatchPart] = []
        cut = False
        for number, row_mode in enumerate(mode.parts):
            able = [request for request in readable(row_mode, state) if row_mode.follows or request.req in left]
            if row_mode.follows:
                able = [request for request in able if any(request.req in part.reqs for part in parts)]
            later = sum(part.reads == row_mode.reads and not part.follows for part in mode.parts[number + 1 :])
            rows = [] if row_mode.reads == NOBODY else draw.some(able[: len(able) - later])
            if row_mode.follows:
                order = [req for part in parts for req in part.reqs]
                rows.sort(key=lambda request: order.index(request.req))
            left = [req for req in left if req not in {request.req for request in rows}]
            if row_mode.reads == PREFILLING:
                fields, cut = _windows(draw, rows, cut)
            else:
                fields = domains.drawn(row_mode, len(rows), draw.number)
            name = "" if row_mode is mode else row_mode.name
            parts.append(BatchPart(reqs=_reqs(rows), fields=fields, mode=name))
        return (Build(Batch(mode.name, tuple(parts)), **_how(draw, mode, parts)),)

    return draw_forward


def _windows(draw: Draw, rows: list[Request], cut: bool) -> tuple[dict[str, Any], bool]:
    """Prefix hits and lengths of prefilling rows; at most one row of a batch is cut short."""
    hits, lengths = [], []
    for request in rows:
        total = tokens_of(request)
        fresh = not request.admitted and not request.computed
        hit = draw.number(1, total - 1) if fresh and total > 1 and draw.number(0, 2) == 0 else 0
        left = total - max(hit, request.computed)
        tokens = 0
        if not cut and left > 1 and draw.number(0, 2) == 0:
            cut, tokens = True, draw.number(1, left - 1)
        hits.append(hit)
        lengths.append(tokens)
    fields: dict[str, Any] = {"extend_len": tuple(lengths)} if any(lengths) else {}
    return fields | ({"prefix_len": tuple(hits)} if any(hits) else {}), cut


def _how(draw: Draw, mode: Mode, parts: list[BatchPart]) -> dict[str, Any]:
    """How the engine builds it, and a wider buffer now and then."""
    how: dict[str, Any] = {}
    rows = sum(len(part.reqs) for part in parts)
    chains = all(
        tree == tuple(range(len(tree)))
        for part in parts
        for value in part.fields.values()
        for tree in (value if isinstance(value, tuple) else ())
        if isinstance(tree, tuple)
    )
    if mode.prepared:
        # A tree of several branches goes through an interpreted kernel on a CPU: the chosen scenarios have those.
        how["path"] = draw.one(("direct", "")) if chains else "direct"
        how["host_lengths"] = draw.flag()
    buffer = draw.one(("", "", "", *mode.buffers)) if mode.buffers else ""
    if buffer == "tier":
        how |= {"buffer": buffer, "buffer_tokens": _tokens(mode, parts) + draw.number(0, 3)}
    elif buffer and all(part.reads == RUNNING for part in mode.parts):
        how |= {"buffer": buffer, "buffer_rows": rows + draw.number(0, 3)}
    return how


def _tokens(mode: Mode, parts: list[BatchPart]) -> int:
    """Tokens that a packed batch of trees reads."""
    row_modes = zip(mode.parts, parts, strict=True)
    return sum(
        row_mode.row(part.fields | NO_STATE, row).count for row_mode, part in row_modes for row in range(len(part.reqs))
    )


def readable(mode: Mode, state: State) -> list[Request]:
    """Requests that rows of this mode can read."""
    if mode.reads == PREFILLING:
        return waiting(state)
    if mode.reads == TEXT:
        return [request for request in (*waiting(state), *running(state)) if not request.has_media]
    return running(state) if mode.reads == RUNNING else []


def _can_run(mode: Mode) -> Callable[[State], bool]:
    """Whether every part of a batch finds a request of its own."""

    def possible(state: State) -> bool:
        if mode.reads == NOBODY:
            return bool(state.requests)
        wanted: dict[str, int] = {}
        for part in mode.parts:
            wanted[part.reads] = wanted.get(part.reads, 0) + (not part.follows)
        return all(len(readable(part, state)) >= wanted[part.reads] for part in mode.parts)

    return possible


def _round(draw: Draw, state: State) -> tuple[Operation, ...]:
    """A speculative round: draft, verify, draft extend, and what was accepted."""
    reqs = _reqs(draw.some(running(state)))
    nodes, topk = draw.number(1, 6), draw.one((1, 1, 2, 3))
    trees = tuple(domains.drawn_tree(nodes, topk, draw.number) for _ in reqs)
    path, host = draw.one(("direct", "caller")), draw.flag()
    # A tree of several branches goes through an interpreted kernel on a CPU: the chosen scenarios have those.
    tree_path = path if all(tree == tuple(range(nodes - 1)) for tree in trees) else "direct"
    return (
        draft(reqs, num_steps=draw.number(2, 6), topk=topk, path=path, host_lengths=host),
        verify(reqs, trees, topk=topk, path=tree_path, host_lengths=host),
        draft_extend(reqs, nodes, host_lengths=host, path=path),
        *(Accept(req, draw.number(1, max(depths(tree)) + 1)) for req, tree in zip(reqs, trees, strict=True)),
    )


def _reqs(requests: list[Request]) -> tuple[int, ...]:
    return tuple(request.req for request in requests)


def _of_one(make: Callable[[int], Operation], among: Callable[[State], list[Request]], weight: int = 1) -> Kind:
    return Kind(lambda state: bool(among(state)), lambda draw, state: (make(draw.one(among(state)).req),), weight)


def _refusable(state: State) -> list[Request]:
    return [r for r in state.requests.values() if r.status == "retracted" and not r.admitted]


def _abortable(state: State) -> list[Request]:
    return [r for r in state.requests.values() if r.status in ("waiting", "running")]


STORY: Mapping[str, Kind] = MappingProxyType(
    {
        "submit": Kind(_room, lambda draw, state: (Submit(len(state.requests), draw.history(4)),), 2),
        "round": Kind(lambda state: bool(running(state)), _round, 2),
        "retract": _of_one(Retract, running),
        "refuse": _of_one(Reschedule, _refusable),
        "finish": _of_one(Finish, running, 2),
        "abort": _of_one(Abort, _abortable),
        "open": Kind(
            lambda state: len(state.sessions) < MOST_SESSIONS,
            lambda draw, state: (Open(len(state.sessions), streaming=draw.flag()),),
        ),
        "turn": Kind(lambda state: bool(state.sessions) and _room(state), _turn, 3),
        "told": Kind(lambda state: bool(state.sessions) and _room(state), _told, 4),
    }
)
"""What clients and the scheduler do, by name."""


def draws() -> Mapping[str, Kind]:
    """Every kind of move: what clients and the scheduler do, and a forward of each declared mode."""
    kinds = dict(STORY)
    for mode in all_modes().values():
        moves = any(part.reads == PREFILLING or part.emits for part in mode.parts)
        kinds[mode.name] = Kind(_can_run(mode), _forward(mode), 4 if moves else 1)
    return kinds


def possible(state: State, kinds: Sequence[str]) -> list[str]:
    """The kinds that are possible here, each as often as it weighs."""
    known = draws()
    return [kind for kind in kinds if known[kind].possible(state) for _ in range(known[kind].weight)]

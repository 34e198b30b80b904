"""Scripts by chance: a state machine over what clients may do, driven by whoever draws numbers.

A seed is one set of scripts on every machine (`random_scripts`); `scripts()` is the same machine as a Hypothesis
strategy.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec
from hypothesis import strategies as st

from ropecheck.conformance.scripts.legal import legal
from ropecheck.conformance.scripts.script import (
    Action,
    Arrive,
    Close,
    Continue,
    Flush,
    GiveUp,
    OpenSession,
    Pause,
    Script,
    Step,
)
from ropecheck.conformance.scripts.servers import servers
from ropecheck.spec.history import History, Run, image, text, video

T = TypeVar("T")
Number = Callable[[int, int], int]
"""A whole number in low .. high."""

FAMILIES = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")
SPATIAL = ((1, 4, 4), (1, 4, 6), (1, 8, 4), (1, 2, 2))
MOVES = 12


@dataclass
class _Machine:
    number: Number
    family: str
    reqs: list[int] = field(default_factory=list)
    sessions: dict[int, bool] = field(default_factory=dict)
    """Open sessions, and whether they stream."""
    opened: int = 0
    turns: dict[int, list[int]] = field(default_factory=dict)
    paused: bool = False

    def one(self, options: Sequence[T]) -> T:
        return options[self.number(0, len(options) - 1)]

    def prompt(self) -> History:
        runs: list[Run] = []
        for _ in range(self.number(1, 4)):
            kind = self.number(0, 5)
            if kind <= 2:
                runs.append(text(self.one((1, 2, 3, 7, 20, 45))))
            elif kind <= 4:
                runs.append(image(*self.one(SPATIAL)))
            else:
                t, h, w = self.one(SPATIAL)
                runs.append(video(2 * t, h, w, self.one((0.5, 1.0, 3.0))))
        if self.family == "qwen3_vl":  # one frame a video item; timestamps are text
            runs = [image(1, *run.grid[1:]) if run.kind == "video" and run.grid else run for run in runs]
        return tuple(runs)

    def arrive(self) -> Arrive:
        req = len(self.reqs)
        self.reqs.append(req)
        stop = self.one((5, 7, 13)) if self.number(0, 5) == 0 else 0
        priority = self.number(0, 3) if self.number(0, 3) == 0 else 0
        beams = self.number(2, 3) if self.number(0, 9) == 0 else 1
        new, content = self.one((1, 2, 3, 6, 12)), self.number(0, 1)
        return Arrive(req, self.prompt(), new, content=content, stop_every=stop, priority=priority, beams=beams)

    def turn(self) -> tuple[Action, ...]:
        """A turn; mostly of a session that is at rest, because one that is not must be refused."""
        session = self.one(sorted(self.sessions))
        plain = self.arrive()
        earlier = self.turns.setdefault(session, [])
        parent = None if self.sessions[session] or not earlier else self.one(earlier)
        if self.number(0, 9) == 0:  # any request, or one that nobody sent, or none
            parent = self.one((*range(plain.req), 99, None))
        earlier.append(plain.req)
        how = self.number(0, 9)
        rewrites = parent is not None or how == 9
        turn = Arrive(
            plain.req,
            plain.prompt,
            plain.max_new_tokens,
            session,
            parent,
            offset=self.number(-5, 30) if how in (0, 3, 9) and rewrites else None,
            replace=how in (1, 3) and parent is not None,
            drop_previous_output=how in (2, 3) and rewrites,
            content=plain.content,
        )
        return (Step(24), turn) if len(earlier) > 1 and self.number(0, 5) else (turn,)

    def open(self) -> OpenSession:
        session = self.number(0, self.opened) if self.number(0, 4) == 0 else self.opened
        self.opened += 1
        if session in self.sessions:  # of a name that is open already the second is refused
            return OpenSession(session, self.number(0, 2) == 0)
        self.sessions[session] = self.number(0, 2) == 0
        return OpenSession(session, self.sessions[session])

    def close(self) -> Close:
        session = self.one(sorted(self.sessions)) if self.number(0, 6) else 98
        self.sessions.pop(session, None)
        return Close(session)

    def move(self) -> tuple[Action, ...]:
        kinds = ["arrive"] * 4 + ["step"] * 6
        if self.opened < 2:
            kinds.append("open")
        if self.sessions:
            kinds += ["turn"] * 4 + ["close"] * (self.number(0, 3) == 0)
        if self.reqs:
            kinds += ["abort"] * 2 + ["flush"]
        kinds.append("continue" if self.paused else "pause")
        match self.one(kinds):
            case "arrive":
                return (self.arrive(),)
            case "turn":
                return self.turn()
            case "open":
                return (self.open(),)
            case "close":
                return (self.close(),)
            case "abort":
                return (GiveUp(self.one(self.reqs)) if self.number(0, 6) else GiveUp(),)
            case "flush":
                return (Flush(),)
            case "pause":
                self.paused = True
                return (Pause(self.one(("in_place", "retract", "retract"))),)
            case "continue":
                self.paused = False
                return (Continue(),)
        return (Step(self.one((1, 1, 2, 3, 6, 12))),)


def drawn(number: Number, name: str = "drawn", only: Sequence[str] = ()) -> Script:
    """One script. only: the servers to draw from; none: all that are drawn for."""
    names = list(only or (name for name, about in servers().items() if not about.scripts))
    server = names[number(0, len(names) - 1)]
    family = FAMILIES[number(0, len(FAMILIES) - 1)]
    machine = _Machine(number, family)
    actions: list[Action] = [machine.arrive() if number(0, 1) else machine.open()]
    for _ in range(number(3, MOVES)):
        actions += machine.move()
    if not machine.reqs:
        actions.append(machine.arrive())
    script = Script(name, server, tuple(actions), family, accept=number(0, 3))
    while not legal(script):  # sessions keep more than a small pool holds
        actions.pop()
        script = msgspec.structs.replace(script, actions=tuple(actions))
    return script


def random_scripts(seed: int, count: int, only: Sequence[str] = ()) -> Iterator[Script]:
    """`count` different scripts; each has a seed of its own, so that it does not depend on those before it."""
    seen: set[str] = set()
    tries = 0
    while len(seen) < count:
        tries += 1
        chance = random.Random(f"script {seed} {tries}").random

        def number(low: int, high: int, chance: Callable[[], float] = chance) -> int:
            return low + int(chance() * (max(low, high) - low + 1))

        script = drawn(number, f"script {seed}.{len(seen)}", only)
        if script.id not in seen:
            seen.add(script.id)
            yield script


@st.composite
def scripts(draw: st.DrawFn) -> Script:
    """Any script that `random_scripts` could give."""
    return drawn(lambda low, high: draw(st.integers(low, max(low, high))))

"""Every script of up to k client actions over two requests and one session, and the count by a second way.

| action | when |
| --- | --- |
| request: text, an image between text, or ends with an image | fewer than two have arrived |
| turn after the session's last one: text or an image | the session is open, fewer than two requests have arrived |
| open the session, streaming or not | it never was |
| abort request r | it has arrived and was not aborted |
| pause with retraction, and continue | something has arrived |
| step 1, step 4 | something has arrived, and the action before is no step |

A script ends with an action that is no step (the loop goes on by itself until all is done) and has a request.
"""

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from ropecheck.conformance.scripts.script import Action, Arrive, Continue, GiveUp, OpenSession, Pause, Script, Step
from ropecheck.spec.history import History, image, text

PROMPTS: tuple[History, ...] = ((text(3),), (text(1), image(1, 4, 6), text(1)), (text(1), image(1, 4, 4)))
TURNS: tuple[History, ...] = ((text(2),), (image(1, 4, 4), text(1)))
STEPS = (1, 4)
KINDS = (False, True)
"""Of sessions: whether they stream."""
NEW = 4


class _State(NamedTuple):
    reqs: int = 0
    aborted: tuple[int, ...] = ()
    opened: bool = False
    last: int | None = None
    """The session's last turn."""
    stepped: bool = False
    streaming: bool = False


def walk(server: str, most: int) -> Iterator[Script]:
    """Every script of up to `most` actions for one server, shortest first within a branch."""
    for number, actions in enumerate(_walk((), _State(), most)):
        yield Script(f"small #{number} ({server})", server, actions)


def _walk(done: tuple[Action, ...], state: _State, left: int) -> Iterator[tuple[Action, ...]]:
    if state.reqs and not state.stepped:
        yield tuple(part for action in done for part in _parts(action))
    if left:
        for action, after in _moves(state):
            yield from _walk((*done, action), after, left - 1)


def _parts(action: Action) -> tuple[Action, ...]:
    """A pause stands for itself and its end."""
    return (action, Continue()) if isinstance(action, Pause) else (action,)


def _moves(state: _State) -> Iterator[tuple[Action, _State]]:
    reqs = state.reqs
    if reqs < 2:
        for prompt in PROMPTS:
            yield Arrive(reqs, prompt, NEW), state._replace(reqs=reqs + 1, stepped=False)
        if state.opened:
            for prompt in TURNS:
                turn = Arrive(reqs, prompt, NEW, 0, None if state.streaming else state.last)
                yield turn, state._replace(reqs=reqs + 1, last=reqs, stepped=False)
    if not state.opened:
        for streaming in KINDS:
            yield OpenSession(0, streaming), state._replace(opened=True, stepped=False, streaming=streaming)
    for req in range(reqs):
        if req not in state.aborted:
            yield GiveUp(req), state._replace(aborted=(*state.aborted, req), stepped=False)
    if reqs:
        yield Pause("retract"), state._replace(stepped=False)
        if not state.stepped:
            for times in STEPS:
                yield Step(times), state._replace(stepped=True)


def count(most: int) -> int:
    """How many scripts `walk` yields for a server: arithmetic on four numbers, without a script."""
    return sum(_count(0, 0, False, False, actions) for actions in range(1, most + 1))


@cache
def _count(reqs: int, aborted: int, opened: bool, stepped: bool, left: int) -> int:
    """Scripts of exactly `left` more actions."""
    if left == 0:
        return int(reqs > 0 and not stepped)
    total = 0
    if reqs < 2:
        total += (len(PROMPTS) + (len(TURNS) if opened else 0)) * _count(reqs + 1, aborted, opened, False, left - 1)
    if not opened:
        total += len(KINDS) * _count(reqs, aborted, True, False, left - 1)
    if reqs > aborted:
        total += (reqs - aborted) * _count(reqs, aborted + 1, opened, False, left - 1)
    if reqs:
        total += _count(reqs, aborted, opened, False, left - 1)
        if not stepped:
            total += len(STEPS) * _count(reqs, aborted, opened, True, left - 1)
    return total


def certificate(servers: tuple[str, ...], most: int) -> str:
    """The scope in words and its size."""
    names = ", ".join(servers)
    return f"every script of up to {most} client actions over two requests and a session on {names}: {count(most)} each"

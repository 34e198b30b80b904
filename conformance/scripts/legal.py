"""Which scripts can be played: what no client can send is refused with one line, what the engine must refuse is not."""

from ropecheck.conformance.scripts.script import Action, Arrive, Close, OpenSession, Pause, Script, Step
from ropecheck.conformance.scripts.servers import server, servers
from ropecheck.spec.families import family as find_family
from ropecheck.spec.families.declaration import MediaFamily
from ropecheck.spec.history import OutOfDomain, length

MOST_TOKENS = 400
"""Of one prompt: with turns and replies it stays inside the toy model's context."""
MOST_STEPS = 200
MOST_NEW = 200
RESERVE = 16
"""Tokens of a pool that an engine may want to stay free when it admits a request."""


def check(script: Script) -> None:
    """Raises OutOfDomain, naming the action, for a script that cannot be played."""
    server(script.server)
    family = find_family(script.family)
    reqs: set[int] = set()
    for at, action in enumerate(script.actions):
        where = f"actions[{at}]"
        match action:
            case Arrive():
                _arrive(action, where, reqs)
                least = int(action.session is None)  # a turn may add nothing
                if not least <= length(family, action.prompt) <= MOST_TOKENS:
                    raise OutOfDomain(f"{where}.prompt: must have {least} .. {MOST_TOKENS} tokens")
                reqs.add(action.req)
            case Close(timeout=True) if len(timed(script.actions)) > 1:
                raise OutOfDomain(f"{where}.timeout: the clock goes on for every session; let one of them time out")
            case Pause(mode=mode):
                if mode not in ("in_place", "retract"):
                    raise OutOfDomain(f"{where}.mode: {mode!r} is not in_place or retract")
            case Step(times=times):
                if not 1 <= times <= MOST_STEPS:
                    raise OutOfDomain(f"{where}.times: {times} is not in 1 .. {MOST_STEPS}")
    _fits(script, family)


def _fits(script: Script, family: MediaFamily) -> None:
    """What streaming sessions keep until they are closed leaves room in the pool for every other request: one that has
    none waits for a close that never comes, and no server is to blame."""
    pool = servers()[script.server].arguments.get("max_total_tokens")
    if pool is None:
        return
    arrived = [one for one in script.actions if isinstance(one, Arrive)]
    closed = {one.session for one in script.actions if isinstance(one, Close)}
    streams = {one.session for one in script.actions if isinstance(one, OpenSession) and one.streaming}
    most: dict[int | None, int] = {}
    for one in arrived:
        most[one.session] = most.get(one.session, 0) + length(family, one.prompt) + one.max_new_tokens
    kept = {session: tokens for session, tokens in most.items() if session in streams - closed}
    for one in arrived:
        alone = length(family, one.prompt) + one.beams * one.max_new_tokens
        needs = alone if one.session is None else most[one.session]
        others = sum(tokens for session, tokens in kept.items() if session != one.session)
        if others and others + needs + RESERVE > int(pool):
            raise OutOfDomain(f"request {one.req}: the pool of {pool} tokens is full of what streaming sessions keep")


def _arrive(action: Arrive, where: str, reqs: set[int]) -> None:
    if action.req in reqs:
        raise OutOfDomain(f"{where}.req: request {action.req} arrived before")
    if not 0 <= action.max_new_tokens <= MOST_NEW:
        raise OutOfDomain(f"{where}.max_new_tokens: {action.max_new_tokens} is not in 0 .. {MOST_NEW}")
    if not 1 <= action.copies <= 4:
        raise OutOfDomain(f"{where}.copies: {action.copies} is not in 1 .. 4")
    if not 1 <= action.beams <= 4:
        raise OutOfDomain(f"{where}.beams: {action.beams} is not in 1 .. 4")


def legal(script: Script) -> bool:
    """Whether the script can be played."""
    try:
        check(script)
    except OutOfDomain:
        return False
    return True


def timed(actions: tuple[Action, ...]) -> set[int]:
    """The sessions that are opened with a timeout."""
    return {one.session for one in actions if isinstance(one, Close) and one.timeout}


def paused(actions: tuple[Action, ...]) -> bool:
    """Whether the actions leave the server paused."""
    state = False
    for action in actions:
        if isinstance(action, Pause):
            state = True
        elif type(action).__name__ == "Continue":
            state = False
    return state

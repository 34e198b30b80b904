"""Make a failing script smaller in its own terms: fewer actions, fewer runs, fewer tokens."""

import time
from collections.abc import Callable, Iterator

import msgspec

from ropecheck.conformance.judge.outcome import Failure, Outcome
from ropecheck.conformance.scripts.legal import legal
from ropecheck.conformance.scripts.script import Action, Arrive, Close, OpenSession, Script, Step, size_of_script
from ropecheck.spec.history import Run, image, text

Check = Callable[[Script], Outcome]


def shrink_script(
    script: Script, key: tuple[str, str, str], check: Check, seconds: float
) -> tuple[Script, Failure | None]:
    """The smallest script found that fails with this key, and its failure; None where no smaller one does."""
    deadline = time.monotonic() + seconds
    best: Failure | None = None
    tried: set[str] = {script.id}
    progress = True
    while progress and time.monotonic() < deadline:
        progress = False
        for smaller in _smaller(script):
            if time.monotonic() > deadline:
                break
            if smaller.id in tried or not legal(smaller) or not _simpler_than(smaller, script):
                continue
            tried.add(smaller.id)
            failure = next((one for one in check(smaller).failures if one.key == key and not one.follows), None)
            if failure is not None:
                script, best, progress = smaller, failure, True
                break
    return script, best


def _simpler_than(one: Script, other: Script) -> bool:
    """Fewer actions or tokens; or the same on the plain server."""
    mine, theirs = size_of_script(one)[:2], size_of_script(other)[:2]
    return mine < theirs or (
        mine == theirs and (one.server, one.accept) == ("plain", 1) != (other.server, other.accept)
    )


def _smaller(script: Script) -> Iterator[Script]:
    actions = script.actions
    if script.server != "plain":
        yield msgspec.structs.replace(script, server="plain")
    for size in (len(actions) // 2, len(actions) // 4, 1):
        for at in range(len(actions) - size, -1, -1) if size else ():
            yield _with(script, actions[:at] + actions[at + size :])
    for at, action in enumerate(actions):
        if isinstance(action, OpenSession):
            yield _with(script, _without_session(actions[:at] + actions[at + 1 :], action.session))
    for at, action in enumerate(actions):
        for simpler in _simpler(action):
            yield _with(script, (*actions[:at], simpler, *actions[at + 1 :]))
    if script.accept != 1:
        yield msgspec.structs.replace(script, accept=1)


def _without_session(actions: tuple[Action, ...], session: int) -> tuple[Action, ...]:
    """Its turns become requests of their own."""
    kept: list[Action] = []
    for action in actions:
        if isinstance(action, Close) and action.session == session:
            continue
        if isinstance(action, Arrive) and action.session == session:
            action = Arrive(action.req, action.prompt, action.max_new_tokens, content=action.content)
        kept.append(action)
    return tuple(kept)


def _with(script: Script, actions: tuple[Action, ...]) -> Script:
    return msgspec.structs.replace(script, actions=actions)


def _simpler(action: Action) -> Iterator[Action]:
    if isinstance(action, Step) and action.times > 1:
        yield Step(action.times // 2)
        yield Step(action.times - 1)
    if not isinstance(action, Arrive):
        return
    change = msgspec.structs.replace
    for fields in (
        {"copies": 1},
        {"beams": 1},
        {"beams": 2},
        {"stop_every": 0},
        {"priority": 0},
        {"content": 0},
        {"max_new_tokens": action.max_new_tokens // 2},
        {"max_new_tokens": max(0, action.max_new_tokens - 1)},
        {"more": ()},
        {"offset": None},
        {"offset": None if action.offset is None else int(action.offset / 2)},
        {"prompt": (text(1),)},
    ):
        yield change(action, **fields)
    for at, run in enumerate(action.prompt):
        rest = (action.prompt[:at], action.prompt[at + 1 :])
        if len(action.prompt) > 1:
            yield change(action, prompt=rest[0] + rest[1])
        for smaller in _runs(run):
            yield change(action, prompt=(*rest[0], smaller, *rest[1]))


def _runs(run: Run) -> Iterator[Run]:
    if run.is_text and run.tokens > 1:
        yield text(1)
        yield text(run.tokens // 2)
    elif not run.is_text:
        for smaller in (image(1, 2, 2), image(1, 4, 4), image(1, 4, 6)):
            if run != smaller:
                yield smaller

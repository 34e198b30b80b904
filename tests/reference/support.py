"""States to start from."""

from __future__ import annotations

from msgspec.structs import replace

from ropecheck.reference.requests import Request, State, emit, of, updated
from ropecheck.reference.turns import submit
from ropecheck.spec.history import History, image, text

PICTURE: History = (text(1), image(1, 4, 4), text(1))
"""Six tokens, delta -2."""
WORDS: History = (text(3),)


def waiting(*prompts: History, family: str = "qwen2_vl") -> State:
    """Requests 0, 1, .. that have just arrived."""
    state = State(family=family)
    for number, prompt in enumerate(prompts):
        state = submit(state, number, prompt, max_new_tokens=8)
    return state


def with_status(state: State, req: int, status: str, outputs: int = 0, **more: object) -> State:
    """The same, one request further on."""
    state, _ = emit(state, of(state, req), outputs)
    request: Request = replace(of(state, req), status=status, **more)
    return updated(state, request)

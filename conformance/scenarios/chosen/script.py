"""Words to write scenarios with."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from ropecheck.conformance.scenario.operations import Accept, Build, Operation, Scenario, Submit
from ropecheck.conformance.scenario.words import decode, draft, draft_extend, extend, verify, window
from ropecheck.spec.history import History, Run, image, text, video

WIDE = image(1, 4, 6)
"""2 x 3 tokens: height and width differ. delta -3."""
TALL = image(1, 8, 4)
"""4 x 2 tokens. delta -4."""
LINE = image(1, 2, 10)
"""1 x 5 tokens: one row. delta 0, the rows differ all the same."""
CLIP = video(3, 4, 6)
"""3 frames of 2 x 3 tokens. delta -15."""
LONG = video(12, 4, 4)
"""12 frames of 2 x 2: time is the longest axis. delta -36."""

PROMPTS: Mapping[str, History] = MappingProxyType(
    {
        "text": (text(5),),
        "image": (text(2), WIDE, text(3)),
        "video": (text(1), CLIP, text(2)),
        "long video": (text(2), LONG, text(2)),
        "two images": (text(2), WIDE, text(3), TALL, text(1)),
        "adjacent images": (text(1), WIDE, TALL, text(2)),
        "image first": (WIDE, text(4)),
        "image last": (text(3), TALL),
        "image alone": (WIDE,),
        "one row": (text(2), LINE, text(1)),
        "image then video": (text(1), TALL, text(1), CLIP, text(1)),
    }
)
"""Prompts by name; all deltas differ enough to tell a request's own from its neighbour's."""


def scenario(name: str, note: str, *ops: Operation | Iterable[Operation], family: str = "qwen2_vl") -> Scenario:
    """A scenario whose forwards are all built twice."""
    flat: list[Operation] = []
    for op in ops:
        if isinstance(op, Iterable):
            flat.extend(op)
        else:
            flat.append(op)
    return Scenario(name=name, note=note, ops=tuple(flat), family=family, repeat=True)


def submit(*prompts: History) -> list[Operation]:
    """Requests 0, 1, .. with these prompts."""
    return [Submit(req, prompt) for req, prompt in enumerate(prompts)]


def prefill(*reqs: int) -> Build:
    """One forward that prefills all that is left of these requests."""
    return extend(tuple(window(req) for req in reqs))


def answer(*reqs: int) -> list[Operation]:
    """Prefill all that is left of these requests, then decode a token of each."""
    return [prefill(*reqs), decode(reqs)]


def running(*prompts: History) -> list[Operation]:
    """Requests 0, 1, .. that have been prefilled together and have emitted their first token."""
    return [*submit(*prompts), prefill(*range(len(prompts)))]


def chain(nodes: int) -> tuple[int, ...]:
    """The parents of a chain of `nodes` nodes, root included."""
    return tuple(range(nodes - 1))


def spec_round(
    reqs: tuple[int, ...], steps: int = 3, accepted: Iterable[int] = (), path: str = "caller"
) -> list[Operation]:
    """One speculative round with a chain: draft, verify, draft extend, accept."""
    nodes = steps + 1
    return [
        draft(reqs, num_steps=steps, path=path),
        verify(reqs, tuple(chain(nodes) for _ in reqs), path=path),
        draft_extend(reqs, nodes),
        *(Accept(req, tokens) for req, tokens in zip(reqs, accepted, strict=False)),
    ]


def replies(req: int, tokens: int) -> list[Operation]:
    """Decode until the request has emitted `tokens` tokens (the prefill emitted the first)."""
    return [decode((req,)) for _ in range(tokens - 1)]


def media(run: Run, before: int = 1, after: int = 1) -> History:
    """A turn with one media run between text."""
    return (text(before), run, text(after))

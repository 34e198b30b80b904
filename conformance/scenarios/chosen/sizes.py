"""Sizes at which kernels break: block edges of batches, draft tokens and windows. For a GPU; slow interpreted.

Positions near the int32 limit and empty batches reach no engine by a request: `device.checks` has them.
"""

from ropecheck.conformance.scenario.operations import Operation, Scenario, Submit
from ropecheck.conformance.scenario.words import decode, draft, draft_extend, extend, verify, window
from ropecheck.conformance.scenarios.chosen.script import PROMPTS, chain, media, prefill, running, scenario
from ropecheck.spec.history import History, image, text

BATCHES = (1, 2, 127, 128, 129, 1024)
NODES = (2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 48, 63, 64)
WINDOWS = (1, 511, 512, 513, 1023, 1024, 1025, 1536, 2049)
KINDS = ("text", "media", "mixed")

_MEDIA = ("image", "video", "two images", "image last", "long video")


def scenarios() -> list[Scenario]:
    """Every size, with text-only, media-only and mixed batches."""
    out: list[Scenario] = []
    for kind in KINDS:
        out += [_batch(rows, kind) for rows in BATCHES]
        out += [_nodes(nodes, kind) for nodes in NODES]
        out += [_windows(kind), _trees(kind), _shrinking(kind)]
    return out


def prompts(rows: int, kind: str) -> list[History]:
    """Prompts of a batch; neighbours differ in length, and with media in delta."""
    words: list[History] = [(text(3 + row % 5),) for row in range(rows)]
    pictures = [PROMPTS[_MEDIA[row % len(_MEDIA)]] for row in range(rows)]
    if kind == "text":
        return words
    if kind == "media":
        return pictures
    return [pictures[row] if row % 3 == 1 else words[row] for row in range(rows)]


def _batch(rows: int, kind: str) -> Scenario:
    reqs = tuple(range(rows))
    return scenario(
        f"sizes: batch {rows}, {kind}",
        "A grid of one program per request, or of a block of them.",
        running(*prompts(rows, kind)),
        decode(reqs),
        *_round(reqs, 4),
        decode(tuple(reversed(reqs))),
    )


def _nodes(nodes: int, kind: str) -> Scenario:
    reqs = (0, 1, 2)
    return scenario(
        f"sizes: {nodes} draft tokens, {kind}",
        "A block of the next power of two, masked.",
        running(*prompts(3, kind)),
        *_round(reqs, nodes),
    )


def _round(reqs: tuple[int, ...], nodes: int) -> list[Operation]:
    """Draft, verify and draft extend as the engine's callers choose, with host lengths and without."""
    chains = tuple(chain(nodes) for _ in reqs)
    return [
        draft(reqs, num_steps=min(nodes, 6), path="fused"),
        verify(reqs, chains, path="fused"),
        verify(reqs, chains, path="direct"),
        draft(reqs, num_steps=min(nodes, 6), path="fused", host_lengths=False),
        verify(reqs, chains, path="fused", host_lengths=False),
        draft_extend(reqs, nodes, host_lengths=False, path="fused"),
        draft_extend(reqs, nodes, host_lengths=True),
    ]


def _trees(kind: str) -> Scenario:
    reqs = tuple(range(5))
    return scenario(
        f"sizes: trees, {kind}",
        "The tree builder, with several branches a node.",
        running(*prompts(5, kind)),
        draft(reqs, num_steps=4, topk=4, path="fused"),
        verify(reqs, tuple((0, 0, 1, 1) for _ in reqs), topk=2, path="fused"),
        verify(reqs, tuple((0, 0, 0, 0, 1, 1, 2, 3) for _ in reqs), topk=4, path="fused"),
        verify(reqs, tuple((0, 0, 1, 1, 2, 2, 3, 3) for _ in reqs), topk=4, path="fused"),
        verify(reqs, tuple((0, 1, 1, 2) for _ in reqs), topk=2, path="fused"),
    )


def _windows(kind: str) -> Scenario:
    """Windows around multiples of 512: whole prompts together, then one prompt in chunks of such widths."""
    pictured = [kind == "media" or (kind == "mixed" and row % 2 == 1) for row in range(len(WINDOWS))]
    whole = [_long(width, picture) for width, picture in zip(WINDOWS, pictured, strict=True)]
    long = len(WINDOWS)
    ops: list[Operation] = [Submit(req, prompt) for req, prompt in enumerate([*whole, _long(6000, pictured[-1])])]
    ops.append(extend(tuple(window(req) for req in range(long)), kernel=True))
    ops += [extend((window(long, width),), kernel=True) for width in (512, 511, 1, 513, 1024, 1025)]
    ops += [prefill(long), decode(tuple(range(long + 1)))]
    return scenario(f"sizes: windows, {kind}", "A program of 512 tokens a step; its last step is partial.", ops)


def _long(tokens: int, picture: bool) -> History:
    if not picture or tokens < 500:
        return (text(tokens),)
    grid = image(1, 40, 36)  # 20 x 18 tokens
    return media(grid, 100, tokens - 100 - 360)


def _shrinking(kind: str) -> Scenario:
    many = tuple(range(130))
    return scenario(
        f"sizes: graph buffers, large then small, {kind}",
        "Replay with a smaller batch after a larger one.",
        running(*prompts(130, kind)),
        decode(many, buffer="graph", buffer_rows=160),
        decode(many[:3], buffer="graph", buffer_rows=160),
        decode(many[:1], buffer="graph", buffer_rows=4),
        verify(many, tuple(chain(3) for _ in many), path="direct", buffer="graph", buffer_rows=160),
        verify(many[:2], (chain(3), chain(3)), path="direct", buffer="graph", buffer_rows=160),
        *(draft(many[:rows], num_steps=3, topk=2, buffer="graph", buffer_rows=160) for rows in (130, 3, 1)),
        *(draft_extend(many[:rows], 4, buffer="graph", buffer_rows=160) for rows in (130, 3, 1)),
        decode(many[:5], buffer="dp", buffer_rows=160),
    )

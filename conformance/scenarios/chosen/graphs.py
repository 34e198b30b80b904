"""Wider buffers: CUDA-graph static buffers that persist over a scenario, and data-parallel padding."""

from collections.abc import Iterator
from typing import Any

from ropecheck.conformance.scenario.operations import Operation, Scenario
from ropecheck.conformance.scenario.words import decode, draft, draft_extend, verify
from ropecheck.conformance.scenarios.chosen.script import PROMPTS, chain, running, scenario
from ropecheck.spec.history import text, video

RUNNERS = {
    "draft": ("graph", ""),
    "frozen-KV draft": ("frozen_kv", ""),
    "draft extend": ("", "graph"),
    "multi-layer draft extend": ("", "multi_layer"),
}
"""Whose buffers -> the padding of a draft, of a draft extend."""


MANY = running(PROMPTS["image"], PROMPTS["video"], PROMPTS["text"], PROMPTS["two images"])


def loaded(name: str, note: str, *ops: Operation) -> Scenario:
    """Four requests that run, and what is loaded of them."""
    return scenario(name, note, MANY, *ops)


def scenarios() -> list[Scenario]:
    return [*_target(), *(one for name, pads in RUNNERS.items() for one in _draft(name, *pads))]


def _target() -> list[Scenario]:
    graph: dict[str, Any] = {"buffer": "graph", "buffer_rows": 4}
    other_rank: dict[str, Any] = {"buffer": "dp", "buffer_rows": 4}
    three, four = chain(3), chain(4)
    return [
        loaded("graph decode, padded", "Three requests in a graph of four.", decode((0, 1, 2), **graph)),
        loaded(
            "graph decode, small after large",
            "Nothing of the larger batch is left in the padding.",
            decode((0, 1, 2, 3), **graph),
            decode((3,), **graph),
        ),
        loaded(
            "graph decode, text after media",
            "A text-only batch after one with media.",
            decode((0, 1), **graph),
            decode((2,), **graph),
        ),
        loaded(
            "graph verify, padded",
            "Verify of two requests in a graph of four.",
            verify((0, 2), (three, three), path="direct", **graph),
        ),
        loaded("data-parallel decode, padded", "Padded to a busier rank's batch.", decode((0, 2), **other_rank)),
        scenario(
            "data-parallel decode and verify, far positions padded",
            "A long prompt and a slow clip, in rows that a busier rank makes wider.",
            running((text(5000), video(2, 2, 2, 40_000.0), text(1)), PROMPTS["text"]),
            decode((0, 1), **other_rank),
            verify((0, 1), (three, three), **other_rank),
            family="qwen2_5_vl",
        ),
        loaded(
            "data-parallel decode of text, padded",
            "Text-only batches have three rows to pad as well.",
            decode((2,), buffer="dp", buffer_rows=3),
        ),
        loaded(
            "graph verify, small after large",
            "Nothing of the larger tree batch is left in the padding.",
            verify((0, 1, 3), (four, four, four), **graph),
            verify((1,), (four,), **graph),
            verify((2,), (four,), buffer="graph", buffer_rows=2),
        ),
        loaded(
            "graph decode and verify, exactly full",
            "A batch of the captured size has no padding, after a padded one and before one.",
            decode((0, 1), **graph),
            decode((0, 1, 2, 3), **graph),
            verify((0, 1, 2, 3), tuple(chain(2) for _ in range(4)), **graph),
            decode((2,), **graph),
        ),
        loaded(
            "data-parallel verify, padded",
            "Every rank verifies as many requests as the busiest.",
            verify((0, 2), (three, three), **other_rank),
        ),
    ]


def _draft(name: str, of_draft: str, of_extend: str) -> Iterator[Scenario]:
    """A runner of the draft model, with static buffers of its own."""

    def load(*reqs: int, size: int = 4, topk: int = 1, path: str = "caller") -> Operation:
        if of_draft:
            return draft(reqs, num_steps=3, topk=topk, path=path, buffer=of_draft, buffer_rows=size)
        return draft_extend(reqs, 4, path=path, buffer=of_extend, buffer_rows=size)

    yield loaded(f"graph {name}, padded", "Two requests in a graph of four.", load(0, 2))
    large = "Nothing of the larger batch is left in the padding."
    yield loaded(f"graph {name}, small after large", large, load(0, 1, 2, 3), load(3), load(1, size=2))
    text = "A text-only batch after one with media."
    yield loaded(f"graph {name}, text after media", text, load(0, 1), load(2), load(2, size=1))
    full = "A batch of the captured size has no padding, after a padded one and before one."
    yield loaded(f"graph {name}, exactly full", full, load(1), load(0, 1, 2, 3), load(2, 3, size=2), load(2, size=2))
    yield loaded(
        f"graph {name}, given by hand",
        "The batch constructor's own batch, and the fused one, in the same buffers.",
        load(0, 1, 2, path="direct"),
        load(2, path="fused"),
        load(3, path="direct"),
    )
    if of_draft:
        wide = "A graph of four requests is eight columns wide."
        loads = load(0, 1, 2, topk=2), load(3, topk=2), load(0, 1, topk=2, size=2)
        yield loaded(f"graph {name}, two branches", wide, *loads)

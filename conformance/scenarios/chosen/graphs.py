"""Wider buffers: CUDA-graph static buffers that persist over a scenario, and data-parallel padding."""

from __future__ import annotations

from ropecheck.conformance.scenario.operations import Operation, Scenario
from ropecheck.conformance.scenario.words import decode, draft, draft_extend, verify
from ropecheck.conformance.scenarios.chosen.script import PROMPTS, chain, running, scenario

RUNNERS = {
    "draft": ("graph", ""),
    "frozen-KV draft": ("frozen_kv", ""),
    "draft extend": ("", "graph"),
    "multi-layer draft extend": ("", "multi_layer"),
}
"""Whose buffers -> the padding of a draft, of a draft extend."""


def scenarios() -> list[Scenario]:
    return [*_target(), *_drafts()]


def _target() -> list[Scenario]:
    many = running(PROMPTS["image"], PROMPTS["video"], PROMPTS["text"], PROMPTS["two images"])
    return [
        scenario(
            "graph decode, padded",
            "Three requests in a graph of four.",
            many,
            decode((0, 1, 2), buffer="graph", buffer_rows=4),
        ),
        scenario(
            "graph decode, small after large",
            "Nothing of the larger batch is left in the padding.",
            many,
            decode((0, 1, 2, 3), buffer="graph", buffer_rows=4),
            decode((3,), buffer="graph", buffer_rows=4),
        ),
        scenario(
            "graph decode, text after media",
            "A text-only batch after one with media.",
            many,
            decode((0, 1), buffer="graph", buffer_rows=4),
            decode((2,), buffer="graph", buffer_rows=4),
        ),
        scenario(
            "graph verify, padded",
            "Verify of two requests in a graph of four.",
            many,
            verify((0, 2), (chain(3), chain(3)), path="direct", buffer="graph", buffer_rows=4),
        ),
        scenario(
            "data-parallel decode, padded",
            "Padded to a busier rank's batch.",
            many,
            decode((0, 2), buffer="dp", buffer_rows=4),
        ),
        scenario(
            "data-parallel decode of text, padded",
            "Text-only batches have three rows to pad as well.",
            many,
            decode((2,), buffer="dp", buffer_rows=3),
        ),
        scenario(
            "graph verify, small after large",
            "Nothing of the larger tree batch is left in the padding.",
            many,
            verify((0, 1, 3), (chain(4), chain(4), chain(4)), buffer="graph", buffer_rows=4),
            verify((1,), (chain(4),), buffer="graph", buffer_rows=4),
            verify((2,), (chain(4),), buffer="graph", buffer_rows=2),
        ),
        scenario(
            "graph decode and verify, exactly full",
            "A batch of the captured size has no padding, after a padded one and before one.",
            many,
            decode((0, 1), buffer="graph", buffer_rows=4),
            decode((0, 1, 2, 3), buffer="graph", buffer_rows=4),
            verify((0, 1, 2, 3), tuple(chain(2) for _ in range(4)), buffer="graph", buffer_rows=4),
            decode((2,), buffer="graph", buffer_rows=4),
        ),
        scenario(
            "data-parallel verify, padded",
            "Every rank verifies as many requests as the busiest.",
            many,
            verify((0, 2), (chain(3), chain(3)), buffer="dp", buffer_rows=4),
        ),
    ]


def _drafts() -> list[Scenario]:
    """The runners of the draft model, each with static buffers of its own."""
    many = running(PROMPTS["image"], PROMPTS["video"], PROMPTS["text"], PROMPTS["two images"])
    out = []
    for name, pads in RUNNERS.items():

        def load(
            *reqs: int, size: int = 4, topk: int = 1, path: str = "caller", pads: tuple[str, str] = pads
        ) -> Operation:
            of_draft, of_extend = pads
            if of_draft:
                return draft(reqs, num_steps=3, topk=topk, path=path, buffer=of_draft, buffer_rows=size)
            return draft_extend(reqs, 4, path=path, buffer=of_extend, buffer_rows=size)

        out += [
            scenario(f"graph {name}, padded", "Two requests in a graph of four.", many, load(0, 2)),
            scenario(
                f"graph {name}, small after large",
                "Nothing of the larger batch is left in the padding.",
                many,
                load(0, 1, 2, 3),
                load(3),
                load(1, size=2),
            ),
            scenario(
                f"graph {name}, text after media",
                "A text-only batch after one with media.",
                many,
                load(0, 1),
                load(2),
                load(2, size=1),
            ),
            scenario(
                f"graph {name}, exactly full",
                "A batch of the captured size has no padding, after a padded one and before one.",
                many,
                load(1),
                load(0, 1, 2, 3),
                load(2, 3, size=2),
                load(2, size=2),
            ),
            scenario(
                f"graph {name}, given by hand",
                "The batch constructor's own batch, and the fused one, in the same buffers.",
                many,
                load(0, 1, 2, path="direct"),
                load(2, path="fused"),
                load(3, path="direct"),
            ),
        ]
        if pads[0]:
            out.append(
                scenario(
                    f"graph {name}, two branches",
                    "A graph of four requests is eight columns wide.",
                    many,
                    load(0, 1, 2, topk=2),
                    load(3, topk=2),
                    load(0, 1, topk=2, size=2),
                )
            )
    return out

"""Wider buffers: CUDA-graph static buffers that persist over a scenario, and data-parallel padding."""

from __future__ import annotations

from conformance.scenarios.script import PROMPTS, chain, running, scenario
from reference.operations import Decode, Scenario, Verify


def scenarios() -> list[Scenario]:
    many = running(PROMPTS["image"], PROMPTS["video"], PROMPTS["text"], PROMPTS["two images"])
    return [
        scenario(
            "graph decode, padded",
            "Three requests in a graph of four.",
            many,
            Decode((0, 1, 2), pad="graph", pad_batch=4),
        ),
        scenario(
            "graph decode, small after large",
            "Nothing of the larger batch is left in the padding.",
            many,
            Decode((0, 1, 2, 3), pad="graph", pad_batch=4),
            Decode((3,), pad="graph", pad_batch=4),
        ),
        scenario(
            "graph decode, text after media",
            "A text-only batch after one with media.",
            many,
            Decode((0, 1), pad="graph", pad_batch=4),
            Decode((2,), pad="graph", pad_batch=4),
        ),
        scenario(
            "graph verify, padded",
            "Verify of two requests in a graph of four.",
            many,
            Verify((0, 2), (chain(3), chain(3)), path="direct", pad="graph", pad_batch=4),
        ),
        scenario(
            "data-parallel decode, padded",
            "Padded to a busier rank's batch.",
            many,
            Decode((0, 2), pad="dp", pad_batch=4),
        ),
        scenario(
            "data-parallel decode of text, padded",
            "Text-only batches have three rows to pad as well.",
            many,
            Decode((2,), pad="dp", pad_batch=3),
        ),
    ]

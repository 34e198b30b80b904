"""Requests that come and go, and the modes that read no request's history: idle and diffusion blocks."""

from __future__ import annotations

from ropecheck.conformance.scenarios.chosen.script import PROMPTS, prefill, running, scenario, submit
from ropecheck.reference.operations import Abort, Block, Decode, Extend, Finish, Idle, Scenario, Window
from ropecheck.spec.history import text


def scenarios() -> list[Scenario]:
    return [
        scenario("idle", "A rank without requests gets tables of width 0.", Idle()),
        scenario(
            "idle between decodes",
            "The idle forward leaves nothing behind.",
            running(PROMPTS["image"]),
            Decode((0,)),
            Idle(),
            Decode((0,)),
        ),
        scenario("idle, padded to a busy rank", "Padding must find three rows to widen.", Idle(pad_batch=4)),
        scenario(
            "a large batch, then a small one",
            "Nothing of the larger batch is left.",
            running(PROMPTS["image"], PROMPTS["video"], PROMPTS["text"], PROMPTS["two images"]),
            Decode((0, 1, 2, 3)),
            Decode((2,)),
            Decode((3,)),
        ),
        scenario(
            "media leave the batch",
            "When the media requests have finished, text decodes alone.",
            running(PROMPTS["image"], PROMPTS["text"], PROMPTS["video"]),
            Decode((0, 1, 2)),
            Finish(0),
            Abort(2),
            Decode((1,)),
        ),
        scenario(
            "a late arrival",
            "A media request joins a batch of text.",
            submit(PROMPTS["text"], PROMPTS["image"]),
            prefill(0),
            Decode((0,)),
            prefill(1),
            Decode((0, 1)),
            Decode((1, 0)),
        ),
        scenario(
            "extend padded to the other ranks",
            "Data-parallel padding of an extend with media.",
            submit(PROMPTS["image"], PROMPTS["text"]),
            Extend((Window(0), Window(1)), pad="dp", pad_tokens=24),
        ),
        scenario("diffusion block", "One block of text; 1-D only.", submit((text(8),)), Block((0,), (1,), 4)),
        scenario(
            "diffusion blocks of two requests",
            "Blocks at unequal offsets.",
            submit((text(8),), (text(12),)),
            Block((0, 1), (0, 2), 4),
        ),
    ]

"""Requests that come and go, and the modes that read no request's history: idle and diffusion blocks."""

from ropecheck.conformance.scenario.operations import Abort, Finish, Scenario
from ropecheck.conformance.scenario.words import block, decode, extend, idle, window
from ropecheck.conformance.scenarios.chosen.script import PROMPTS, answer, prefill, running, scenario, submit
from ropecheck.spec.history import text


def scenarios() -> list[Scenario]:
    return [
        scenario("idle", "A rank without requests gets tables of width 0.", idle()),
        scenario(
            "idle between decodes",
            "The idle forward leaves nothing behind.",
            running(PROMPTS["image"]),
            decode((0,)),
            idle(),
            decode((0,)),
        ),
        scenario("idle, padded to a busy rank", "Padding must find three rows to widen.", idle(4)),
        scenario(
            "a large batch, then a small one",
            "Nothing of the larger batch is left.",
            running(PROMPTS["image"], PROMPTS["video"], PROMPTS["text"], PROMPTS["two images"]),
            decode((0, 1, 2, 3)),
            decode((2,)),
            decode((3,)),
        ),
        scenario(
            "media leave the batch",
            "When the media requests have finished, text decodes alone.",
            running(PROMPTS["image"], PROMPTS["text"], PROMPTS["video"]),
            decode((0, 1, 2)),
            Finish(0),
            Abort(2),
            decode((1,)),
        ),
        scenario(
            "a late arrival",
            "A media request joins a batch of text.",
            submit(PROMPTS["text"], PROMPTS["image"]),
            answer(0),
            prefill(1),
            decode((0, 1)),
            decode((1, 0)),
        ),
        scenario(
            "extend padded to the other ranks",
            "Data-parallel padding of an extend with media.",
            submit(PROMPTS["image"], PROMPTS["text"]),
            extend((window(0), window(1)), buffer="dp", buffer_tokens=24),
        ),
        scenario("diffusion block", "One block of text; 1-D only.", submit((text(8),)), block((0,), (4,), 4)),
        scenario(
            "diffusion blocks of two requests",
            "Blocks at unequal offsets.",
            submit((text(8),), (text(12),)),
            block((0, 1), (0, 8), 4),
        ),
    ]

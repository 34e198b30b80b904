"""Extend, mixed, decode: whole prompts, chunks and prefix hits around media."""

from collections.abc import Iterator

from ropecheck.conformance.scenario.operations import Retract, Scenario
from ropecheck.conformance.scenario.words import decode, extend, mixed, window
from ropecheck.conformance.scenarios.chosen.script import (
    CLIP,
    PROMPTS,
    TALL,
    WIDE,
    answer,
    prefill,
    running,
    scenario,
    submit,
)
from ropecheck.spec.history import Run, text, video


def scenarios() -> list[Scenario]:
    return [*_alone(), *_chunks(), *_hits(), *_batches(), *_mixed()]


def _alone() -> Iterator[Scenario]:
    for name, prompt in PROMPTS.items():
        note = "One request alone: its whole prompt, then three decodes."
        yield scenario(f"extend and decode, {name}", note, running(prompt), [decode((0,))] * 3)


def _chunks() -> Iterator[Scenario]:
    prompt = PROMPTS["two images"]  # 2 text, 6 media, 3 text, 8 media, 1 text
    for cut, where in (
        (1, "in the text before"),
        (2, "at the first image's start"),
        (5, "inside the first image"),
        (8, "at the first image's end"),
        (9, "between the images"),
        (14, "inside the second image"),
        (19, "before the last token"),
    ):
        yield scenario(
            f"chunk cut {where}",
            "A cut changes which columns are read, never their values.",
            submit(prompt),
            extend((window(0, cut),)),
            answer(0),
        )
    yield scenario(
        "chunks of one token",
        "Every cut at once: each column is read alone.",
        submit(PROMPTS["image"]),
        [extend((window(0, 1),)) for _ in range(10)],
        answer(0),
    )
    yield scenario(
        "chunks through a video",
        "Each later chunk starts at another place of the video's block.",
        submit((text(1), CLIP, text(2))),
        extend((window(0, 4),)),
        extend((window(0, 7),)),
        answer(0),
    )
    yield scenario(
        "a chunk beside whole prompts",
        "One request is cut short while two others fit.",
        submit(PROMPTS["image"], PROMPTS["text"], PROMPTS["video"]),
        extend((window(0), window(1), window(2, 6))),
        prefill(2),
        decode((0, 1, 2)),
    )


def _hits() -> Iterator[Scenario]:
    for hit, where in (
        (1, "before the image"),
        (2, "at the image's start"),
        (4, "inside the image"),
        (8, "at the image's end"),
        (10, "just before the last token"),
    ):
        yield scenario(
            f"prefix hit {where}",
            "The first uncached token's column depends on media inside the cached prefix.",
            submit(PROMPTS["image"]),
            extend((window(0, hit=hit),)),
            decode((0,)),
        )
    yield scenario(
        "prefix hit, then chunks",
        "The rest after a hit is itself cut, inside the second image.",
        submit(PROMPTS["two images"]),
        extend((window(0, 7, hit=4),)),
        answer(0),
    )
    yield scenario(
        "prefix hits of unequal length",
        "Two requests with one prompt but different cached parts, and a text request.",
        submit(PROMPTS["image"], PROMPTS["image"], PROMPTS["text"]),
        extend((window(0, hit=3), window(1, hit=9), window(2, hit=2))),
        decode((0, 1, 2)),
    )


def _batches() -> list[Scenario]:
    every = tuple(PROMPTS.values())
    return [
        *(
            scenario(f"every prompt in one batch{order}", note, running(*prompts), decode(tuple(range(len(prompts)))))
            for order, note, prompts in (
                ("", "Unequal deltas and text in one extend, then one decode.", every),
                (", reversed", "The same batch in another order.", every[::-1]),
            )
        ),
        scenario(
            "decode beside a neighbour of another delta",
            "Each row gets its own delta; text rows none.",
            running(PROMPTS["text"], PROMPTS["image"], PROMPTS["long video"]),
            decode((0, 1, 2)),
            decode((2, 0)),
            decode((1,)),
            decode((1, 2, 0)),
        ),
        scenario(
            "decode of many text requests",
            "The text-only path of a multimodal model.",
            running(*((text(n),) for n in (1, 2, 3, 7))),
            decode((0, 1, 2, 3)),
            decode((3, 1)),
        ),
        scenario(
            "a prompt of one token",
            "The shortest window.",
            running((text(1),)),
            decode((0,)),
        ),
        scenario(
            "1-D extend kernel",
            "The engine's Triton kernel for the 1-D table, interpreted on a CPU.",
            submit(PROMPTS["image"], PROMPTS["text"]),
            extend((window(0, hit=3), window(1)), kernel=True),
        ),
        scenario(
            "1-D extend kernel across blocks",
            "Windows longer than the kernel's block of 512.",
            submit((text(1025),), (text(513),), (text(1),)),
            extend((window(0, hit=512), window(1), window(2)), kernel=True),
        ),
        scenario(
            "split prefill",
            "Windows of a split prefill are those of extend.",
            submit(PROMPTS["image"], PROMPTS["text"]),
            extend((window(0, hit=4), window(1)), mode="split_prefill"),
        ),
        scenario(
            "split prefill in chunks, after a retraction",
            "Unequal deltas, a chunk, and outputs prefilled again.",
            submit(PROMPTS["image"], PROMPTS["video"]),
            extend((window(0, 5), window(1)), mode="split_prefill"),
            extend((window(0),), mode="split_prefill"),
            decode((0, 1)),
            Retract(0),
            extend((window(0, hit=11),), mode="split_prefill"),
        ),
        scenario(
            "split prefill of text",
            "Split prefill without media.",
            submit((text(4),)),
            extend((window(0),), mode="split_prefill"),
        ),
        scenario(
            "qwen2.5 video with fractional intervals",
            "Time steps of 1.5 seconds at two tokens a second.",
            running((text(2), _timed(4, 1.5), text(2))),
            decode((0,)),
            family="qwen2_5_vl",
        ),
        scenario(
            "qwen2.5 video with half-second intervals",
            "Frames share a position on the time axis pairwise or not at all.",
            running((text(1), _timed(5, 0.25), text(1)), (text(3), _timed(2, 4.0))),
            decode((0, 1)),
            family="qwen2_5_vl",
        ),
    ]


def _mixed() -> list[Scenario]:
    return [
        scenario(
            "mixed, image chunk beside decodes",
            "A window inside the image, decodes with and without media.",
            submit(PROMPTS["image"], PROMPTS["text"], (text(1), TALL, WIDE)),
            prefill(0, 1),
            mixed((window(2, 5),), (0, 1)),
            mixed((window(2),), (1, 0)),
            decode((0, 1, 2)),
        ),
        scenario(
            "mixed, text chunk beside a media decode",
            "Only the decoding row has a delta.",
            submit(PROMPTS["video"], (text(6),)),
            prefill(0),
            mixed((window(1, 3),), (0,)),
            mixed((window(1),), (0,)),
            decode((0, 1)),
        ),
        scenario(
            "mixed, media chunk beside a text decode",
            "Only the window has media.",
            submit(PROMPTS["text"], PROMPTS["image"]),
            prefill(0),
            mixed((window(1, 6),), (0,)),
            mixed((window(1),), (0,)),
        ),
        scenario(
            "mixed, text only",
            "No media at all.",
            submit((text(3),), (text(4),)),
            prefill(0),
            mixed((window(1, 2),), (0,)),
            mixed((window(1),), (0,)),
        ),
        scenario(
            "mixed, prefix hit inside the image",
            "The window starts inside the image.",
            submit(PROMPTS["text"], PROMPTS["image"]),
            prefill(0),
            mixed((window(1, hit=5),), (0,)),
            decode((1, 0)),
        ),
        scenario(
            "mixed, several windows and decodes",
            "Unequal deltas on both sides.",
            submit(PROMPTS["image"], PROMPTS["long video"], PROMPTS["two images"], PROMPTS["text"]),
            prefill(0, 1),
            mixed((window(3), window(2, 9)), (1, 0)),
            mixed((window(2),), (0, 3, 1)),
            decode((0, 1, 2, 3)),
        ),
    ]


def _timed(frames: int, seconds: float) -> Run:
    return video(frames, 4, 6, seconds)

"""The rotary embedding over real tables: every layout of sections over prompts whose rows differ, and over text."""

from collections.abc import Iterator

from ropecheck.conformance.scenario.operations import Finish, Open, Rotate, Scenario, Submit, Turn
from ropecheck.conformance.scenarios.chosen.script import PROMPTS, media, prefill, replies, running, scenario
from ropecheck.reference.rotary import LAYOUTS, LONGEST
from ropecheck.spec.history import image, text, video

WHOLE = tuple(name for name, layout in LAYOUTS.items() if layout.longest == LONGEST and name != "cycled")
"""Layouts with more positions prepared than any prompt here reaches; GLM-V's, whose kernel a CPU interprets, has one
scenario of its own."""

NAMES = ("text", "two images", "image then video", "long video")


def scenarios() -> list[Scenario]:
    return list(_all())


def _all() -> Iterator[Scenario]:
    for name in NAMES:
        for layout in WHOLE:
            yield scenario(
                f"rotary {layout}, {name}",
                "Each pair of a head is turned by its own row of the table.",
                Submit(0, PROMPTS[name]),
                Rotate(0, layout),
            )
    for layout, tokens in zip(WHOLE, (1024, 513, 257, 33, 65, 129, 66, 34), strict=True):
        yield scenario(
            f"rotary {layout}, {tokens} tokens",
            "More tokens than a program of a kernel turns at once.",
            Submit(0, (text(tokens),)),
            Rotate(0, layout),
        )
        yield scenario(
            f"rotary {layout}, far positions",
            "Few tokens at large positions: a video whose frames are seconds apart.",
            Submit(0, (text(10), video(40, 4, 4, 40.0), text(5))),
            Rotate(0, layout),
            family="qwen2_5_vl",
        )
    for layout in ("interleaved", "partial"):
        yield scenario(
            f"rotary {layout}, a fused kernel",
            "A model's kernel that norms query and key turns them as well, by all three rows.",
            Submit(0, PROMPTS["image"]),
            Rotate(0, layout, "fused"),
        )
    yield scenario(
        "rotary cycled, an interpreted kernel",
        "GLM-V's sections, by the kernel that a GPU runs and by its tensor version.",
        Submit(0, PROMPTS["image"]),
        Rotate(0, "cycled"),
    )
    yield scenario(
        "rotary short, positions ahead of the tokens",
        "Four tokens, admitted by their number; the clip's second step sits behind all positions prepared.",
        Submit(0, (text(1), video(2, 2, 2, 16.0), text(1))),
        Rotate(0, "short"),
        family="qwen2_5_vl",
    )
    yield scenario(
        "rotary short, the last position",
        "As many tokens as positions.",
        Submit(0, (text(32 - 2),)),
        Rotate(0, "short"),
    )
    yield scenario(
        "rotary, generated text",
        "Columns behind the prompt table: all rows equal, and shifted by delta.",
        running(PROMPTS["two images"]),
        replies(0, 3),
        Rotate(0),
    )
    yield scenario(
        "rotary, a session's second image",
        "The table of a whole conversation.",
        Open(0),
        Turn(0, 0, PROMPTS["image"]),
        prefill(0),
        replies(0, 2),
        Finish(0),
        Turn(0, 1, media(image(1, 8, 4)), parent=0),
        Rotate(1, "interleaved"),
    )

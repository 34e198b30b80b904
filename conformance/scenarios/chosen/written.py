"""A request that writes an image: its table knows the columns of what it will write, and a decode reads them there."""

from ropecheck.conformance.scenario.operations import Scenario, Submit
from ropecheck.conformance.scenario.words import decode, extend, window
from ropecheck.conformance.scenarios.chosen.script import scenario
from ropecheck.spec.history import image, text

PROMPT = (text(2), image(1, 2, 3), text(2))
AHEAD = (image(1, 3, 2), text(1))
"""Seven tokens: an image of 3 x 2 and its end marker."""


def scenarios() -> list[Scenario]:
    alone = (Submit(0, PROMPT, ahead=AHEAD), extend((window(0),)))
    beside = (Submit(0, PROMPT, ahead=AHEAD), Submit(1, (text(3),)), Submit(2, PROMPT, ahead=AHEAD))
    return [
        scenario(
            "an image written to its end",
            "Decodes read the table, to its very last column.",
            *alone,
            *[decode((0,)) for _ in range(7)],
            family="glm_image",
        ),
        scenario(
            "images written beside text",
            "Tables that know what comes, of one decode with a request that has none.",
            *beside,
            extend((window(0), window(1), window(2))),
            *[decode((0, 1, 2)) for _ in range(3)],
            family="glm_image",
        ),
    ]

"""A prompt-table case read from disk: everything that would make it illegal is told before it runs."""

import math

from ropecheck.conformance.families import routes
from ropecheck.conformance.families.case import Case, expected, step
from ropecheck.conformance.families.layout import Segment
from ropecheck.conformance.families.torn import TEARS
from ropecheck.conformance.scenario.legal import LARGEST, WIDEST
from ropecheck.spec.families import FAMILIES
from ropecheck.spec.history import OutOfDomain

BUILDERS = ("rope_index", "rope_index without a rate", "processor", "offsets", *routes.BUILDERS)
TORN = ("", *TEARS)


def refuse_wrong(case: Case) -> None:
    """Raises OutOfDomain, naming the field, for a case that cannot be asked."""
    for field, value, known in (
        ("family", case.family, FAMILIES),
        ("builder", case.builder, BUILDERS),
        ("torn", case.torn, TORN),
    ):
        if value not in known:
            raise OutOfDomain(f"unknown {field} {value!r} - at `$.{field}`")
    if not case.prompts:
        raise OutOfDomain("no prompt - at `$.prompts`")
    _refuse_large(case)
    try:
        expected(case)
        step(case)
    except OutOfDomain as error:
        raise OutOfDomain(f"not legal: {error} - at `$.prompts`") from None


def _refuse_large(case: Case) -> None:
    """What is outside the limits; nothing of the case has been laid out yet."""
    total = 0
    for number, prompt in enumerate(case.prompts):
        for place, segment in enumerate(prompt):
            where = f"$.prompts[{number}][{place}]"
            sizes = {"tokens": segment.tokens, "features": segment.features}
            sizes |= {f"grid[{axis}]": size for axis, size in enumerate(segment.grid or ())}
            sizes |= {f"pixels[{axis}]": size for axis, size in enumerate(segment.pixels or ())}
            for field, size in sizes.items():
                if not 0 <= size <= LARGEST:
                    raise OutOfDomain(f"{size} is not in 0 .. {LARGEST} - at `{where}.{field}`")
            if not 0 <= segment.seconds <= LARGEST:
                raise OutOfDomain(f"{segment.seconds} is not in 0 .. {LARGEST} - at `{where}.seconds`")
            total += segment.tokens + segment.features + math.prod(segment.grid or segment.pixels or (0,))
    if total > LARGEST or len(case.prompts) > WIDEST:
        said = f"{len(case.prompts)} prompts of {total} tokens, frames and patches"
        raise OutOfDomain(f"{said}; at most {WIDEST} of {LARGEST} - at `$.prompts`")


def described(case: Case) -> str:
    """The case's prompts in words."""
    prompts = [", ".join(map(_segment, prompt)) or "nothing" for prompt in case.prompts]
    torn = f" ({case.torn})" if case.torn else ""
    return " | ".join(prompts) + torn


def _segment(segment: Segment) -> str:
    if segment.kind == "text":
        return f"{segment.tokens} text"
    words = [segment.kind]
    if segment.grid is not None:
        words.append(" x ".join(map(str, segment.grid)))
    if segment.pixels is not None:
        words.append("{} x {} pixels".format(*segment.pixels))
    if segment.kind in ("video", "track"):
        words.append(f"at {segment.seconds:g} s")
    if segment.features:
        words.append(f"{segment.features} mel frames")
    return " ".join(words)

"""A prompt-table case read from disk: everything that would make it illegal is told before it runs."""

from __future__ import annotations

from ropecheck.conformance.families.case import Case, expected, step
from ropecheck.conformance.families.layout import Segment
from ropecheck.conformance.families.torn import TEARS
from ropecheck.spec.families import FAMILIES
from ropecheck.spec.history import OutOfDomain
from ropecheck.spec.rules import all_rules

BUILDERS = ("rope_index", "processor", "offsets")
TORN = ("", *TEARS)


def problem_of(case: Case) -> str:
    """What is wrong with a case, naming the field; "" for a legal one."""
    for field, value, known in (
        ("family", case.family, FAMILIES),
        ("rule", case.rule, all_rules()),
        ("builder", case.builder, BUILDERS),
        ("torn", case.torn, TORN),
    ):
        if value not in known:
            return f"unknown {field} {value!r} - at `$.{field}`"
    if not case.prompts:
        return "no prompt - at `$.prompts`"
    for number, prompt in enumerate(case.prompts):
        for place, segment in enumerate(prompt):
            if segment.tokens < 0 or segment.features < 0:
                return f"a negative length - at `$.prompts[{number}][{place}]`"
    try:
        expected(case)
        step(case)
    except OutOfDomain as error:
        return f"not legal: {error} - at `$.prompts`"
    return ""


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
    if segment.kind in ("video", "track"):
        words.append(f"at {segment.seconds:g} s")
    if segment.features:
        words.append(f"{segment.features} mel frames")
    return " ".join(words)

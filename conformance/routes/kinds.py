"""What a token of an expanded prompt is."""

from ropecheck.conformance.families.case import Case
from ropecheck.conformance.families.fields import MARKERS

KINDS = ("text", "image", "video", "audio", "word")
"""By the number that the protocol has for it. "word": text of the client's own."""


def sent_kinds(case: Case) -> tuple[int, ...]:
    """The kinds of a route's message, as the suite lays it out."""
    laid = case.laid[0]
    inside = {at for _, start, stop in laid.items for at in range(start, stop)}
    tokens = enumerate(zip(laid.ids, laid.kinds, strict=True))
    return tuple(4 if at not in inside and token not in MARKERS else kind for at, (token, kind) in tokens)

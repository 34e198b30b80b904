"""What a token of an expanded prompt is."""

from collections.abc import Iterable

from ropecheck.conformance.families.case import Case
from ropecheck.conformance.families.fields import MARKERS

KINDS = ("text", "image", "video", "audio", "word")
"""By the number that the protocol has for it. "word": text of the client's own."""

WORD = KINDS.index("word")


def without_words(kinds: Iterable[int]) -> tuple[int, ...]:
    """The same kinds where a client's word is text as any other."""
    return tuple(0 if kind == WORD else kind for kind in kinds)


def sent_kinds(case: Case) -> tuple[int, ...]:
    """The kinds of a route's message, as the suite lays it out."""
    laid = case.laid[0]
    inside = {at for _, start, stop in laid.items for at in range(start, stop)}
    tokens = enumerate(zip(laid.ids, laid.kinds, strict=True))
    return tuple(WORD if at not in inside and token not in MARKERS else kind for at, (token, kind) in tokens)

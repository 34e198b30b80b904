"""Whose state is whose, and which cached values are still fresh."""

from __future__ import annotations

from ropecheck.spec.history import Delta
from ropecheck.spec.rules import Violation, rule
from ropecheck.spec.views import Bystander, HeldState

STATE = "definition: a saved turn, a sibling and a batch are read, not owned, by what is built from them"
"""Where the rules come from."""


@rule(
    "ownership.parent_unchanged",
    of=Bystander,
    source=STATE,
    when=lambda one: one.parent,
    bugs=("sglang #39145",),
)
def parent_unchanged(one: Bystander) -> Violation | None:
    """A new turn must leave the saved parent's media state untouched: table, delta, items, cached values.

    A streaming append may extend the parent's token array in place, and a text turn may share the parent's media
    object; neither alone is a fault.
    """
    return None if one.was == one.now else Violation(axis=one.field)


@rule(
    "ownership.others_unchanged",
    of=Bystander,
    source=STATE,
    when=lambda one: not one.parent,
    bugs=("transformers #39749", "mlx-vlm #1143", "sglang #8219"),
)
def others_unchanged(one: Bystander) -> Violation | None:
    """An operation on one request must leave the media state of every other request untouched.

    Siblings in a session, an aborted turn's parent, a retracted request's parent, and plain neighbours alike. A cached
    value that building a forward fills in is no change.
    """
    return None if one.was == one.now or one.filled else Violation(axis=one.field)


def cached_deltas(delta: Delta) -> frozenset[int]:
    """What a cache of the repeated delta holds: delta - 1 once per row, to be added to seq_len."""
    return frozenset((delta - 1,))


@rule(
    "freshness.delta_cache",
    of=HeldState,
    source=STATE,
    when=lambda held: held.delta_cache is not None,
    bugs=("sglang #19879", "sglang #39145", "transformers #36013"),
)
def delta_cache(held: HeldState) -> Violation | None:
    """A cached value derived from the delta must be that of the current delta, or empty."""
    assert held.delta_cache is not None
    right = cached_deltas(held.place.delta)
    found = frozenset(value for row in held.delta_cache.values for value in row)
    if found == right:
        return None
    return Violation(
        axis="delta_cache",
        expected=str(sorted(right)),
        observed=str(sorted(found)),
        shape="stale cache",
        message=f"caches {sorted(found)}, the delta is {held.place.delta}",
    )


def fill(prompt: tuple[int, ...], outputs: tuple[int, ...]) -> tuple[int, ...]:
    """What the next prefill reads: the padded prompt and the outputs."""
    return prompt + outputs


@rule(
    "freshness.fill_ids",
    of=HeldState,
    source=STATE,
    when=lambda held: held.moment == "scheduled" and not held.retracted and held.admitted,
    bugs=("sglang #38068",),
)
def fill_ids(held: HeldState) -> Violation | None:
    """The token ids of the next prefill must be the padded prompt and the outputs, rebuilt after every turn.

    Also when padding changed token values but not their number.
    """
    return tokens_are("fill_ids", fill(held.ids, held.outputs), held.fill_ids or ())


@rule(
    "freshness.padded_media",
    of=HeldState,
    source="public interface: placeholder tokens carry their item's pad value for the prefix cache",
    bugs=("sglang #38068", "sglang #33716"),
)
def padded_media(held: HeldState) -> Violation | None:
    """At any time every placeholder token of a request must hold a pad value, and every text token its own id."""
    if len(held.ids) != len(held.raw):
        return Violation(
            axis="ids",
            expected=len(held.raw),
            observed=len(held.ids),
            shape="wrong length",
            message=f"{len(held.ids)} padded tokens for {len(held.raw)}",
        )
    for at, (media, raw, seen) in enumerate(zip(held.media, held.raw, held.ids, strict=True)):
        if (seen == raw) == media:
            return Violation(
                axis="ids",
                at=at,
                expected="pad value" if media else raw,
                observed=seen,
                shape="raw placeholder left" if media else "text token changed",
                message=f"token {at} holds {seen}, raw {raw}",
            )
    return None


def tokens_are(axis: str, right: tuple[int, ...], found: tuple[int, ...]) -> Violation | None:
    """Whether a request's tokens are the ones that they must be."""
    if found == right:
        return None
    return Violation(
        axis=axis,
        expected=short(right),
        observed=short(found),
        shape=tokens_shape(right, found),
        message=f"{len(found)} tokens, must be the {len(right)} of prompt and outputs",
    )


def tokens_shape(right: tuple[int, ...], found: tuple[int, ...]) -> str:
    """How tokens are wrong: in their number before their values."""
    if len(found) == len(right):
        return "other tokens"
    return "too few tokens" if len(found) < len(right) else "too many tokens"


def short(ids: tuple[int, ...], most: int = 12) -> str:
    """ "[1, 2, ..]"."""
    shown = ", ".join(map(str, ids[:most]))
    return f"[{shown}{', ..' if len(ids) > most else ''}]"

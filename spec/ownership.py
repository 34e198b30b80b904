"""Whose state is whose, and which cached values are still fresh."""

from __future__ import annotations

from ropecheck.spec.history import Delta
from ropecheck.spec.rules import rule

STATE = "definition: a saved turn, a sibling and a batch are read, not owned, by what is built from them"
"""Where the rules come from."""


@rule("ownership.parent_unchanged", source=STATE, bugs=("sglang #39145",))
def parent_unchanged(before: object, after: object) -> bool:
    """A new turn must leave the saved parent's media state untouched: table, delta, items, cached values.

    A streaming append may extend the parent's token array in place, and a text turn may share the parent's media
    object; neither alone is a fault.
    """
    return before == after


@rule("ownership.others_unchanged", source=STATE, bugs=("transformers #39749", "mlx-vlm #1143", "sglang #8219"))
def others_unchanged(before: object, after: object) -> bool:
    """An operation on one request must leave the media state of every other request untouched.

    Siblings in a session, an aborted turn's parent, a retracted request's parent, and plain neighbours alike.
    """
    return before == after


@rule(
    "ownership.batch_is_read_only",
    source="public interface: the batch constructor says that it must not mutate its input",
    bugs=("transformers #39749",),
)
def batch_is_read_only(changed: tuple[str, ...]) -> bool:
    """Building a forward must change none of the batch's lengths, requests, media inputs, their tables and deltas.

    The lengths' sum and the repeated-delta cache may be filled in.
    """
    return not changed


@rule("freshness.delta_cache", source=STATE, bugs=("sglang #19879", "sglang #39145", "transformers #36013"))
def delta_cache(delta: Delta) -> tuple[int, int, int]:
    """A cached value derived from the delta must be that of the current delta, or empty.

    The cache holds delta - 1 once per row, to be added to seq_len.
    """
    return (delta - 1, delta - 1, delta - 1)


@rule("freshness.fill_ids", source=STATE, bugs=("sglang #38068",))
def fill_ids(prompt: tuple[int, ...], outputs: tuple[int, ...]) -> tuple[int, ...]:
    """The token ids of the next prefill must be the padded prompt and the outputs, rebuilt after every turn.

    Also when padding changed token values but not their number.
    """
    return prompt + outputs


@rule(
    "freshness.padded_media",
    source="public interface: placeholder tokens carry their item's pad value for the prefix cache",
    bugs=("sglang #38068", "sglang #33716"),
)
def padded(is_media: bool, raw: int, held: int) -> bool:
    """After padding every placeholder token must hold a pad value, and every text token its own id."""
    return held != raw if is_media else held == raw

"""Every rule that places a token is the ideal position function, at the indices that the rule is for.

The modes' `forward` functions place most tokens through those of extend and decode; here each mode's own is called.
"""

from __future__ import annotations

from collections.abc import Callable

from ropecheck.spec.modes.cells import Place

from ropecheck.conformance.prove.routes import request
from ropecheck.conformance.prove.statement import Theorem, World
from ropecheck.spec.history import Column, TokenIndex, ideal_column
from ropecheck.spec.modes import (
    decode,
    draft_decode,
    draft_extend_v2,
    extend,
    mixed,
    ragged_verify,
    split_prefill,
    target_verify,
)

Placing = Callable[[Place, TokenIndex], Column]

INSIDE: dict[str, Callable[[], Placing]] = {
    "extend.inside_table": lambda: extend.inside_table,
    "split_prefill.inside_table": lambda: split_prefill.inside_table,
    "mixed.inside_table": lambda: mixed.inside_table,
}
"""Rules for tokens of the prompt table. Looked up when asked for, as a caller would."""

PAST: dict[str, Callable[[], Placing]] = {
    "extend.past_table": lambda: extend.past_table,
    "split_prefill.past_table": lambda: split_prefill.past_table,
    "mixed.past_table": lambda: mixed.past_table,
    "mixed.decode_delta": lambda: mixed.decode_delta,
    "decode.delta_applies_once": lambda: decode.media_column,
    "draft_decode.delta_each_step": lambda: draft_decode.media_column,
    "target_verify.depth_plus_delta": lambda: target_verify.media_column,
    "ragged_verify.depth_plus_delta": lambda: ragged_verify.media_column,
    "draft_extend_v2.delta_applies_once": lambda: draft_extend_v2.media_column,
}
"""Rules for tokens after it."""

TEXT: dict[str, Callable[[], Callable[[TokenIndex, int], Column]]] = {
    "extend.text_only": lambda: extend.text_only,
    "split_prefill.text_only": lambda: split_prefill.text_only,
    "mixed.text_only": lambda: mixed.text_only,
    "decode.text_only": lambda: decode.text_only,
    "draft_decode.text_only": lambda: draft_decode.text_only,
    "target_verify.text_only": lambda: target_verify.text_only,
    "ragged_verify.text_only": lambda: ragged_verify.text_only,
    "draft_extend_v2.text_only": lambda: draft_extend_v2.text_only,
}
"""Rules for tokens of a request without media."""


def _inside(rule: str) -> Theorem:
    def inside(w: World) -> None:
        """A token of the prompt table has the ideal column."""
        place, index = request(w, "prompt", ("media",)).place, w.size("index")
        w.assume(index < place.tabulated)
        w.same(f"token {index}", INSIDE[rule]()(place, index), ideal_column(place.columns, index))

    return Theorem(rule=rule, statements=(inside,))


def _past(rule: str) -> Theorem:
    def past(w: World) -> None:
        """A token past the prompt table has the ideal column."""
        place, index = request(w, "prompt", ("media",)).place, w.size("index")
        w.assume(index >= place.tabulated)
        w.same(f"token {index}", PAST[rule]()(place, index), ideal_column(place.columns, index))

    return Theorem(rule=rule, statements=(past,))


def _text(rule: str) -> Theorem:
    def text(w: World) -> None:
        """A token of a request without media has the ideal column."""
        place, index = request(w, "prompt", ("text",)).place, w.size("index")
        w.same(f"token {index}", TEXT[rule]()(index, w.family.axes), ideal_column(place.columns, index))

    return Theorem(rule=rule, statements=(text,))


THEOREMS = (*map(_inside, INSIDE), *map(_past, PAST), *map(_text, TEXT))
"""What this file proves."""

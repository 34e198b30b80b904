"""Retraction: the scheduler takes a running request's memory back, and later prefills prompt and outputs again."""

from __future__ import annotations

from typing import TypeVar

from ropecheck.spec.held import column_text, table_is
from ropecheck.spec.ownership import tokens_are
from ropecheck.spec.rules import MROPE, Violation, rule
from ropecheck.spec.views import HeldState

T = TypeVar("T")

SCHEDULING = "definition: scheduling must not change what the model reads"
"""Where the rules come from."""


def history(prompt: tuple[T, ...], outputs: tuple[T, ...]) -> tuple[T, ...]:
    """What a retracted request is prefilled over again: its prompt and the outputs so far."""
    return prompt + outputs


@rule(
    "retraction.same_history",
    of=HeldState,
    source=SCHEDULING,
    when=lambda held: held.moment == "scheduled" and held.retracted and held.admitted,
)
def same_history(held: HeldState) -> Violation | None:
    """A retracted request must be prefilled again over its prompt and the outputs so far, each at the index it had."""
    return tokens_are("fill_ids", history(held.ids, held.outputs), held.fill_ids or ())


@rule(
    "retraction.table",
    of=HeldState,
    source=MROPE,
    when=lambda held: (
        held.moment == "scheduled" and held.retracted and (held.place.has_media or held.table is not None)
    ),
    bugs=("sglang #20916",),
)
def table(held: HeldState) -> Violation | None:
    """Every column that a retracted request's table gains for its outputs must be index + delta on all three rows.

    Also when the prompt ends with media, where the last column's rows differ: text continues after the largest.
    """
    return table_is(held)


@rule(
    "retraction.refused_attempts",
    of=HeldState,
    source=SCHEDULING,
    when=lambda held: (
        held.moment == "scheduled" and held.retracted and held.table is not None and held.table_before is not None
    ),
)
def refused_attempts(held: HeldState) -> Violation | None:
    """Being considered by the scheduler once more must not change a column that the request's table had, nor take the
    table past the request's own tokens.

    A decode reads a table that reaches its token, so columns for tokens that are not there yet are read later.
    """
    table, before = held.table, held.table_before
    assert table is not None and before is not None
    if len(table.shape) != 2 or len(before.shape) != 2:
        return None
    had, has, tokens = before.shape[1], table.shape[1], len(held.raw) + len(held.outputs)
    for at in range(min(had, has)):
        was, now = (tuple(row[at] for row in seen.values) for seen in (before, table))
        if was != now:
            return Violation(
                axis="table", at=at, expected=column_text(was), observed=column_text(now), shape="columns changed"
            )
    if has < had:
        return Violation(axis="table", expected=had, observed=has, shape="columns lost")
    if has > tokens:
        return Violation(
            axis="table",
            at=tokens,
            expected=tokens,
            observed=has,
            shape="table longer than the request",
            message=f"a table of {has} columns for a request of {tokens} tokens",
        )
    return None

"""What a request is, between any two forwards: its tokens, its delta, and whether it is still wanted."""

from __future__ import annotations

from ropecheck.spec.held import delta_is, spans_are, table_is
from ropecheck.spec.ownership import tokens_are
from ropecheck.spec.rules import MROPE, Violation, rule
from ropecheck.spec.views import HeldState, Standing

GENERATION = "definition: a request's history is its prompt and what was generated"
"""Where the rules come from."""


@rule("request.prompt", of=HeldState, source=GENERATION)
def prompt(held: HeldState) -> Violation | None:
    """A request must keep its prompt's tokens as its client sent them, beside the padded ones."""
    return tokens_are("unpadded_ids", held.raw, held.unpadded_ids)


@rule("request.outputs", of=HeldState, source=GENERATION)
def outputs(held: HeldState) -> Violation | None:
    """A request's outputs must be the tokens that were generated for it, in order, also after a retraction."""
    return tokens_are("output_ids", held.outputs, held.output_ids)


@rule("request.prefix_len", of=HeldState, source="public interface: prefix_len", when=lambda held: held.hit is not None)
def prefix_len(held: HeldState) -> Violation | None:
    """A request that is admitted must count as its prefix_len the tokens that the prefix cache holds of it."""
    if held.prefix_len == held.hit:
        return None
    message = f"prefix_len {held.prefix_len}, the cache holds {held.hit}"
    return Violation(
        axis="prefix_len", expected=held.hit, observed=held.prefix_len, shape="another prefix_len", message=message
    )


@rule(
    "request.delta",
    of=HeldState,
    source=MROPE,
    when=lambda held: held.moment != "turn" and (held.place.has_media or held.delta is not None),
)
def delta(held: HeldState) -> Violation | None:
    """A request must keep the one delta of its history: its table's maximum + 1 - P, whatever it has generated."""
    return delta_is(held)


@rule("request.media_spans", of=HeldState, source=GENERATION, when=lambda held: held.moment != "turn")
def media_spans(held: HeldState) -> Violation | None:
    """A request's media items must stay at their own placeholder tokens, whatever happens to it."""
    return spans_are(held)


@rule(
    "request.table",
    of=HeldState,
    source=MROPE,
    when=lambda held: (
        held.moment in ("scheduled", "computed")
        and not held.retracted
        and (held.place.has_media or held.table is not None)
    ),
)
def table(held: HeldState) -> Violation | None:
    """What a request holds as its table when it is prefilled must be its own history's columns, before and after."""
    return table_is(held)


@rule(
    "request.pad_values",
    of=HeldState,
    source="public interface: placeholder tokens carry pad values for the prefix cache",
    when=lambda held: held.ids_before is not None and len(held.ids) == len(held.ids_before) == len(held.raw),
)
def pad_values(held: HeldState) -> Violation | None:
    """A placeholder token must keep the pad value that it was given: the prefix cache knows the request by it."""
    before = held.ids_before or ()
    for start, stop in held.spans:
        for at in range(start, stop):
            if held.ids[at] != before[at]:
                return Violation(
                    axis="ids",
                    at=at,
                    expected=before[at],
                    observed=held.ids[at],
                    shape="another pad value",
                    message=f"token {at} holds {held.ids[at]}, it held {before[at]}",
                )
    return None


@rule(
    "request.aborted",
    of=Standing,
    source="public interface: a request ends when it is done or aborted",
    when=lambda one: not one.replaced,
)
def aborted(one: Standing) -> Violation | None:
    """A request that nobody aborted must not be aborted, and one that had to be refused must stay so.

    Replacing turns of a session may end those of them that still run.
    """
    if one.aborted == one.refused:
        return None
    verb = "aborted" if one.aborted else "taken up again"
    note = f": {one.note}" if one.note else ""
    return Violation(
        axis="aborted", expected=str(one.refused), observed=str(one.aborted), shape=verb, message=f"was {verb}{note}"
    )

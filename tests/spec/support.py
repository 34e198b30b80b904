"""Rules asked of a view by hand."""

from __future__ import annotations

from ropecheck.spec.rules import Violation, rules_of


def said(view: object) -> dict[str, Violation | None]:
    """What every rule that speaks of the view says of it."""
    return {rule.id: rule.check(view) for rule in rules_of(type(view)) if rule.when is None or rule.when(view)}


def broken(view: object) -> dict[str, Violation]:
    """The rules that it breaks, with how."""
    return {id: found for id, found in said(view).items() if found is not None}


def wrong(
    axis: str,
    expected: int | str | None = None,
    observed: int | str | None = None,
    shape: str = "",
    message: str = "",
    at: int | None = None,
) -> Violation:
    """A violation, in fewer words."""
    return Violation(axis=axis, at=at, expected=expected, observed=observed, shape=shape, message=message)

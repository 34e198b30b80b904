"""What a base version already did wrong: expected of the version that is compared with it."""

import msgspec

from ropecheck.conformance.judge.outcome import Failure, Outcome


class OnBase(msgspec.Struct, frozen=True):
    """Stands where a known-failure entry would: the base fails in the same way."""

    base: str

    @property
    def name(self) -> str:
        return f"base {self.base}"

    @property
    def reason(self) -> str:
        return "the base fails in the same scenario in the same way, number for number"

    @property
    def link(self) -> str:
        return "not caused by this change"


def same(one: Failure, other: Failure) -> bool:
    """Whether two versions fail alike at one place. Where in the engine an exception came from may have moved."""
    return (one.key, one.step, one.label, one.difference, one.observed) == (
        other.key,
        other.step,
        other.label,
        other.difference,
        other.observed,
    )


def alike(failure: Failure, other: Failure) -> bool:
    """Whether two failures are the same, number for number and word for word; where in a file it raised is left out."""
    return same(failure, other) and _said(failure) == _said(other)


def _said(failure: Failure) -> str:
    return failure.message.removesuffix(f" at {failure.where}")


def news(outcome: Outcome, base: Outcome) -> tuple[Failure, ...]:
    """The failures that the base does not have."""
    return tuple(one for one in outcome.failures if not any(same(one, other) for other in base.failures))


def otherwise(failure: Failure, base: Outcome) -> str:
    """How the base breaks the same rule in the same mode of this scenario; "" where it does not."""
    for other in base.failures:
        if (other.rule, other.mode) == (failure.rule, failure.mode):
            return f"{other.signature}: {other.message}"
    return ""

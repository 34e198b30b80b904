"""Worked examples of rules that no scenario asks: a slip planted in a builder's prompt table, or in an event stream."""

from collections.abc import Iterable
from functools import cache

import msgspec

from ropecheck.adapters import events
from ropecheck.conformance.families.case import Case
from ropecheck.conformance.judge.outcome import Failure
from ropecheck.conformance.routes.verdict import judge
from ropecheck.conformance.selftest import builder, stream

LONG = 60
"""Tokens of a prompt that is still read with ease; a longer one is taken where no shorter one shows the slip."""


class PlantedSlip(msgspec.Struct, frozen=True):
    """slip: it has name, says, like. case: the prompt that it was planted in; None for a stream. lines: the stream."""

    slip: builder.BuilderSlip | stream.StreamSlip
    failure: Failure
    case: Case | None = None
    lines: tuple[str, ...] = ()


@cache
def planted(rule: str) -> PlantedSlip | None:
    """The rule's own slip, with the failure that names it."""
    for one in stream.SLIPS:
        if one.rule == rule and (failure := _named(rule, one.wrong())):
            return PlantedSlip(one, failure, lines=_lines(one))
    for slip in builder.SLIPS:
        if slip.rule == rule:
            for case in _cases():
                given = slip.answer(case)
                if given is not None and (failure := _named(rule, judge(case, given).failures)):
                    return PlantedSlip(slip, failure, case)
    return None


def _named(rule: str, failures: Iterable[Failure]) -> Failure | None:
    return next((one for one in failures if one.rule == rule), None)


@cache
def _cases() -> tuple[Case, ...]:
    return tuple(sorted(builder.every_case(), key=lambda case: len(case.laid[0].ids) > LONG))


def _lines(slip: stream.StreamSlip) -> tuple[str, ...]:
    """The events of the stream, as a file holds them."""
    given = getattr(slip.wrong, "args", ((),))[0]
    return tuple(str(_text(one)) for one in given) if isinstance(given, tuple) else ()


def _text(event: events.Event) -> str:
    line = events.line(event)
    return (line.decode() if isinstance(line, bytes) else line).strip()

"""Which findings may have one cause, and which engine functions to read first: counting, not reasoning.

A function that ran for every wrong result and for few right ones is worth reading. Findings that share such a function
go on one card. It is a suspicion: the function may only be on the way to the mistake, and two mistakes in one function
share a card.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ropecheck.conformance.cards.card import EngineLine
from ropecheck.conformance.run.events import Finding, Summary

SHOWN = 5
"""Functions named on a card, at most."""
WORTH = 0.75
"""Of the best function's score: what comes with less is not named."""
OF_POSITIONS = 1.2
"""How much more a function counts that is named for positions: constructors and predicates run everywhere."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Findings that share a function; `function` is "" where nobody could tell what ran."""

    function: str
    findings: tuple[Finding, ...]


def causes(findings: Sequence[Finding], summary: Summary) -> list[Cause]:
    """The findings in groups, each by the function that tells it best from right results; the order is kept."""
    score = scores(summary)
    left = [finding for finding in findings if finding.ran]
    found: dict[int, Cause] = {}
    while left:
        best = max({name for finding in left for name in finding.ran}, key=lambda name: score(name, left))
        group = [finding for finding in left if best in finding.ran]
        found[id(group[0])] = Cause(best, tuple(group))
        left = [finding for finding in left if best not in finding.ran]
    alone = {id(finding): Cause("", (finding,)) for finding in findings if not finding.ran}
    return [{**found, **alone}[id(finding)] for finding in findings if id(finding) in {**found, **alone}]


def scores(summary: Summary) -> Callable[[str, Sequence[Finding]], tuple[float, int, str]]:
    """How much a function sets some findings apart from right results; larger is more. Among equals the innermost
    comes first: the one that was called last."""

    def score(name: str, findings: Sequence[Finding]) -> tuple[float, int, str]:
        own = [finding for finding in findings if name in finding.ran]
        wrong = len(own) / len(findings)
        right = summary.right_ran.get(name, 0) / max(summary.right_steps, 1)
        place = max((finding.ran.index(name) for finding in own), default=0)
        value = wrong / (wrong + right) * wrong**0.5 if wrong else 0.0
        if _of_positions(name):
            value *= OF_POSITIONS
        return round(value, 6), place, name

    return score


def engine_lines(findings: Sequence[Finding], summary: Summary) -> tuple[EngineLine, ...]:
    """The functions to read first for these findings."""
    traced = [finding for finding in findings if finding.ran]
    if not traced:
        return ()
    score = scores(summary)
    names = {name for finding in traced for name in finding.ran if "<locals>" not in name}
    if not names:
        return ()
    best = sorted(names, key=lambda name: score(name, traced), reverse=True)[:SHOWN]
    enough = WORTH * score(best[0], traced)[0]
    return tuple(_line(name, traced, summary) for name in best if score(name, traced)[0] >= enough)


def _of_positions(name: str) -> bool:
    function = name.partition(" ")[2].lower()
    return "position" in function or "rope" in function


def _line(name: str, findings: Sequence[Finding], summary: Summary) -> EngineLine:
    place, _, function = name.partition(" ")
    file, _, line = place.rpartition(":")
    wrong = sum(name in finding.ran for finding in findings)
    share = f"ran for {wrong} of {len(findings)} wrong results"
    if summary.right_steps:
        share += f" and in {summary.right_ran.get(name, 0)} of {summary.right_steps} right steps"
    return EngineLine(function=function, file=file, line=int(line) if line.isdigit() else 0, share=share)

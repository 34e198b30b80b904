"""What a scenario reached, as a set of names: what searches follow, and what a corpus keeps."""

from collections.abc import Iterator, Mapping, Sequence

from ropecheck.conformance.judge.outcome import Outcome

Lines = Mapping[str, Sequence[int]]
"""Engine file -> numbers of lines that ran."""


def features(outcome: Outcome, lines: Lines | None = None) -> frozenset[str]:
    """Rules checked, situations, engine functions, failures by (rule, mode, signature), and lines of the engine where
    the worker told them."""
    return frozenset(_all(outcome, lines or {}))


def _all(outcome: Outcome, lines: Lines) -> Iterator[str]:
    for rule, checked in outcome.checked.items():
        if checked:
            yield f"rule {rule}"
    for situation, times in outcome.situations.items():
        if times:
            yield f"situation {situation}"
    for mode, names in outcome.ran.items():
        for name in names:
            yield f"ran {mode} {name}"
    for failure in outcome.failures:
        yield f"failure {' / '.join(failure.key)}"
    for file, numbers in lines.items():
        for number in numbers:
            yield f"line {file}:{number}"

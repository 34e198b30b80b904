"""Sets of numbers as text: "1-3,7"."""

from collections.abc import Iterable

from ropecheck.conformance.figures.draw import stretches


def text_of(numbers: Iterable[int]) -> str:
    """The shortest text of a set of numbers of 0 or more."""
    return stretches(numbers, "-", ",")


def spans_of(text: str) -> list[tuple[int, int]]:
    """First and last of each stretch. Raises ValueError for a text that `text_of` does not write."""
    found = []
    for piece in text.split(",") if text else ():
        first, _, last = piece.partition("-")
        found.append((int(first), int(last or first)))
    return found


def both(one: str, other: str) -> str:
    """Both sets together, which may share numbers."""
    return text_of(n for first, last in spans_of(one) + spans_of(other) for n in range(first, last + 1))


def united(one: str, other: str) -> str:
    """Both sets together, without walking through them. Raises ValueError when they share a number."""
    spans: list[list[int]] = []
    for first, last in sorted(spans_of(one) + spans_of(other)):
        if spans and first <= spans[-1][1]:
            raise ValueError(f"{first} is in both")
        if spans and first == spans[-1][1] + 1:
            spans[-1][1] = last
        else:
            spans.append([first, last])
    return ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in spans)


def size(text: str) -> int:
    """How many numbers."""
    return sum(last - first + 1 for first, last in spans_of(text))


def holds(text: str, number: int) -> bool:
    """Whether the number is in the set."""
    return any(first <= number <= last for first, last in spans_of(text))

"""A counterexample, for a reader: within one screen."""

from collections.abc import Iterator

from ropecheck.conformance.prove.prover import Counterexample


def counterexample_lines(found: Counterexample) -> Iterator[str]:
    """What was to hold, the values, and the two sides."""
    yield f"{found.statement}: {found.says}"
    yield "does not hold for"
    width = max((len(name) for name in found.values), default=0)
    for name, value in found.values.items():
        yield f"  {name:{width}}  {value}"
    yield f"where {found.difference.what} is"
    yield f"  left   {found.difference.left}"
    yield f"  right  {found.difference.right}"

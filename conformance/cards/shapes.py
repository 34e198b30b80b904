"""What the shape of a wrong table says, and what has led to such tables before (`data/shapes.toml`)."""

from pathlib import Path

import msgspec

from ropecheck.conformance.cards.bugs import address
from ropecheck.conformance.errors import toml_of


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """One way to be wrong."""

    says: str
    """What the numbers are, in a sentence."""
    usually: str = ""
    """What has caused it before."""
    bugs: tuple[str, ...] = ()
    """Public bugs that looked like this, as rules name them."""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    shapes: dict[str, Shape]
    starts: dict[str, Shape]
    states: dict[str, str]
    places: dict[str, str]
    places_of: dict[str, str]


_FILE = toml_of(Path(__file__).parents[1] / "data" / "shapes.toml", _File)
SHAPES = _FILE.shapes
"""Signature -> what it says."""
STARTS = _FILE.starts
"""The same, by how a signature begins."""
STATES = _FILE.states
"""What a run calls things."""
PLACES = _FILE.places
"""Where a failure is seen, other than in a forward of a declared mode."""
PLACES_OF = _FILE.places_of
"""The same, by how the name begins."""


def shape(signature: str) -> Shape | None:
    """What is known of a signature; None when it has no description. What stands in brackets behind it says where."""
    found = SHAPES.get(signature.partition(" (")[0])
    if found is not None:
        return found
    return next((one for start, one in STARTS.items() if signature.startswith(start)), None)


def about(name: str) -> list[tuple[str, str]]:
    """A shape, a state or a place that is no forward mode, in labelled lines; [] for what is none of them."""
    if name in STATES:
        return [("state", name), ("means", STATES[name])]
    place = PLACES.get(name) or next((text for start, text in PLACES_OF.items() if name.startswith(start)), "")
    if place:
        return [("seen in", name), ("means", place)]
    found = shape(name)
    if found is None:
        return []
    lines = [("shape", name), ("says", f"{found.says}; it describes the numbers and asserts no cause")]
    if found.usually:
        lines.append(("before", f"seen with: {found.usually}"))
    lines += [("bug", f"{bug}: {address(bug)}") for bug in found.bugs]
    return lines

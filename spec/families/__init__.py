"""One file per model family's rule for media runs."""

from __future__ import annotations

from spec.families.qwen2_5_vl import QWEN2_5_VL
from spec.families.qwen2_vl import QWEN2_VL
from spec.history import Family, OutOfDomain

FAMILIES: dict[str, Family] = {family.name: family for family in (QWEN2_VL, QWEN2_5_VL)}
"""Every family by its name."""


def family(name: str) -> Family:
    """The family of that name. Raises OutOfDomain, naming the known ones."""
    found = FAMILIES.get(name)
    if found is None:
        raise OutOfDomain(f"unknown family {name!r}; known: {', '.join(sorted(FAMILIES))}")
    return found

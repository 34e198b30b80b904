"""The registry: every rule has an id (words), one *must* sentence, a source, and a place where it is stated.

A rule is a function (or a class of relations) in this package, marked with `@rule`. Its docstring's first paragraph is
the must sentence. The id's first word is the forward mode or the topic.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import TypeVar

F = TypeVar("F", bound=Callable[..., object])


ANY_DEVICE = ("cpu", "cuda")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One thing that must hold."""

    id: str
    must: str
    """One sentence with the word *must*."""
    note: str
    """The edge case that the rule settles; may be empty."""
    source: str
    """Where the definition comes from: a paper, a public interface, a public bug."""
    stated: str
    """module:function."""
    line: int
    bugs: tuple[str, ...] = field(default=())
    """Public bugs that broke it, by their thread."""
    devices: tuple[str, ...] = ANY_DEVICE
    """Devices on which it can be seen at all."""

    @property
    def topic(self) -> str:
        """The forward mode or topic that the rule belongs to."""
        return self.id.split(".", 1)[0]

    @property
    def only_on(self) -> str:
        """In words, the devices that show it; "" where any device does."""
        return "" if self.devices == ANY_DEVICE else f"seen on {', '.join(self.devices)} only"


_RULES: dict[str, Rule] = {}

MROPE = "arXiv 2409.12191 section 2.1 (M-RoPE)"
"""The paper that defines the three-row table and where text continues after media."""

SPECULATIVE = "arXiv 2401.15077 (EAGLE), 2404.16710 (tree verification): a token's position is its place in the text"
"""Speculation must not change where a token sits."""


def rule(
    id: str, *, source: str, bugs: tuple[str, ...] = (), devices: tuple[str, ...] = ANY_DEVICE
) -> Callable[[F], F]:
    """Register the decorated function as the rule `id`. Raises ValueError on a duplicate or a sentence without must."""

    def register(function: F) -> F:
        doc = inspect.cleandoc(function.__doc__ or "")
        must, _, note = doc.partition("\n\n")
        must = " ".join(must.split())
        if id in _RULES:
            raise ValueError(f"rule {id} is stated twice")
        if " must " not in f" {must} ":
            raise ValueError(f"rule {id}: the first paragraph must be one sentence with 'must'")
        code = inspect.unwrap(function)
        _RULES[id] = Rule(
            id=id,
            must=must,
            note=" ".join(note.split()),
            source=source,
            stated=f"{code.__module__}:{code.__qualname__}",
            line=inspect.getsourcelines(code)[1],
            bugs=bugs,
            devices=devices,
        )
        return function

    return register


@cache
def all_rules() -> dict[str, Rule]:
    """Every rule by id, sorted; imports the whole specification first."""
    from ropecheck import spec

    for module in pkgutil.walk_packages(spec.__path__, "ropecheck.spec."):
        importlib.import_module(module.name)
    return dict(sorted(_RULES.items()))

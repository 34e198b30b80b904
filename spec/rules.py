"""Rules: what must hold, and the code that decides.

A rule is one function, marked with `@rule`. Its docstring's first paragraph is one *must* sentence, the rest settles an
edge case; its body is asked by the judge. It gets a *view* of what an engine answered (spec/views.py) and says how the
view breaks the rule, or None. Nothing else in the suite decides: a report that names a rule names the code that judged.

    @rule("table.index", of=Row, source="...")
    def index(row: Row) -> Violation | None:
        "The 1-D table must hold each token's own index, ..."
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeVar

V = TypeVar("V")

ANY_DEVICE = ("cpu", "cuda")

MROPE = "arXiv 2409.12191 section 2.1 (M-RoPE)"
"""The paper that defines the three-row table and where text continues after media."""

SPECULATIVE = "arXiv 2401.15077 (EAGLE), 2404.16710 (tree verification): a token's position is its place in the text"
"""Speculation must not change where a token sits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """How a view breaks a rule: the first thing that is wrong, and its shape where the rule can name it."""

    axis: str
    """"1d", "t", "h", "w", or the name of a field ("delta", "table", "width", ..)."""
    at: int | None = None
    """Column of the view, or token; None where the field is one value."""
    expected: int | str | None = None
    observed: int | str | None = None
    shape: str = ""
    """Names what is wrong: "items missing", "wrong shape". "": the judge names it from the two tables."""
    message: str = ""
    """One line in numbers; "": the judge writes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One thing that must hold. `check` is the code that decides."""

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
    view: type[Any]
    """What it judges."""
    check: Callable[[Any], Violation | None]
    when: Callable[[Any], bool] | None = None
    """Views that it speaks of; None: every one."""
    bugs: tuple[str, ...] = ()
    """Public bugs that broke it, by their thread."""
    devices: tuple[str, ...] = ANY_DEVICE
    """Devices on which it can be seen at all."""

    @property
    def topic(self) -> str:
        """The id's first word."""
        return self.id.split(".", 1)[0]

    @property
    def only_on(self) -> str:
        """In words, the devices that show it; "" where any device does."""
        return "" if self.devices == ANY_DEVICE else f"seen on {', '.join(self.devices)} only"


_RULES: dict[str, Rule] = {}
_BY_VIEW: dict[type[Any], list[str]] = {}
_ASKED: dict[type[Any], tuple[Rule, ...]] = {}
"""What `rules_of` has said: it is asked of every view of a run."""
_CHANGES = [0]
"""How often a rule was added or replaced."""


def rule(
    id: str,
    *,
    of: type[V],
    source: str,
    when: Callable[[V], bool] | None = None,
    bugs: tuple[str, ...] = (),
    devices: tuple[str, ...] = ANY_DEVICE,
) -> Callable[[Callable[[V], Violation | None]], Callable[[V], Violation | None]]:
    """Register the decorated function as the rule `id`, which judges views of the class `of` for which `when` holds.

    Raises ValueError on a duplicate id or a sentence without *must*.
    """

    def register(function: Callable[[V], Violation | None]) -> Callable[[V], Violation | None]:
        doc = inspect.cleandoc(function.__doc__ or "")
        must, _, note = doc.partition("\n\n")
        must = " ".join(must.split())
        if id in _RULES:
            raise ValueError(f"rule {id} is stated twice")
        if " must " not in f" {must} ":
            raise ValueError(f"rule {id}: the first paragraph must be one sentence with 'must'")
        _RULES[id] = Rule(
            id=id,
            must=must,
            note=" ".join(note.split()),
            source=source,
            stated=f"{function.__module__}:{function.__qualname__}",
            line=inspect.getsourcelines(function)[1],
            view=of,
            check=function,
            when=when,
            bugs=bugs,
            devices=devices,
        )
        _BY_VIEW.setdefault(of, []).append(id)
        _changed()
        return function

    return register


@cache
def _everything() -> None:
    from ropecheck import spec

    for module in pkgutil.walk_packages(spec.__path__, "ropecheck.spec."):
        importlib.import_module(module.name)


def all_rules() -> Mapping[str, Rule]:
    """Every rule by id, sorted; imports the whole specification first."""
    _everything()
    return dict(sorted(_RULES.items()))


def rules_of(view: type[Any]) -> tuple[Rule, ...]:
    """The rules that judge views of this class, in the order of their statement."""
    found = _ASKED.get(view)
    if found is None:
        _everything()
        found = _ASKED[view] = tuple(_RULES[id] for id in _BY_VIEW.get(view, ()))
    return found


def replaced(id: str, check: Callable[[Any], Violation | None]) -> Callable[[], None]:
    """Put another body in a rule's place, for tests of the suite itself; the returned function puts it back."""
    old = _RULES[id]
    _RULES[id] = replace(old, check=check)
    _changed()

    def back() -> None:
        _RULES[id] = old
        _changed()

    return back


def changes() -> int:
    """How often a rule was added or replaced so far: what was found by fewer changes need not hold any more."""
    return _CHANGES[0]


def _changed() -> None:
    _ASKED.clear()
    _CHANGES[0] += 1

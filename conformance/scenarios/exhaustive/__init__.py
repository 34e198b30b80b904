"""The exhaustive driver: every scenario up to a bound, and a certificate that says which and how many."""

import hashlib
from collections.abc import Iterator

from ropecheck.conformance.errors import UsageError
from ropecheck.conformance.scenario.operations import Scenario
from ropecheck.conformance.scenarios.exhaustive.count import count_scope
from ropecheck.conformance.scenarios.exhaustive.modes import ModeScope, walk_modes
from ropecheck.conformance.scenarios.exhaustive.scopes import BOUNDS, DEFAULT_BOUND, AnyScope, SessionScope
from ropecheck.conformance.scenarios.exhaustive.turns import walk_turns
from ropecheck.conformance.scenarios.exhaustive.walk import walk

__all__ = ["BOUNDS", "DEFAULT_BOUND", "certificate", "count", "scopes", "sweep"]


def scopes(bound: str | None) -> tuple[AnyScope, ...]:
    """The scopes of a bound. Raises UsageError, naming the known bounds."""
    found = BOUNDS.get(bound or DEFAULT_BOUND)
    if found is None:
        raise UsageError(f"unknown bound {bound!r}; known: {', '.join(BOUNDS)}")
    return found


def sweep(bound: str | None = None) -> Iterator[Scenario]:
    """Every scenario of the bound, scope by scope, each once in its scope. Scopes overlap a little: a run checks what
    comes again once."""
    for scope in scopes(bound):
        if isinstance(scope, ModeScope):
            yield from walk_modes(scope)
        else:
            yield from walk_turns(scope) if isinstance(scope, SessionScope) else walk(scope)


def count(bound: str | None = None) -> int:
    """How many scenarios `sweep` yields, by a second way that builds none of them."""
    return sum(count_scope(scope) for scope in scopes(bound))


def certificate(bound: str | None, spec_hash: str) -> str:
    """The bound in words, the count by the second way, and a hash of both and the specification."""
    parts = [f"{scope.describe()}: {count_scope(scope)}" for scope in scopes(bound)]
    digest = hashlib.sha256("\n".join([spec_hash, *parts]).encode()).hexdigest()[:12]
    return f"{'; '.join(parts)} (each scope counted by itself; spec {spec_hash}, certificate {digest})"

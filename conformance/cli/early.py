"""The engine of `ropecheck check`, whose imports begin before the command line's own: they take the longest."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from ropecheck.conformance.run.warm import Warm
from ropecheck.conformance.targets.checkout import Checkout, target_of
from ropecheck.conformance.targets.registry import Target

_begun: list[Warm] = []


def begin() -> None:
    """Whatever checkout it will be: what is imported first is none of its own."""
    warm = Warm(target_of(Checkout(root=Path("/"), commit="", dirty=""), ""), Path(os.devnull))
    with suppress(OSError):  # it is told when the engine is asked for
        warm.begin()
        _begun.append(warm)


def warm_for(target: Target, log: Path) -> Warm:
    """The one that has begun, where it serves the target; a new one otherwise. log: where what it prints goes."""
    warm = _begun.pop() if _begun else Warm(target, log)
    if not warm.serves(target):
        warm.close()
        warm = Warm(target, log)
    warm.log_to(log)
    return warm

"""The engine of `check` and `run`, whose imports begin before the command line's own: they take the longest."""

import atexit
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ropecheck.conformance.run.warm import Warm
from ropecheck.conformance.targets.checkout import Checkout, target_of
from ropecheck.conformance.targets.registry import DEFAULT, Target, find

_begun: list[Warm] = []


def begin(arguments: Sequence[str]) -> None:
    """Of a check whatever checkout it will be: what is imported first is none of its own. Of a run the default target,
    on a CPU. Nothing for any other command line."""
    verb = arguments[0] if arguments else ""
    names_another = any(word.startswith(("--target", "--device")) for word in arguments)
    if {"--help", "-h"} & set(arguments) or verb not in ("check", "run") or (verb == "run" and names_another):
        return
    checkout = target_of(Checkout(root=Path("/"), commit="", dirty=""), "")
    warm = Warm(checkout if verb == "check" else find(DEFAULT, "cpu"), Path(os.devnull))
    with suppress(OSError):  # it is told when the engine is asked for
        warm.begin()
        _begun.append(warm)
        atexit.register(_end)


def warm_for(target: Target, log: Path) -> Warm | None:
    """The one that has begun, where it serves the target; it ends with this process. log: where what it prints goes."""
    for warm in _begun:
        if warm.serves(target):
            warm.log_to(log)
            return warm
    _end()
    return None


def _end() -> None:
    while _begun:
        _begun.pop().close()

"""Targets for campaigns, registered on import, also in the actors: references with a planted fault, and bad ones."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from ropecheck.conformance.targets.registry import Target, builtin, register_source

MUTANT = "decode one column short"
FAULTY, DEAD = "faulty", "dead"


def _targets() -> Iterable[Target]:
    (reference,) = (target for target in builtin() if target.name == "reference")
    yield Target(name=FAULTY, argv=(*reference.argv, "--mutant", MUTANT), offers=("forwards",))
    yield Target(name=DEAD, argv=(sys.executable, "-c", "raise SystemExit(1)"), offers=("forwards",))


register_source(_targets)

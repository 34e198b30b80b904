"""Targets for campaigns, registered on import, also in the actors: references with a planted fault, and bad ones. And
how many scenarios a seed draws, where the environment says so."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

from ropecheck.conformance.run import phases
from ropecheck.conformance.targets.registry import Target, builtin, register_source

MUTANT = "decode one column short"
FAULTY, DEAD = "faulty", "dead"


def _targets() -> Iterable[Target]:
    (reference,) = (target for target in builtin() if target.name == "reference")
    yield Target(name=FAULTY, argv=(*reference.argv, "--mutant", MUTANT), offers=("forwards",))
    yield Target(name=DEAD, argv=(sys.executable, "-c", "raise SystemExit(1)"), offers=("forwards",))


register_source(_targets)

FEW, VARIABLE = 16, "ROPECHECK_TEST_STATEFUL_COUNT"
if VARIABLE in os.environ:
    phases.STATEFUL_COUNT = int(os.environ[VARIABLE])

"""What a base came to, kept: the next check of the same base starts no engine for it."""

import contextlib
import hashlib
import json
import sys
from importlib import metadata
from pathlib import Path

import msgspec

from ropecheck.conformance.judge.outcome import Outcome
from ropecheck.conformance.store.files import write_atomic
from ropecheck.conformance.targets.provisioned import home, identity
from ropecheck.conformance.targets.registry import Target
from ropecheck.conformance.version import suite_hash

MOST = 4000
"""Outcomes kept of one base: those of a check, and of the candidates that shrinking asked for."""


def place_of(target: Target, device: str) -> Path | None:
    """Where a base's outcomes are kept: a file for each engine, suite and set of installed packages. None where it
    cannot be told that the engine is the same."""
    code = target.identity if target.source else identity(target.name)
    if not code or "+" in code:
        return None
    packages = sorted(f"{one.name} {one.version}" for one in metadata.distributions())
    known = json.dumps([suite_hash(), target.name, code, device, sys.version, packages])
    return home() / "bases" / f"{hashlib.sha256(known.encode()).hexdigest()[:16]}.answers"


def load(path: Path) -> dict[str, Outcome]:
    """Scenario id -> what is kept of its outcome; nothing where there is no such file, or a torn one."""
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return {one.scenario: one for one in msgspec.msgpack.decode(path.read_bytes(), type=list[Outcome])}
    return {}


def save(path: Path, outcomes: dict[str, Outcome]) -> None:
    """Keep the failures of those that could run. What cannot be kept only costs time."""
    kept = [Outcome(one.scenario, one.name, failures=one.failures) for one in outcomes.values() if not one.unrun]
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, msgspec.msgpack.encode(kept[:MOST]))

"""What a run of a target must reach, rule by mode and bound by bound: green that reached less is not green.

One file per target, version and device in `data/baseline`, written by `ropecheck run --write-baseline` from a run that
somebody has looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from ropecheck.conformance.errors import UsageError
from ropecheck.conformance.run.events import Summary
from ropecheck.conformance.scenario import dimensions
from ropecheck.conformance.store.files import pretty, write_atomic

FOLDER = Path(__file__).parents[1] / "data" / "baseline"
"""The baselines that ship with the suite."""

DRAWN = ("hypothesis", "stateful", "families", "scheduler")
"""Phases whose scenarios follow from the seed: a baseline speaks of seed 0."""

Reached = dict[str, dict[str, tuple[str, ...]]]
"""Phase -> rule -> modes in which it was asked; and under `dimensions.PREFIX` the bounds that were crossed."""


class Baseline(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a right run of this engine reaches."""

    target: str
    """The engine's own name."""
    version: str
    device: str
    phases: Reached
    entries: dict[str, dict[str, int]] = {}
    """Phase -> known failure or difference -> scenarios that show it."""


def path_of(target: str, version: str, device: str, folder: Path = FOLDER) -> Path:
    """The file of a target, version and device."""
    return folder / f"{target}-{version}-{device}.json"


def load(target: str, version: str, device: str, folder: Path = FOLDER) -> Baseline | None:
    """The baseline; None where nobody wrote one. Raises UsageError naming the file."""
    path = path_of(target, version, device, folder)
    try:
        return msgspec.json.decode(path.read_bytes(), type=Baseline)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.ValidationError, msgspec.DecodeError) as error:
        raise UsageError(f"{path}: no readable baseline ({error})") from error


def phase_key(phase: str, bound: str | None) -> str:
    """A sweep of another bound reaches other things."""
    return f"{phase} {bound}" if bound and phase == "exhaustive" else phase


def missing(summary: Summary, phases: Iterable[str], bound: str | None, baseline: Baseline) -> tuple[str, ...]:
    """What these phases reached in the baseline and not in this run: "phase: rule in mode", "phase: known .."."""
    out = []
    for phase in phases:
        here = summary.reached.get(phase, {})
        for rule, modes in baseline.phases.get(phase_key(phase, bound), {}).items():
            between = " " if rule == dimensions.PREFIX else " in "
            out += [f"{phase}: {rule}{between}{mode}" for mode in modes if mode not in here.get(rule, ())]
        counts = summary.entries.get(phase, {})
        for entry, most in baseline.entries.get(phase_key(phase, bound), {}).items():
            if (shown := counts[entry].shown if entry in counts else 0) < most:
                out.append(f"{phase}: known {entry} in {shown} scenarios, not {most}")
    return tuple(out)


def write(summary: Summary, bound: str | None, folder: Path = FOLDER) -> Path:
    """Keep what this run reached; phases that it did not run stay as they are in the file."""
    header = summary.header
    known = load(header.hello.target, header.hello.version, header.device, folder)
    phases: Reached = dict(known.phases) if known is not None else {}
    phases |= {phase_key(phase, bound): _sorted(rules) for phase, rules in summary.reached.items() if phase != "known"}
    entries = dict(known.entries) if known is not None else {}
    entries |= {
        phase_key(phase, bound): {name: counts.shown for name, counts in sorted(summary.entries.get(phase, {}).items())}
        for phase in summary.reached
        if phase != "known"
    }
    path = path_of(header.hello.target, header.hello.version, header.device, folder)
    kept = Baseline(
        target=header.hello.target,
        version=header.hello.version,
        device=header.device,
        phases=dict(sorted(phases.items())),
        entries=dict(sorted(entries.items())),
    )
    write_atomic(path, pretty(kept))
    return path


def _sorted(rules: Mapping[str, Iterable[str]]) -> dict[str, tuple[str, ...]]:
    return {rule: tuple(sorted(modes)) for rule, modes in sorted(rules.items())}

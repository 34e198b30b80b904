"""What a run of a target must reach, rule by mode and bound by bound: green that reached less is not green.

One file per target, version and device in `data/baseline`, written by `ropecheck run --write-baseline` from a run that
somebody has looked at. What a run reached has the same form, so that shards add up to what they are compared with.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ropecheck.conformance.errors import UsageError
from ropecheck.conformance.scenario import dimensions
from ropecheck.conformance.store.files import pretty, write_atomic

if TYPE_CHECKING:
    from ropecheck.conformance.run.events import Summary

FOLDER = Path(__file__).parents[1] / "data" / "baseline"
"""The baselines that ship with the suite."""

DRAWN = ("hypothesis", "stateful", "families", "scheduler")
"""Phases whose scenarios follow from the seed: a baseline speaks of seed 0."""


class Baseline(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a right run of this engine reaches, or what a run did."""

    target: str
    """The engine's own name."""
    version: str
    device: str
    phases: dict[str, dict[str, tuple[str, ...]]]
    """Phase -> rule -> modes in which it was asked; and under `dimensions.PREFIX` the bounds that were crossed."""
    entries: dict[str, dict[str, int]] = {}
    """Phase -> known failure or difference that applies -> scenarios that show it."""


def path_of(target: str, version: str, device: str) -> Path:
    """The file of a target, version and device."""
    return FOLDER / f"{target}-{version}-{device}.json"


def load(target: str, version: str, device: str) -> Baseline | None:
    """The baseline; None where nobody wrote one. Raises UsageError naming the file."""
    path = path_of(target, version, device)
    try:
        return msgspec.json.decode(path.read_bytes(), type=Baseline)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.ValidationError, msgspec.DecodeError) as error:
        raise UsageError(f"{path}: no readable baseline ({error})") from error


def reached(summary: Summary, phases: Iterable[str], bound: str | None) -> Baseline:
    """What these phases of a run reached, of those that a baseline can speak of with its seed."""
    header = summary.header
    listed = {one.name: 0 for one in header.known} | {one.name: 0 for one in header.differences}
    named = {_key(phase, bound): phase for phase in phases if header.seed == 0 or phase not in DRAWN}
    return Baseline(
        target=header.hello.target,
        version=header.hello.version,
        device=header.device,
        phases={key: _sorted(summary.reached.get(phase, {})) for key, phase in sorted(named.items())},
        entries={
            key: listed | {name: counts.shown for name, counts in sorted(summary.entries.get(phase, {}).items())}
            for key, phase in sorted(named.items())
        },
    )


def _key(phase: str, bound: str | None) -> str:
    """A sweep of another bound reaches other things."""
    return f"{phase} {bound}" if bound and phase == "exhaustive" else phase


def both(one: Baseline | None, other: Baseline | None) -> Baseline | None:
    """What two runs reached together; None where a baseline speaks of only one of them."""
    if one is None or other is None:
        return None
    phases, entries = {}, {}
    for phase in sorted({*one.phases, *other.phases}):
        rules, more = one.phases.get(phase, {}), other.phases.get(phase, {})
        phases[phase] = _sorted({rule: {*rules.get(rule, ()), *more.get(rule, ())} for rule in {*rules, *more}})
        shown, also = one.entries.get(phase, {}), other.entries.get(phase, {})
        entries[phase] = {name: shown.get(name, 0) + also.get(name, 0) for name in sorted({*shown, *also})}
    return msgspec.structs.replace(one, phases=phases, entries=entries)


def below(reach: Baseline) -> tuple[str, ...]:
    """What the committed baseline reaches in these phases and this does not: "phase: rule in mode", "phase: known ..".
    Of entries that a run does not list (another --known) nothing is asked. Raises UsageError for a baseline that
    cannot be read."""
    out: list[str] = []
    known = load(reach.target, reach.version, reach.device)
    if known is None:
        return ()
    for phase, here in reach.phases.items():
        for rule, modes in known.phases.get(phase, {}).items():
            between = " " if rule == dimensions.PREFIX else " in "
            out += [f"{phase}: {rule}{between}{mode}" for mode in modes if mode not in here.get(rule, ())]
        for entry, most in known.entries.get(phase, {}).items():
            if (shown := reach.entries.get(phase, {}).get(entry, most)) < most:
                out.append(f"{phase}: known {entry} in {shown} scenarios, not {most}")
    return tuple(out)


def below_lines(reach: Baseline | None, below: tuple[str, ...]) -> list[str]:
    """The same as a warning, if there is any."""
    if reach is None or not below:
        return []
    return [f"reached less than the baseline of {reach.target} {reach.version} ({len(below)}): {'; '.join(below)}"]


def write(reach: Baseline) -> Path:
    """Keep what a run reached; phases that it did not run stay as they are in the file."""
    shown = {phase: {name: n for name, n in counts.items() if n} for phase, counts in reach.entries.items()}
    reach = msgspec.structs.replace(reach, entries=shown)
    known = load(reach.target, reach.version, reach.device)
    if known is not None:
        phases, entries = known.phases | reach.phases, known.entries | reach.entries
        reach = msgspec.structs.replace(
            reach, phases=dict(sorted(phases.items())), entries=dict(sorted(entries.items()))
        )
    path = path_of(reach.target, reach.version, reach.device)
    write_atomic(path, pretty(reach))
    return path


def _sorted(rules: Mapping[str, Iterable[str]]) -> dict[str, tuple[str, ...]]:
    return {rule: tuple(sorted(modes)) for rule, modes in sorted(rules.items())}

"""Warnings: what a green run did not look at."""

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Protocol

from ropecheck.conformance.errors import toml_of
from ropecheck.conformance.families.case import TARGETS, families_of, offered
from ropecheck.conformance.known.failures import Known
from ropecheck.conformance.run.events import Header, Summary
from ropecheck.conformance.run.speaking import speaking
from ropecheck.conformance.scenario import dimensions
from ropecheck.conformance.scenario.forward import situations_of
from ropecheck.conformance.scripts.servers import made
from ropecheck.conformance.versions import newer_than_known, numbered
from ropecheck.spec.families import FAMILIES
from ropecheck.spec.modes import all_modes
from ropecheck.spec.rules import Rule, all_rules

POSITION_FUNCTIONS = Path(__file__).parents[1] / "data" / "position_functions.toml"


class Warn(Protocol):
    """Puts one line before people."""

    def __call__(self, message: str, loud: bool = False) -> None: ...


def unknown_modes(header: Header) -> tuple[str, ...]:
    """Engine forward modes that the adapter has never heard of."""
    hello = header.hello
    return tuple(mode for mode in hello.modes if mode not in hello.covered and mode not in hello.uncovered)


def before_run(header: Header, entries: Iterable[Known], early: Iterable[str], warn: Warn) -> None:
    """What is known once the workers said hello."""
    hello = header.hello
    for message in early:
        warn(message)
    if newer := newer_than_known(hello.target, hello.version):
        warn(newer)
    for mode in unknown_modes(header):
        warn(
            f"UNKNOWN FORWARD MODE {mode}: {hello.target} {hello.version} has it, the adapter does not know it, "
            "and nothing here checks it",
            loud=True,
        )
    if hello.lost:
        warn(
            f"LOST: {hello.target} {hello.version} is known to have {', '.join(hello.lost)}, and the adapter does not "
            "find it: what it would check is not checked",
            loud=True,
        )
    for mode, reason in sorted(hello.uncovered.items()):
        if mode in hello.modes:
            warn(f"forward mode {mode}: {reason}")
    if hello.not_driven:
        warn("not covered: " + "; ".join(f"{name} ({what})" for name, what in hello.not_driven.items()))
    ranged = any(known.entry.target == hello.target and known.entry.versions for known in entries)
    if ranged and not numbered(hello.version):
        warn(f"{hello.version!r} is no version number: known failures whose range has no end apply")


def expected_situations() -> tuple[str, ...]:
    """Every "mode x situation" that a complete run should reach."""
    return tuple(f"{mode.name} x {situation}" for mode in all_modes().values() for situation in situations_of(mode))


ROUTES = "routes not driven"
BOUNDS = "bounds never crossed"
NEVER = "rules never checked"
IN_A_MODE = "rules never checked in a mode"


def unreached(summary: Summary, asked: Container[str]) -> dict[str, tuple[str, ...]]:
    """What was never reached, by kind. asked: what the phases of the run need of a target."""
    device = summary.header.device
    never = [
        rule
        for rule in all_rules().values()
        if _needs(rule) in asked and not summary.rules.get(rule.id, [0])[0] and not _of_absent_family(rule, summary)
    ]
    return {
        NEVER: tuple(rule.id for rule in never if device in rule.devices),
        IN_A_MODE: _never_in_a_mode(summary) if "forwards" in asked else (),
        "rules that need a GPU": tuple(rule.id for rule in never if device not in rule.devices),
        "modes never reached": tuple(
            mode for mode in all_modes() if "forwards" in asked and not summary.modes.get(mode, [0])[0]
        ),
        "situations never reached": tuple(
            name for name in expected_situations() if "forwards" in asked and not summary.situations.get(name)
        ),
        BOUNDS: tuple(
            sorted(
                name
                for needs in ("forwards", "prompt_tables")
                for name in dimensions.every(needs, families_of(summary.header.hello.target))
                if needs in asked and not summary.situations.get(f"{dimensions.PREFIX} x {name}")
            )
        ),
        "modes that the scheduler never made": tuple(
            mode for mode in made() if "scheduler" in asked and not summary.modes.get(f"scheduler.{mode}", [0])[0]
        ),
        **functions_not_entered(summary),
        **(routes_not_driven(summary) if "routes" in asked else {ROUTES: ()}),
    }


def routes_not_driven(summary: Summary) -> dict[str, tuple[str, ...]]:
    """Of the ways to a table that the engine's source has, those that neither a route's case nor a scheduler's script
    took: by name, and those that cannot be taken here by reason."""
    every = summary.header.hello.routes
    missed = {name: name.replace("/", ".").replace(".py:", ":") for name in every if name not in summary.routes}
    missed = {name: place for name, place in missed.items() if not summary.functions.get(place)}
    reasons = Counter(filter(None, map(unreachable, missed.values())))
    return {
        ROUTES: tuple(f"{name} ({every[name]})" for name, place in missed.items() if not unreachable(place)),
        f"of {len(every)} routes, out of reach": tuple(f"{count} {reason}" for reason, count in reasons.items()),
    }


def functions_not_entered(summary: Summary) -> dict[str, tuple[str, ...]]:
    """Of the engine's functions that handle positions, those that no script entered: what can be reached, and what
    cannot here, by reason."""
    every = summary.functions
    missed = [name for name, entered in sorted(every.items()) if not entered]
    why = {name: unreachable(name) for name in missed}
    here = len(every) - sum(map(bool, why.values()))
    reasons = Counter(filter(None, why.values()))
    return {
        f"of {here} position functions that a CPU can enter, not entered by the scheduler": tuple(
            name for name in missed if not why[name]
        ),
        f"of {len(every)} position functions, out of a CPU's reach": tuple(
            f"{count} {reason}" for reason, count in reasons.items()
        ),
    }


@cache
def elsewhere() -> Mapping[str, str]:
    """Function, class or module of the engine -> why a scheduler with a toy model on a CPU does not enter it."""
    reasons = toml_of(POSITION_FUNCTIONS, dict[str, tuple[str, ...]])
    return {name: reason for reason, names in reasons.items() for name in names}


def unreachable(name: str) -> str:
    """Why a position function is not entered here: its own reason, its class's, or its module's; "" without one."""
    known, own = elsewhere(), name
    while own and own not in known:
        own = own[: max(own.rfind("."), own.rfind(":"), 0)]
    return known.get(own, "")


def _never_in_a_mode(summary: Summary) -> tuple[str, ...]:
    """Rules that speak of a mode that the target has and were not asked there. Of shards, what all of them say is what
    the whole run says."""
    lacking = {mode for mode, _ in summary.not_offered if not summary.modes.get(mode, [0])[0]}
    return tuple(
        f"{rule} x {mode}"
        for rule, mode in sorted(speaking(summary.header.device))
        if mode not in summary.by_mode.get(rule, ()) and mode not in lacking
    )


def unreached_lines(kinds: Mapping[str, Sequence[str]]) -> list[str]:
    """One warning per kind that has names. A rule that was never checked is not named again for every mode."""
    never = set(kinds.get(NEVER, ()))
    rest = tuple(name for name in kinds.get(IN_A_MODE, ()) if name.partition(" x ")[0] not in never)
    kinds = {**kinds, IN_A_MODE: rest}
    return [f"{kind} ({len(names)}): {', '.join(sorted(names))}" for kind, names in kinds.items() if names]


def _needs(rule: Rule) -> str:
    """What a phase that checks the rule needs of a target."""
    if rule.id == "families.route_layout" or rule.topic == "prefix":
        return "routes"
    if rule.topic in ("schedule", "live"):
        return {"schedule": "scheduler", "live": "live"}[rule.topic]
    return "prompt_tables" if rule.topic == "families" else "forwards"


def _of_absent_family(rule: Rule, summary: Summary) -> bool:
    """Whether the rule speaks of one model family, and the target has shown to offer none of its tables."""
    family = rule.id.split(".")[1]
    if rule.topic != "families" or family not in FAMILIES:
        return False
    mode, target = f"prompt_table.{family}", summary.header.hello.target
    declined = any(mode == name for name, _ in summary.not_offered)
    return mode not in summary.modes and (declined or (target in TARGETS and offered(family, target) != "checked"))


def not_offered_lines(counts: Mapping[tuple[str, str], int]) -> list[str]:
    """What the target lacks, and why: one line per reason. counts: (mode, reason) -> scenarios."""
    reasons: dict[str, list[str]] = {}
    for mode, reason in sorted(counts):
        reasons.setdefault(reason, []).append(mode)
    return [
        f"not offered: {', '.join(modes)}: {reason} ({sum(counts[mode, reason] for mode in modes)} scenarios)"
        for reason, modes in reasons.items()
    ]

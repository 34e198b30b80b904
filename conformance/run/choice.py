"""Which scenarios and rules a run is asked for."""

from dataclasses import dataclass

import msgspec

from ropecheck.adapters import protocol
from ropecheck.conformance.families.case import Case
from ropecheck.conformance.judge.outcome import Outcome
from ropecheck.conformance.plan.planner import plan
from ropecheck.conformance.scripts.script import Script
from ropecheck.conformance.subject import Subject
from ropecheck.spec.history import OutOfDomain


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Everything by default; each field that is set narrows it."""

    modes: frozenset[str] = frozenset()
    """Scenarios that run a forward of one of these."""
    rules: frozenset[str] = frozenset()
    """Only these rules count."""
    words: tuple[str, ...] = ()
    """All of them in the scenario's name; "not WORD": not in it."""

    def takes(self, scenario: Subject) -> bool:
        """Whether the scenario is to be run."""
        name = scenario.name.lower()
        for word in self.words:
            without = word.removeprefix("not ")
            if (without in name) is (without != word):
                return False
        return not self.modes or bool(self.modes & modes_of(scenario))

    def of(self, outcome: Outcome) -> Outcome:
        """The outcome with the chosen rules alone."""
        if not self.rules:
            return outcome
        return msgspec.structs.replace(
            outcome,
            checked={rule: count for rule, count in outcome.checked.items() if rule in self.rules},
            failures=tuple(failure for failure in outcome.failures if failure.rule in self.rules),
        )


EVERYTHING = Choice()


def modes_of(scenario: Subject) -> frozenset[str]:
    """The forward modes that a scenario runs, as the protocol calls them."""
    return frozenset(_modes(scenario))


def last_mode(scenario: Subject) -> str:
    """The last of them; "rotary" where a scenario only turns heads."""
    return ([*_modes(scenario)] or ["rotary"])[-1]


def _modes(scenario: Subject) -> list[str]:
    if isinstance(scenario, Case):
        return [scenario.mode]
    if isinstance(scenario, Script):
        return ["scheduler"]
    try:
        steps = plan(scenario).job.steps
    except OutOfDomain:
        return []
    forwards = (step.forward if isinstance(step, protocol.Cost) else step for step in steps)
    return [step.mode for step in forwards if isinstance(step, protocol.BuildForward)]


def words_of(expression: str) -> tuple[str, ...]:
    """ "media and not padded" -> ("media", "not padded")."""
    return tuple(word.strip().lower() for word in expression.split(" and ") if word.strip())

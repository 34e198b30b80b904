"""What an in-process check came to, rule by rule, and one screen of text for what is wrong."""

from __future__ import annotations

from dataclasses import dataclass, field

from ropecheck.conformance.judge.outcome import Failure, Outcome, Unrun
from ropecheck.conformance.report.failure_text import failure_lines
from ropecheck.conformance.report.render import as_text
from ropecheck.conformance.run.tally import size_of
from ropecheck.conformance.scenario.operations import Scenario

SHOWN = 2
"""Findings with their tables; a screen holds no more. The rest is named in a line each."""

LINES = 12
"""Of the findings that are only named."""

STATE_TOPICS = ("session", "retraction", "ownership", "freshness")


@dataclass(slots=True)
class Found:
    """All failures of one rule, mode and signature."""

    failure: Failure
    scenario: Scenario
    count: int = 1


@dataclass(slots=True)
class Ledger:
    """Counts."""

    scenarios: int = 0
    forwards: int = 0
    checked: dict[str, int] = field(default_factory=dict)
    """Rule -> times it was checked."""
    failures: dict[tuple[str, str, str], Found] = field(default_factory=dict)
    """(rule, mode, signature) -> the smallest scenario that shows it."""
    unrun: list[tuple[Scenario, Unrun]] = field(default_factory=list)
    not_offered: dict[tuple[str, str], int] = field(default_factory=dict)
    """(mode, reason) -> scenarios."""
    warnings: list[str] = field(default_factory=list)

    def add(self, scenario: Scenario, outcome: Outcome) -> None:
        """Count one scenario."""
        self.scenarios += 1
        self.forwards += outcome.forwards
        for rule, count in outcome.checked.items():
            self.checked[rule] = self.checked.get(rule, 0) + count
        for failure in outcome.failures:
            found = self.failures.get(failure.key)
            if found is None:
                self.failures[failure.key] = Found(failure, scenario)
                continue
            found.count += 1
            if size_of(scenario) < size_of(found.scenario):
                found.failure, found.scenario = failure, scenario
        self.unrun.extend((scenario, unrun) for unrun in outcome.unrun)
        for pair in set(outcome.not_offered):
            self.not_offered[pair] = self.not_offered.get(pair, 0) + 1

    def of_rule(self, rule: str) -> list[Found]:
        """The failures of one rule."""
        return [found for (name, _, _), found in sorted(self.failures.items()) if name == rule]

    def unrun_of(self, rule: str) -> bool:
        """Whether the adapter failed in a forward that the rule speaks of, so that a pass would say too much."""
        return bool(self.unrun) and rule.split(".", 1)[0] in ("table", "padding", "laws")

    def why_not(self, rule: str) -> str:
        """Why a rule was never checked."""
        topic = rule.split(".", 1)[0]
        looked_at = "state" if topic in STATE_TOPICS else topic
        for name in (rule, looked_at):
            for mode, reason in sorted(self.not_offered):
                if mode == name:
                    return reason
        if topic == "cost":
            return "an in-process adapter counts no copies: costs need the worker protocol"
        if topic == "rotary":
            return "an in-process adapter turns no heads: rotations need the worker protocol"
        if topic == "families":
            return "an in-process adapter builds no prompt tables: see `vectors/prompt_table`"
        return "no scenario of these phases reached it"


def explained(ledger: Ledger, rule: str = "") -> str:
    """What is wrong, of all rules or of one: one screen."""
    failures = ledger.of_rule(rule) if rule else [found for _, found in sorted(ledger.failures.items())]
    lines = [_summary(ledger, failures)]
    for found in failures[:SHOWN]:
        lines += ["", as_text(failure_lines(found.failure))]
        lines.append(f"  {found.count} times; smallest scenario: {found.scenario.name}, operation {found.failure.step}")
    rest = failures[SHOWN:]
    if rest:
        lines += ["", *(f"{' / '.join(found.failure.key)}  ({found.count} times)" for found in rest[:LINES])]
        if len(rest) > LINES:
            lines.append(f".. and {len(rest) - LINES} more findings")
    for scenario, unrun in ledger.unrun[:SHOWN]:
        lines.append(f"could not run: {scenario.name}: {unrun.stage}: {unrun.message}")
    if not ledger.checked:
        reasons = sorted({reason for _, reason in ledger.not_offered})
        lines += [f"not offered: {reason}" for reason in reasons[:LINES]]
    return "\n".join(lines)


def _summary(ledger: Ledger, failures: list[Found]) -> str:
    if not ledger.checked and not ledger.unrun:
        return f"nothing was checked in {ledger.scenarios} scenarios"
    unrun = f", {len(ledger.unrun)} steps could not run" if ledger.unrun else ""
    findings = "1 finding" if len(failures) == 1 else f"{len(failures)} findings"
    return (
        f"{findings} in {ledger.forwards} forwards of {ledger.scenarios} scenarios, "
        f"{len(ledger.checked)} rules checked{unrun}"
    )

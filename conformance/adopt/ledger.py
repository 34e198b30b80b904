"""What an in-process check came to, rule by rule, and one screen of text for what is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ropecheck.adapters import protocol
from ropecheck.conformance.cards.build import cards
from ropecheck.conformance.cards.render import as_text
from ropecheck.conformance.cards.text import card_lines, head_line
from ropecheck.conformance.judge.failure_text import shorter
from ropecheck.conformance.judge.outcome import Outcome, Unrun
from ropecheck.conformance.run.events import Finding, Header, Summary
from ropecheck.conformance.scenario.operations import Scenario
from ropecheck.conformance.subject import size_of

SHOWN = 2
"""Cards in full; a screen holds no more. The rest is named in a line each."""

LINES = 12
"""Of the findings that are only named."""

STATE_TOPICS = ("session", "retraction", "ownership", "freshness")


@dataclass(slots=True)
class AdoptLedger:
    """Counts."""

    scenarios: int = 0
    forwards: int = 0
    checked: dict[str, int] = field(default_factory=dict)
    """Rule -> times it was checked."""
    failures: dict[tuple[str, str, str], Finding] = field(default_factory=dict)
    """(rule, mode, signature) -> the smallest scenario that shows it."""
    unrun: list[tuple[Scenario, Unrun]] = field(default_factory=list)
    not_offered: dict[tuple[str, str], int] = field(default_factory=dict)
    """(mode, reason) -> scenarios."""
    warnings: list[str] = field(default_factory=list)
    right_ran: dict[str, int] = field(default_factory=dict)
    right_steps: int = 0
    """As of a run's summary: what ran for right results."""

    def add(self, scenario: Scenario, outcome: Outcome) -> None:
        """Count one scenario."""
        self.scenarios += 1
        self.forwards += outcome.forwards
        for rule, count in outcome.checked.items():
            self.checked[rule] = self.checked.get(rule, 0) + count
        for failure in outcome.failures:
            found, size = self.failures.get(failure.key), size_of(scenario)
            if found is None:
                found = Finding(key=failure.key, known=None, scenario=scenario, failure=failure, size=size)
                self.failures[failure.key] = found
            found.count += 1
            found.unexpected += 1
            if size < found.size:
                found.failure, found.scenario, found.size = failure, scenario, size
        self.unrun.extend((scenario, unrun) for unrun in outcome.unrun)
        for pair in set(outcome.not_offered):
            self.not_offered[pair] = self.not_offered.get(pair, 0) + 1

    def summary(self, findings: Sequence[Finding] = ()) -> Summary:
        """Findings (all by default) as those of a run, for cards."""
        hello = protocol.unheard("adapter")
        header = Header(target="adapter", hello=hello, workers=0, out=Path(), known_folder=Path())
        found = Summary(header=header, right_ran=self.right_ran, right_steps=self.right_steps)
        found.findings.extend(findings or self.failures.values())
        found.sort()
        return found

    def of_rule(self, rule: str) -> list[Finding]:
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


def explained(ledger: AdoptLedger, rule: str = "") -> str:
    """What is wrong, of all rules or of one: one screen."""
    failures = ledger.of_rule(rule) if rule else [found for _, found in sorted(ledger.failures.items())]
    lines = [_summary(ledger, failures)]
    shown = cards(ledger.summary(failures)) if failures else ()
    for card in shown[:SHOWN]:
        lines += ["", as_text(card_lines(card))]
    rest = [text for card in shown[SHOWN:] for text in (head_line(card).plain, f"  {shorter(card.message)}")]
    lines += ["", *rest[:LINES]] if rest else []
    if len(rest) > LINES:
        lines.append(f".. and {(len(rest) - LINES) // 2} more")
    for scenario, unrun in ledger.unrun[:SHOWN]:
        lines.append(f"could not run: {scenario.name}: {unrun.stage}: {unrun.message}")
    if not ledger.checked:
        reasons = sorted({reason for _, reason in ledger.not_offered})
        lines += [f"not offered: {reason}" for reason in reasons[:LINES]]
    return "\n".join(lines)


def _summary(ledger: AdoptLedger, failures: Sequence[Finding]) -> str:
    if not ledger.checked and not ledger.unrun:
        return f"nothing was checked in {ledger.scenarios} scenarios"
    unrun = f", {len(ledger.unrun)} steps could not run" if ledger.unrun else ""
    findings = "1 finding" if len(failures) == 1 else f"{len(failures)} findings"
    return (
        f"{findings} in {ledger.forwards} forwards of {ledger.scenarios} scenarios, "
        f"{len(ledger.checked)} rules checked{unrun}"
    )

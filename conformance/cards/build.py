"""From findings to cards."""

import hashlib
from collections.abc import Sequence

import msgspec

from ropecheck.conformance.cards.bugs import address
from ropecheck.conformance.cards.card import Bug, Card, FoldedLine
from ropecheck.conformance.cards.causes import causes, engine_lines
from ropecheck.conformance.cards.operations import operation_lines, request_lines, state_at, token_words
from ropecheck.conformance.cards.render import replay_command
from ropecheck.conformance.cards.shapes import shape
from ropecheck.conformance.families.case import Case
from ropecheck.conformance.families.files import described
from ropecheck.conformance.judge.outcome import Failure, TableView
from ropecheck.conformance.known.base import OnBase
from ropecheck.conformance.run.events import Finding, Summary
from ropecheck.conformance.scripts.script import Script, told
from ropecheck.conformance.subject import Subject
from ropecheck.spec.rules import all_rules


def cards(summary: Summary) -> tuple[Card, ...]:
    """The cards of a run: new before known, in the summary's order."""
    return tuple(card(group[0], group[1:], summary) for group in groups(summary))


def groups(summary: Summary) -> list[list[Finding]]:
    """Findings of one suspected cause together, the most telling first.

    New ones by the engine functions that ran for them; known ones by their entry. A consequence goes with the finding
    that it follows from.
    """
    findings = summary.findings
    firsts = [finding for finding in findings if not finding.failure.follows]
    found = [
        sorted(cause.findings, key=lambda finding: _telling(finding, cause.function))
        for cause in causes([finding for finding in firsts if finding.unexpected], summary)
    ]
    for finding in firsts:
        if finding.unexpected:
            continue
        home = next((group for group in found if _same_entry(group[0], finding)), None)
        if home is None:
            found.append([finding])
        else:
            home.append(finding)
    for finding in findings:
        if not finding.failure.follows:
            continue
        home = next((group for group in found if _explains(group, finding)), None)
        if home is None:
            found.append([finding])
        else:
            home.append(finding)
    return found


def _telling(finding: Finding, function: str) -> tuple[bool, bool, int, tuple[int, int, str]]:
    """Least is most telling: it ran the suspected function, it is the forward's own table, it is met often, its
    witness is small."""
    elsewhere = function not in finding.ran if function else False
    return elsewhere, finding.failure.label != "", -finding.count, finding.size


def _same_entry(one: Finding, other: Finding) -> bool:
    if one.unexpected or other.unexpected or one.known is None or other.known is None:
        return False
    if isinstance(one.known, OnBase):
        return False
    return one.known.name == other.known.name


def _explains(group: Sequence[Finding], consequence: Finding) -> bool:
    if bool(group[0].unexpected) != bool(consequence.unexpected):
        return False
    return any(one.key[0] == consequence.failure.follows and not one.failure.follows for one in group)


def card(finding: Finding, folded: Sequence[Finding], summary: Summary) -> Card:
    """One finding as a card, with others of its cause folded under it."""
    header = summary.header
    rule, mode, signature = finding.key
    failure, scenario = finding.failure, finding.scenario
    known = None if finding.unexpected else finding.known
    stated = all_rules().get(rule)
    form = shape(signature)
    bugs = dict.fromkeys((*(stated.bugs if stated else ()), *(form.bugs if form else ())))
    state = None if isinstance(scenario, Case | Script) else state_at(scenario, failure.step)
    tokens: tuple[str, ...] = ()
    if state is not None and failure.expected is not None and failure.expected.positions:
        owners = failure.expected.requests
        tokens = tuple(
            token_words(state, owner, index) for owner, index in zip(owners, failure.expected.positions, strict=False)
        )
    return Card(
        id=card_id(finding),
        state="known" if known is not None else "new",
        rule=rule,
        mode=mode,
        signature=signature,
        count=finding.count + sum(one.count for one in folded),
        message=failure.message,
        label=failure.label,
        must=stated.must if stated else "",
        source=stated.source if stated else "",
        says=form.says if form else "",
        usually=form.usually if form else "",
        bugs=tuple(Bug(name=bug, address=address(bug)) for bug in bugs),
        operations=() if isinstance(scenario, Case | Script) else operation_lines(scenario, failure.step),
        requests=() if state is None else request_lines(state),
        prompt=_in_words(scenario),
        difference=failure.difference,
        expected=_compared(failure),
        observed=failure.observed,
        tokens=tokens,
        functions=engine_lines((finding, *folded), summary),
        where=failure.where,
        was=finding.was,
        reason="" if known is None else known.reason,
        link="" if known is None else known.link,
        entry="" if known is None else known.name,
        witness=scenario.id,
        witness_name=scenario.name,
        file=finding.file,
        replay=replay_command(header, finding.file) if finding.file else "",
        level=_level(finding, summary),
        folded=tuple(_folded(one) for one in folded),
    )


def _level(finding: Finding, summary: Summary) -> str:
    command = replay_command(summary.header, finding.level_file) if finding.level_file else ""
    return f"{finding.level}: {command}" if command else finding.level


def _in_words(subject: Subject) -> str:
    """A case's prompt or a script's actions; a scenario has its timeline."""
    if isinstance(subject, Script):
        return told(subject)
    return described(subject) if isinstance(subject, Case) else ""


def _compared(failure: Failure) -> TableView | None:
    """The expected table without the rows that nobody compared: a check of the 1-D table alone."""
    expected, observed, first = failure.expected, failure.observed, failure.difference
    if expected is None or observed is None or observed.rows is not None or first is None or first.axis != "1d":
        return expected
    return msgspec.structs.replace(expected, rows=None)


def _folded(finding: Finding) -> FoldedLine:
    rule, mode, signature = finding.key
    return FoldedLine(rule=rule, mode=mode, signature=signature, count=finding.count, witness=finding.scenario.id)


def card_id(finding: Finding) -> str:
    """ "f-" and 8 hex digits of the finding's key and witness: the anchor of the card."""
    text = "\0".join((*finding.key, finding.scenario.id))
    return f"f-{hashlib.sha256(text.encode()).hexdigest()[:8]}"

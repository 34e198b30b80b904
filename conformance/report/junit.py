"""junit.xml: one test case per rule, per finding, per known-failure entry that is no longer true, and per scenario
that could not run. Bounded by what is wrong, not by how many scenarios ran, so that CI servers can show it."""

import re
from pathlib import Path
from xml.etree import ElementTree as Xml

from ropecheck.conformance.cards.build import cards
from ropecheck.conformance.cards.card import Card
from ropecheck.conformance.cards.render import as_text, replay_command
from ropecheck.conformance.cards.text import card_lines
from ropecheck.conformance.run.events import Event, Finding, RunEnded, Summary
from ropecheck.conformance.store.files import write_atomic
from ropecheck.spec.rules import all_rules

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def listener(path: Path, event: Event) -> None:
    """Write the report when the run has ended."""
    if isinstance(event, RunEnded):
        write_atomic(path, build(event.summary))


def build(summary: Summary) -> bytes:
    """The report of a run."""
    suite = Xml.Element("testsuite", name="ropecheck")
    _properties(suite, summary)
    failing = {finding.key[0] for finding in summary.findings}
    rules = all_rules()
    for rule in sorted({*rules, *summary.rules} - failing):
        case = _case(suite, rule, "holds")
        if not summary.rules.get(rule, [0])[0]:
            elsewhere = rule in rules and summary.header.device not in rules[rule].devices
            message = rules[rule].only_on if elsewhere else "never checked in this run"
            Xml.SubElement(case, "skipped", message=message)
    on_card = {key: card for card in cards(summary) for key in card.keys}
    for finding in summary.findings:
        _finding(suite, finding, on_card[finding.key])
    for check in summary.broken_entries:
        case = _case(suite, check.known.rule, f"known failure {check.known.name}")
        _problem(case, "failure", check.state, check.message, f"{check.known.path}: {check.message}")
    for scenario, unrun, file in summary.unrun:
        case = _case(suite, "ropecheck.run", f"{scenario.name} {scenario.id}")
        text = f"{unrun.stage}: {unrun.message}\n{replay_command(summary.header, file)}"
        _problem(case, "error", unrun.stage, unrun.message, text)
    for what in filter(None, (summary.gave_up, "interrupted" if summary.interrupted else "")):
        _problem(_case(suite, "ropecheck.run", "the run ended early"), "error", "run", what, what)
    suite.set("tests", str(len(suite.findall("testcase"))))
    for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(name, str(len(suite.findall(f"testcase/{tag}"))))
    suite.set("time", f"{summary.totals.seconds:.3f}")
    root = Xml.Element("testsuites")
    root.append(suite)
    Xml.indent(root)
    written: bytes = Xml.tostring(root, encoding="utf-8", xml_declaration=True)
    return written + b"\n"


def _properties(suite: Xml.Element, summary: Summary) -> None:
    header = summary.header
    properties = Xml.SubElement(suite, "properties")
    for name, value in {
        "suite": header.suite,
        "spec": header.spec,
        "target": header.target,
        "version": header.hello.version,
        "torch": header.hello.torch,
        "device": header.device,
        "seed": str(header.seed),
        "workers": str(header.workers),
        "shard": header.shard,
        "scenarios": str(summary.totals.scenarios),
        "forwards": str(summary.totals.forwards),
    }.items():
        Xml.SubElement(properties, "property", name=name, value=_clean(value))


def _finding(suite: Xml.Element, finding: Finding, card: Card) -> None:
    rule, mode, signature = finding.key
    case = _case(suite, rule, f"{mode}: {signature}")
    file, line = card.location
    if file:
        case.set("file", _clean(file))
        case.set("line", str(line))
    if not finding.unexpected and finding.known is not None:
        why = f"{' '.join(finding.known.reason.split())} ({finding.known.link})"
        Xml.SubElement(case, "skipped", type="expected failure", message=_clean(why))
        return
    own = finding.key == card.keys[0]
    text = as_text(card_lines(card)) if own else f"may have the cause of {' / '.join(card.keys[0])}\n{card.replay}"
    _problem(case, "failure", signature, finding.failure.message, text)


def _case(suite: Xml.Element, classname: str, name: str) -> Xml.Element:
    return Xml.SubElement(suite, "testcase", classname=_clean(classname), name=_clean(name))


def _problem(case: Xml.Element, tag: str, kind: str, message: str, text: str) -> None:
    Xml.SubElement(case, tag, type=_clean(kind), message=_clean(message)).text = _clean(text)


def _clean(text: str) -> str:
    """Without the control characters that XML has no way to write."""
    return _NOT_XML.sub("?", text)

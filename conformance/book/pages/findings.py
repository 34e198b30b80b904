"""A page per known failure, and one of all known differences of prompt tables."""

from collections.abc import Iterator

from ropecheck.conformance import figures
from ropecheck.conformance.book.contents import Book
from ropecheck.conformance.book.observed import load
from ropecheck.conformance.book.pages.parts import index, rendered
from ropecheck.conformance.book.site import Page
from ropecheck.conformance.cards.operations import operation_lines
from ropecheck.conformance.known.failures import Known
from ropecheck.conformance.report.html_page import drawn_tables
from ropecheck.conformance.scenario.operations import Scenario
from ropecheck.conformance.scripts.script import told

ROUTES = ("Public route:", "Public routes:", "Route:", "Function level", "(function level")
"""How the part of a reason begins that says how a client gets there."""


def pages(book: Book) -> Iterator[Page]:
    """The index, every known failure, the differences."""
    entries = [(title(known), book.finding(known), first_sentence(known.reason)) for known in book.known]
    groups = [
        ("Known failures", entries),
        ("Prompt tables", [("All known differences", "findings/differences.html", f"{len(book.differences)} entries")]),
    ]
    lead = (
        "What SGLang's released code does otherwise, each with the derivation of the right value, the smallest "
        "witness and the way there. A run replays every witness first, and fails when one is not so any more."
    )
    yield index(book, "findings", "Findings", lead, [], groups)
    for known in book.known:
        yield page(book, known)
    path = "findings/differences.html"
    words = " ".join(one.id for one in book.differences)
    body = rendered("differences.html.jinja", book, path)
    yield Page(
        path=path,
        title="Known differences of prompt tables",
        body=body,
        says="Who differs from a family's table, and who is right.",
        words=words,
    )


def title(known: Known) -> str:
    """Rule, mode and shape."""
    return f"{known.entry.rule} in {known.entry.mode}: {known.entry.signature}"


def first_sentence(text: str) -> str:
    """Up to the first full stop that ends a sentence."""
    line = " ".join(text.split())
    head, stop, _ = line.partition(". ")
    return head + "." if stop else line


def parted(reason: str) -> tuple[str, str]:
    """(derivation, how a client gets there) of an entry's reason."""
    line = " ".join(reason.split())
    places = [at for word in ROUTES if (at := line.find(word)) >= 0]
    if not places:
        return line, ""
    at = min(places)
    if line[at] == "(":  # inside the sentence: it belongs to both
        route = line[at:].strip("(). ")
        return line, f"{route[:1].upper()}{route[1:]}."
    return line[:at].strip(), line[at:]


def page(book: Book, known: Known) -> Page:
    """One entry."""
    path = book.finding(known)
    entry, witness = known.entry, known.witness
    derivation, route = parted(entry.reason)
    seen = load().known.get(known.path.stem)
    if seen is not None and seen.witness != witness.id:
        seen = None
    related = [
        one
        for one in book.known
        if one is not known and (one.entry.witness == entry.witness or (entry.cause and one.entry.cause == entry.cause))
    ]
    like = next((one for one in related if one.entry.cause and parted(one.reason)[1]), None)
    rule = book.rules.get(entry.rule)
    body = rendered(
        "finding.html.jinja",
        book,
        path,
        entry=entry,
        must=rule.must if rule else "",
        witness=witness,
        derivation=derivation,
        route=route,
        like=like,
        seen=seen,
        tables=drawn_tables(seen.failure, seen.engine) if seen else "",
        timeline=figures.timeline(operation_lines(witness, seen.failure.step if seen else -1))
        if isinstance(witness, Scenario)
        else "",
        told="" if isinstance(witness, Scenario) else told(witness),
        related=related,
    )
    return Page(
        path=path,
        title=title(known),
        body=body,
        says=first_sentence(entry.reason),
        words=f"{entry.reason} {witness.id}",
    )

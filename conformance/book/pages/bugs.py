"""A page per bug of the past that the suite dates and finds again."""

from collections.abc import Iterator

from markupsafe import Markup

from ropecheck.conformance import figures
from ropecheck.conformance.book.contents import Book
from ropecheck.conformance.book.observed import Observation, load
from ropecheck.conformance.book.pages.parts import index, rendered
from ropecheck.conformance.book.site import Page
from ropecheck.conformance.book.worked import of_scenario
from ropecheck.conformance.cards.operations import operation_lines
from ropecheck.conformance.report.html_page import drawn_tables
from ropecheck.conformance.scenario.operations import Build, Scenario
from ropecheck.conformance.selftest.history_score import PastBug, witness


def pages(book: Book) -> Iterator[Page]:
    """The index, then every bug."""
    entries: dict[bool, list[tuple[str, str, str]]] = {True: [], False: []}
    for bug in book.bugs:
        where = f"{bug.rule} in {bug.mode}, up to {bug.wrong}" if bug.rule else bug.kind
        entries[bug.seed].append((bug.title, path_of(bug), where))
    lead = (
        "Bugs of SGLang's position tables that really happened, dated by running every release. Each is red on the "
        "last release that has it and green on the first that has not: `ropecheck score --history`."
    )
    groups = [("The ones that the suite began with", entries[True]), ("Others", entries[False])]
    yield index(book, "bugs", "Past bugs", lead, [], groups)
    for bug in book.bugs:
        yield page(book, bug)


def path_of(bug: PastBug) -> str:
    """Its page."""
    return f"bugs/{bug.id.lower()}.html"


def page(book: Book, bug: PastBug) -> Page:
    """One bug."""
    path = path_of(bug)
    subject = None if bug.missed else witness(bug.witness)
    seen = load().past.get(bug.id)
    if seen is not None and (subject is None or seen.witness != subject.id):
        seen = None
    rule = book.rules.get(bug.rule)
    body = rendered(
        "bug.html.jinja",
        book,
        path,
        bug=bug,
        must=rule.must if rule else "",
        seen=seen,
        tables=drawn_tables(seen.failure, seen.engine) if seen else "",
        strip=strip(subject, seen) if isinstance(subject, Scenario) else "",
        timeline=figures.timeline(operation_lines(subject, seen.failure.step if seen else -1))
        if isinstance(subject, Scenario)
        else "",
    )
    return Page(
        path=path,
        title=bug.title,
        body=body,
        says=f"{bug.kind}; {bug.rule or 'no rule'}",
        words=" ".join((*bug.links, bug.id, bug.why)),
    )


def strip(scenario: Scenario, seen: Observation | None) -> Markup:
    """What the wrong forward reads of each history."""
    if seen is None or not isinstance(scenario.ops[seen.failure.step], Build):
        return Markup("")
    made = of_scenario(scenario, seen.failure.step)
    return Markup('<h2 id="reads">What the forward reads</h2>') + figures.strip(made.lanes)

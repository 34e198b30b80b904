"""A page per shape of failure: what the numbers look like, what usually causes them, real examples."""

from collections.abc import Iterator

from markupsafe import Markup

from ropecheck.conformance.book import observed
from ropecheck.conformance.book.contents import Book, shape_page, slug
from ropecheck.conformance.book.examples import load, shown
from ropecheck.conformance.book.pages.parts import index, rendered
from ropecheck.conformance.book.site import Page
from ropecheck.conformance.cards.shapes import SHAPES, STARTS, STATES, Shape
from ropecheck.conformance.report.html_page import drawn_tables
from ropecheck.conformance.selftest.mutants import MUTANTS

MOST = 2
"""Examples drawn on a page."""


def pages(book: Book) -> Iterator[Page]:
    """The index with the states of a run, then every shape."""
    groups = [
        ("Shapes", [(name, f"shapes/{slug(name)}.html", one.says) for name, one in SHAPES.items()]),
        (
            "By how the name begins",
            [(f"{name.strip()} ..", f"shapes/{slug(name)}.html", one.says) for name, one in STARTS.items()],
        ),
        ("What a run calls things", [(name, "shapes/index.html", says) for name, says in STATES.items()]),
    ]
    lead = (
        "A failure is a rule, a mode and a shape: what the wrong numbers look like. A shape describes and asserts no "
        "cause; what has led to it before is told beside it."
    )
    yield index(book, "shapes", "Shapes of failure", lead, [], groups)
    for name, one in (SHAPES | STARTS).items():
        yield page(book, name, one)


def page(book: Book, name: str, one: Shape) -> Page:
    """One shape."""
    path = f"shapes/{slug(name)}.html"
    met: dict[str, list[str]] = {}
    for rule, faults in load().faults.items():
        for fault, signature in faults.items():
            if fault in MUTANTS and shape_page(signature) == path:
                met.setdefault(fault, []).append(rule)
    body = rendered(
        "shape.html.jinja",
        book,
        path,
        name=name.strip() + (" .." if name in STARTS else ""),
        one=one,
        drawn=drawn(path),
        past=[bug for bug in book.bugs if bug.signature and shape_page(bug.signature) == path],
        known=[known for known in book.known if shape_page(known.entry.signature) == path],
        dated=[dated for matrix in book.matrices for dated in matrix.failures if shape_page(dated.signature) == path],
        faults=[(MUTANTS[fault], rules) for fault, rules in met.items()],
    )
    return Page(path=path, title=name.strip(), body=body, says=one.says, words=" ".join([one.usually, *one.bugs]))


def drawn(path: str) -> list[tuple[str, str, str, Markup]]:
    """Up to two examples with tables, real ones first: (rule, who gave it, message, both tables)."""
    real = [(seen.failure, seen.engine) for seen in (*observed.load().past.values(), *observed.load().known.values())]
    planted = (
        (shown(one), "with a fault planted") for one in load().examples.values() if shape_page(one.signature) == path
    )
    found: list[tuple[str, str, str, Markup]] = []
    for failure, who in (*(one for one in real if shape_page(one[0].signature) == path), *planted):
        if failure is None or failure.expected is None or failure.observed is None:
            continue
        found.append((failure.rule, who, failure.message, drawn_tables(failure, failure.mode)))
        if len(found) == MOST:
            break
    return found

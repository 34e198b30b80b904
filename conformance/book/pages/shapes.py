"""A page per shape of failure: what the numbers look like, what usually causes them, real examples."""

from __future__ import annotations

from collections.abc import Iterator

from markupsafe import Markup

from ropecheck.conformance import figures
from ropecheck.conformance.book.contents import Book, shape_page, slug
from ropecheck.conformance.book.examples import load, shown
from ropecheck.conformance.book.pages.parts import index, rendered
from ropecheck.conformance.book.pages.rules import view_drawn
from ropecheck.conformance.book.site import Page
from ropecheck.conformance.cards.shapes import SHAPES, STARTS, STATES, Shape
from ropecheck.conformance.selftest.mutants import MUTANTS


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
    met = [
        (rule, fault, sign)
        for rule, faults in load().faults.items()
        for fault, sign in faults.items()
        if shape_page(sign) == path
    ]
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
        faults=[(rule, MUTANTS[fault]) for rule, fault, _ in met if fault in MUTANTS],
    )
    return Page(path=path, title=name.strip(), body=body, says=one.says, words=" ".join([one.usually, *one.bugs]))


def drawn(path: str) -> list[tuple[str, str, Markup]]:
    """Up to two examples of rules that a planted fault breaks in this shape: (rule, message, both tables)."""
    found: list[tuple[str, str, Markup]] = []
    for example in load().examples.values():
        if shape_page(example.signature) != path or len(found) == 2:
            continue
        failure = shown(example)
        if failure is None or failure.expected is None:
            continue
        first = failure.difference
        table = figures.tables(
            view_drawn(failure.expected),
            view_drawn(failure.observed),
            caption=failure.mode,
            focus=None if first is None else first.column,
        )
        found.append((example.rule, failure.message, table))
    return found

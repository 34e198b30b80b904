"""What pages of several sections are built of."""

from collections.abc import Sequence

from markupsafe import Markup

from ropecheck.conformance import figures
from ropecheck.conformance.book.contents import Book, shape_page
from ropecheck.conformance.book.site import TEMPLATES, Page, to

NOTHING = Markup("")

Entry = tuple[str, str, str]
"""(title, path, what it says)."""


def rendered(template: str, book: Book, page: str, **values: object) -> Markup:
    """One of the book's templates. Every one has the book, its page's path, `w` to write with and `to` to link with."""
    made = figures.environment(TEMPLATES).get_template(template)
    return Markup(
        made.render(book=book, page=page, w=book.words(page), to=to, shape=lambda s: shape(s, page), **values)
    )


def index(
    book: Book,
    folder: str,
    title: str,
    lead: str,
    entries: Sequence[Entry],
    groups: Sequence[tuple[str, Sequence[Entry]]] = (),
    below: Markup = NOTHING,
) -> Page:
    """A section's own page: what it is about, and everything in it."""
    path = f"{folder}/index.html"
    shown = groups or [("", entries)]
    body = rendered("index.html.jinja", book, path, title=title, lead=lead, groups=shown, below=below)
    return Page(path=path, title=title, body=body, says=lead.partition(". ")[0] + ".")


def shape(signature: str, page: str) -> Markup:
    """A signature, linked to the page of its shape."""
    target = shape_page(signature)
    return (
        Markup('<a href="{}">{}</a>').format(to(target, page), signature) if target else Markup("{}").format(signature)
    )


def state(book: Book, page: str, *, rule: str = "", mode: str = "") -> Markup:
    """Known failures, and marks release by release, of a rule or a mode."""
    known = [one for one in book.known if (not rule or one.entry.rule == rule) and (not mode or one.entry.mode == mode)]
    parts = [(one, one.rows_of(rule, mode), one.failures_of(rule, mode)) for one in book.matrices]
    return rendered("state.html.jinja", book, page, known=known, parts=parts)

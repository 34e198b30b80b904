"""The field's words: docs/glossary.md, and what the specification's own types say of their fields."""

from collections.abc import Iterator

from ropecheck.conformance.book.contents import Book
from ropecheck.conformance.book.pages.guides import Linked
from ropecheck.conformance.book.site import Page

FILE = "docs/glossary.md"


def pages(book: Book, linked: Linked) -> Iterator[Page]:
    """The one page."""
    path = "glossary.html"
    text = (book.root / FILE).read_text("utf-8")
    body = book.words(path).markdown(text, lambda target: linked.resolve(FILE, target).removeprefix("../"))
    terms = [line.partition("**")[2].partition("**")[0] for line in text.splitlines() if line.startswith("**")]
    yield Page(path=path, title="Glossary", body=body, says="The field's words.", words=" ".join(terms))

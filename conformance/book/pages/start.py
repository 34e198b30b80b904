"""The first page: what this is about, for somebody who is new to it, and the picture that opens the README too."""

from collections.abc import Iterator

from markupsafe import Markup

from ropecheck.conformance.book.contents import Book
from ropecheck.conformance.book.pages.parts import rendered
from ropecheck.conformance.book.site import Page
from ropecheck.conformance.version import spec_hash, suite_version


def pages(book: Book) -> Iterator[Page]:
    """The start."""
    path = "index.html"
    body = rendered(
        "start.html.jinja",
        book,
        path,
        light=Markup("assets/position-table-light.svg"),
        link_api=Markup('<a href="api/ropecheck.spec.history.html">API</a>'),
        version=suite_version(),
        spec=spec_hash(),
    )
    yield Page(
        path=path, title="ropecheck: the rule book", body=body, says="What M-RoPE is, and what goes wrong in engines."
    )

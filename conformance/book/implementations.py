"""What implements each forward mode in an engine."""

from __future__ import annotations

from markupsafe import Markup

from ropecheck.conformance.book.contents import Book


def section(book: Book, page: str, mode: str) -> Markup:
    """The section of one mode; nothing is known yet."""
    return Markup("")

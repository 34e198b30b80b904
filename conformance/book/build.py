"""The whole book into a folder."""

from pathlib import Path
from typing import Any

import msgspec

from ropecheck.conformance.book import site
from ropecheck.conformance.book.contents import ROOT, opened
from ropecheck.conformance.book.pages import (
    api,
    bugs,
    commands,
    families,
    findings,
    glossary,
    guides,
    modes,
    rules,
    schemas,
    shapes,
    start,
)
from ropecheck.conformance.book.site import Page
from ropecheck.conformance.book.start_picture import SCHEMES, picture


class SiteBuild(msgspec.Struct, frozen=True):
    """What a build made."""

    pages: tuple[Page, ...]
    broken: tuple[str, ...]
    """Internal links that lead nowhere."""


def build(out: Path, command: Any, root: Path = ROOT) -> SiteBuild:
    """Write the site. command: the command line, as a tree of commands.

    Raises UsageError where `root` is no checkout, ValueError for a guide's link to no file.
    """
    book = opened(root)
    linked = guides.Linked(book)
    made: list[Page] = []
    for section in (start, modes, rules, families, shapes, findings, bugs):
        made += section.pages(book)
    made += guides.pages(book, linked)
    made += [*commands.pages(book, command), *schemas.pages(book), *api.pages(book)]
    made += glossary.pages(book, linked)
    files = linked.copied | schemas.files()
    files |= {f"assets/position-table-{scheme}.svg": picture(scheme).encode() for scheme in SCHEMES}
    site.write(made, files, out)
    return SiteBuild(tuple(made), tuple(site.broken_links(out)))

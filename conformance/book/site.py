"""Pages into a folder: one frame around all, a search index, and a check that every internal link leads somewhere."""

import json
import posixpath
import re
from collections.abc import Iterable, Sequence
from functools import cache
from html import unescape
from pathlib import Path

import msgspec
from markupsafe import Markup

from ropecheck.conformance import figures
from ropecheck.conformance.store.files import write_atomic

TEMPLATES = Path(__file__).parent / "templates"

SECTIONS = {
    "": "Start",
    "modes": "Forward modes",
    "rules": "Rules",
    "families": "Model families",
    "shapes": "Shapes of failure",
    "findings": "Findings",
    "bugs": "Past bugs",
    "guides": "Guides",
    "commands": "Command line",
    "schemas": "File formats",
    "api": "Python API",
    "glossary": "Glossary",
}
"""Folder of the site -> its name in the navigation, in its order."""

ALONE = ("commands", "glossary")
"""Sections of one page."""

_ATTRIBUTE = re.compile(r'(?<=[\s"])(id|href|src|srcset)="([^"]*)"')
"""Attributes as a template or Markdown writes them: in double quotes; inside text a quote is escaped."""

SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:|//", re.IGNORECASE)


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """One page. path: inside the site, with "/"."""

    path: str
    title: str
    body: Markup
    says: str = ""
    """One sentence for the index of its section and for the search."""
    words: str = ""
    """More words that a search finds it by."""

    @property
    def section(self) -> str:
        """The folder that it is in; "glossary" for glossary.html; "" for the start."""
        folder, _, name = self.path.rpartition("/")
        return folder or ("" if name == "index.html" else name.removesuffix(".html"))


def to(path: str, start: str) -> str:
    """The address of page `path` as page `start` writes it."""
    return _relative(path, posixpath.dirname(start) or ".")


@cache
def _relative(path: str, folder: str) -> str:
    return posixpath.relpath(path, folder)


def write(pages: Sequence[Page], files: dict[str, bytes], out: Path) -> None:
    """Write pages and files. What an earlier build left there and this one lacks is removed."""
    made = {page.path: framed(page, pages).encode() for page in pages}
    made |= files
    made["assets/book.css"] = stylesheet().encode()
    made["assets/book.js"] = (TEMPLATES / "book.js").read_bytes()
    made["assets/search.js"] = search_index(pages).encode()
    for path, content in made.items():
        file = out / path
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.is_file() or file.read_bytes() != content:
            write_atomic(file, content)
    for file in out.rglob("*"):
        if file.is_file() and file.relative_to(out).as_posix() not in made:
            file.unlink()


def framed(page: Page, pages: Sequence[Page]) -> str:
    """The whole HTML of a page."""
    template = figures.environment(TEMPLATES).get_template("page.html.jinja")
    near = [one for one in pages if one.section == page.section and page.section]
    return template.render(
        page=page,
        sections=[(name, _home(folder), folder == page.section) for folder, name in SECTIONS.items()],
        near=near if len(near) > 1 else [],
        to=lambda path: to(path, page.path),
        root="../" * page.path.count("/"),
    )


def _home(folder: str) -> str:
    return "index.html" if not folder else f"{folder}.html" if folder in ALONE else f"{folder}/index.html"


def stylesheet() -> str:
    """One style for all pages: that of the figures, of the code, and the book's own."""
    return "\n".join([figures.stylesheet(), (TEMPLATES / "book.css").read_text("utf-8")])


def search_index(pages: Iterable[Page]) -> str:
    """What the search box looks in: a script, since a page that is opened from a disk may not fetch."""
    rows = [[page.path, page.title, SECTIONS[page.section], page.says, page.words] for page in pages]
    return f"const INDEX = {json.dumps(rows, ensure_ascii=False, separators=(',', ':'))};\n"


class Links:
    """The anchors of a page, and where its links and images lead."""

    def __init__(self, html: str) -> None:
        found = [(name, unescape(value)) for name, value in _ATTRIBUTE.findall(html)]
        self.ids = {value for name, value in found if name == "id"}
        self.targets = [value for name, value in found if name != "id"]


def broken_links(folder: Path) -> list[str]:
    """Internal links of a built site that lead nowhere: "page: target"."""
    read = {path.relative_to(folder).as_posix(): Links(path.read_text("utf-8")) for path in folder.rglob("*.html")}
    found = []
    for page, links in sorted(read.items()):
        for target in links.targets:
            if SCHEME.match(target):
                continue
            place, _, anchor = target.partition("#")
            path = posixpath.normpath(posixpath.join(posixpath.dirname(page), place)) if place else page
            missing = not (folder / path).is_file()
            if missing or (anchor and path in read and anchor not in read[path].ids):
                found.append(f"{page}: {target}")
    return found

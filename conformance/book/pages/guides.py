"""Guides: the repository's own Markdown, one page each, sorted by what a reader is here for."""

import posixpath
from collections.abc import Iterator
from functools import partial

from markupsafe import Markup

from ropecheck.conformance.book.contents import CONTENTS, Book, slug
from ropecheck.conformance.book.pages.parts import index
from ropecheck.conformance.book.site import Page, to

GUIDES = CONTENTS.guides
"""What a reader is here for -> file -> what it tells."""


def place(file: str) -> str:
    """The page of a guide."""
    return CONTENTS.places.get(file) or f"guides/{posixpath.basename(file).removesuffix('.md').lower()}.html"


def files() -> list[str]:
    """Every guide."""
    return [file for group in GUIDES.values() for file in group]


class Linked:
    """Where links of the guides lead: to another guide's page, or to a copy of the file beside the pages."""

    def __init__(self, book: Book) -> None:
        self.book = book
        self.pages = {file: place(file) for file in files()}
        self.copied: dict[str, bytes] = {}
        self.folders: dict[str, tuple[str, ...]] = {}
        """Folder that a guide links to -> its files, copied as well."""

    def resolve(self, file: str, target: str) -> str:
        """A link of `file` as its page must write it. Raises ValueError for a file that is not there."""
        path, mark, anchor = target.partition("#")
        if not path:
            return target
        named = posixpath.normpath(posixpath.join(posixpath.dirname(file), path))
        source = self.book.root / named
        if source.is_dir():
            self.folders[named] = tuple(sorted(path.name for path in source.iterdir() if path.is_file()))
            self.copied |= {f"files/{named}/{name}": (source / name).read_bytes() for name in self.folders[named]}
            self.pages[named] = f"guides/{slug(named)}.html"
        elif named not in self.pages:
            if not source.is_file():
                raise ValueError(f"{file}: links to {target}, which is not there")
            self.copied[f"files/{named}"] = source.read_bytes()
        return to(self.pages.get(named, f"files/{named}"), place(file)) + mark + anchor


def pages(book: Book, linked: Linked) -> Iterator[Page]:
    """The index by role, then every guide. Files that they link to are left in `linked.copied`."""
    shown = {file: (title(book, file), says) for group in GUIDES.values() for file, says in group.items()}
    groups = [
        (role, [(shown[file][0], place(file), says) for file, says in group.items()]) for role, group in GUIDES.items()
    ]
    yield index(book, "guides", "Guides", "By what you are here for.", [], groups)
    for file, (name, says) in shown.items():
        path = place(file)
        text = (book.root / file).read_text("utf-8")
        body = book.words(path).markdown(text, partial(linked.resolve, file))
        yield Page(path=path, title=name, body=body, says=says, words=" ".join(headings(text)))
    for folder, names in linked.folders.items():
        path = linked.pages[folder]
        links = [Markup('<li><a href="{}">{}</a></li>').format(to(f"files/{folder}/{one}", path), one) for one in names]
        body = Markup("<h1>{}</h1><ul>{}</ul>").format(folder, Markup("").join(links))
        yield Page(path=path, title=folder, body=body, says="Files of a folder that a guide names.")


def title(book: Book, file: str) -> str:
    """A file's first heading."""
    found = headings((book.root / file).read_text("utf-8"))
    return found[0] if found else file


def headings(text: str) -> list[str]:
    """The headings of a Markdown text."""
    found = []
    fenced = False
    for line in text.splitlines():
        fenced ^= line.lstrip().startswith("```")
        if line.startswith("#") and not fenced:
            found.append(line.lstrip("# ").strip())
    return found

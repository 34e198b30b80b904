"""Guides: the repository's own Markdown, one page each, sorted by what a reader is here for."""

import posixpath
from collections.abc import Iterator
from functools import partial

from markupsafe import Markup

from ropecheck.conformance.book.contents import Book, slug
from ropecheck.conformance.book.pages.parts import index
from ropecheck.conformance.book.site import Page, to

GUIDES = {
    "I change an engine": (
        ("docs/check.md", "Check a checkout of SGLang against its base, and hand a finding on."),
        ("docs/reading.md", "Read a failure: from the head line to the engine's line."),
        ("docs/targets.md", "Other releases and checkouts; when a rule changed between them."),
        ("docs/scheduler.md", "The real scheduler, clients' scripts, streams of events."),
    ),
    "I run an engine's CI": (
        ("docs/engine-ci.md", "One job: what to run, what to keep, what its exit code means."),
        ("docs/campaigns.md", "Shards, merged reports, hours on many machines."),
        ("docs/cuda.md", "A GPU host, also one without a network."),
    ),
    "I run a server": (("docs/live.md", "A real server at work: its events recorded and judged."),),
    "I maintain another engine": (
        ("docs/adopt.md", "Twenty lines of Python, or one pytest test per rule."),
        ("vectors/README.md", "Vectors for an engine in any language."),
        ("docs/adapter.md", "A whole adapter: the worker protocol."),
    ),
    "I add to the suite": (
        ("CONTRIBUTING.md", "The loop in seconds, the recipes, what a finding must show."),
        ("docs/modes.md", "A forward mode of your own."),
        ("docs/families.md", "Model families: who differs, who is right, how to add one."),
        ("conformance/data/known/README.md", "Known failures."),
        ("bench/README.md", "How fast it is, measured."),
    ),
    "I want the whole picture": (
        ("README.md", "Why, what and how, in one screen."),
        ("ARCHITECTURE.md", "What lies where, and which way imports go."),
        ("docs/matrix.md", "Rules by SGLang release."),
        ("docs/matrix-scheduler.md", "Client scripts by SGLang release."),
        ("docs/matrix-families.md", "Prompt tables by SGLang release."),
        ("docs/requests.md", "What public requests can do that is not sent, and why."),
        ("docs/strength.md", "How strong the suite is."),
        ("CHANGELOG.md", "What changed, and what a version number says."),
    ),
}
"""What a reader is here for -> (file, what it tells)."""

PLACES = {
    "README.md": "guides/readme.html",
    "vectors/README.md": "guides/vectors.html",
    "bench/README.md": "guides/speed.html",
    "conformance/data/known/README.md": "guides/known-failures.html",
}
"""Files whose names alone would not tell them apart."""


def place(file: str) -> str:
    """The page of a guide."""
    return PLACES.get(file) or f"guides/{posixpath.basename(file).removesuffix('.md').lower()}.html"


def files() -> list[str]:
    """Every guide."""
    return [file for group in GUIDES.values() for file, _ in group]


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
    shown = {file: (title(book, file), says) for group in GUIDES.values() for file, says in group}
    groups = [(role, [(shown[file][0], place(file), says) for file, says in group]) for role, group in GUIDES.items()]
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

"""A page per forward mode."""

import importlib
from collections.abc import Iterator

import msgspec
from markupsafe import Markup

from ropecheck.conformance import figures
from ropecheck.conformance.book import source
from ropecheck.conformance.book.contents import Book
from ropecheck.conformance.book.formula import tokens_formula
from ropecheck.conformance.book.implementations import section as implementations
from ropecheck.conformance.book.pages.parts import index, rendered, state
from ropecheck.conformance.book.site import Page
from ropecheck.conformance.book.words import block
from ropecheck.conformance.book.worked import worked
from ropecheck.conformance.scenario.domains import counts
from ropecheck.spec.modes.declaration import NOBODY, PREFILLING, RUNNING, TEXT, Mode

ROWS = {
    PREFILLING: "requests with tokens that no forward has computed yet: they wait, or were retracted",
    RUNNING: "requests whose prompt is complete",
    TEXT: "requests without media that wait or run",
    NOBODY: "none",
}


def pages(book: Book) -> Iterator[Page]:
    """The index, then every mode."""
    yield index(
        book,
        "modes",
        "Forward modes",
        "A forward mode is one way in which an engine runs its model: over a prompt, over one new token, over drafted "
        "tokens. Each is one function that says which token indices a row of its batch reads. Everything else about "
        "position tables is the same in all of them.",
        [(mode.name, f"modes/{mode.name}.html", mode.title) for mode in book.modes.values()],
        below=at_a_glance(book),
    )
    for mode in book.modes.values():
        yield page(book, mode)


def at_a_glance(book: Book) -> Markup:
    """The same request in every mode: two words, a picture, three words, and what it has generated."""
    lanes = []
    for mode in book.modes.values():
        firsts = {lane.name.partition(" (")[2].rstrip(")"): lane for lane in reversed(worked(mode).lanes)}
        for part, lane in reversed(firsts.items()):
            lanes.append(msgspec.structs.replace(lane, name=f"{mode.name}: {part}" if part else mode.name))
    head = Markup('<h2 id="at-a-glance">One request, every mode</h2>')
    says = "Two words, a picture of six tokens, three words; where prompts are complete, three generated tokens."
    return head + Markup("<p>{}</p>").format(says) + figures.strip(lanes)


def page(book: Book, mode: Mode) -> Page:
    """One mode."""
    path = f"modes/{mode.name}.html"
    made = worked(mode)
    here = dict(made.fields)
    parts = [(part, f"{part.name}: " if mode.composite else "") for part in mode.parts]
    fields = [
        (prefix + field.name, counts(field), here.get(prefix + field.name, ""))
        for part, prefix in parts
        for field in part.fields
    ]
    asked = book.asked(mode.name)
    body = rendered(
        "mode.html.jinja",
        book,
        path,
        mode=mode,
        rest=mode.doc.partition("\n\n")[2],
        rows=ROWS.get(mode.reads) or ", then ".join(f"{part.name}: {ROWS[part.reads]}" for part in mode.parts),
        stated=mode.stated.replace("ropecheck.", "").replace(".", "/").replace(":", ".py: "),
        formula=Markup("").join(tokens_formula(part, prefix) for part, prefix in parts),
        worked=made,
        strip=figures.strip,
        tables=figures.tables,
        fields=fields,
        rules=[book.rules[rule] for rule in asked],
        asked=asked,
        state=state(book, path, mode=mode.name),
        implementations=implementations(book, path, mode.name),
        code=declarations(mode),
        block=block,
    )
    words = " ".join(
        [*mode.bugs, *(bug for bugs in mode.bugs.values() for bug in bugs), *(name for name, _, _ in fields)]
    )
    return Page(path=path, title=mode.name, body=body, says=mode.title, words=words)


def declarations(mode: Mode) -> list[source.SourcePiece]:
    """The files that declare the mode and its parts."""
    found = [source.of_module(part.stated.partition(":")[0]) for part in (mode, *mode.parts) if _importable(part)]
    return list({one.place: one for one in found}.values())


def _importable(mode: Mode) -> bool:
    try:
        importlib.import_module(mode.stated.partition(":")[0])
    except ImportError:  # a file from outside the repository
        return False
    return True

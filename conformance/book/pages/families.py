"""A page per model family: its prompt tables drawn, and who differs."""

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from dataclasses import Field, fields, is_dataclass

from markupsafe import Markup

from ropecheck.conformance import figures
from ropecheck.conformance.book import source
from ropecheck.conformance.book.contents import Book
from ropecheck.conformance.book.pages.parts import index, rendered
from ropecheck.conformance.book.site import Page
from ropecheck.conformance.book.words import block
from ropecheck.conformance.families.case import NAMES, NOT_COVERED, TARGETS, Case, expected, offered
from ropecheck.conformance.families.cases import chosen
from ropecheck.conformance.families.files import described
from ropecheck.reference.blocks import Table
from ropecheck.reference.timeline import laid
from ropecheck.spec import families as declared
from ropecheck.spec.families import FAMILIES
from ropecheck.spec.families.declaration import MediaFamily
from ropecheck.spec.families.rules import FOUR_AXES
from ropecheck.spec.history import History, Run
from ropecheck.spec.views import AXES

PLAIN = ("name", "source", "axes", "kinds")
"""Fields of a declaration that the page says in words of its own."""
WIDEST = 24
"""Columns of a table that is drawn whole."""


def pages(book: Book) -> Iterator[Page]:
    """The index, then every family."""
    entries = [(name, f"families/{name}.html", family.source) for name, family in FAMILIES.items()]
    lead = (
        "A model family says how many placeholder tokens a picture, a clip or a sound has, and where they sit. Text "
        "between them, the delta and everything behind the prompt are the same in all families. Not covered: "
        + "; ".join(f"{name} ({why})" for name, why in NOT_COVERED.items())
        + "."
    )
    yield index(book, "families", "Model families", lead, entries)
    for family in FAMILIES.values():
        yield page(book, family)


def page(book: Book, family: MediaFamily) -> Page:
    """One family."""
    path = f"families/{family.name}.html"
    module = module_of(family)
    doc = inspect.getdoc(importlib.import_module(module)) or ""
    numbers = [
        (one.name.replace("_", " "), getattr(family, one.name))
        for one in declared_fields(family)
        if one.name not in PLAIN
    ]
    body = rendered(
        "family.html.jinja",
        book,
        path,
        family=family,
        doc=doc,
        numbers=numbers,
        targets=[(NAMES[target], offered(family.name, target)) for target in TARGETS],
        drawn=[drawn(family, case) for case in cases(family.name)],
        differences=[one for one in book.differences if family.name in one.families],
        rules=[rule for rule in book.rules.values() if rule.topic == "families" and _speaks_of(rule.id, family.name)],
        code=source.of_module(module),
        block=block,
    )
    return Page(path=path, title=family.name, body=body, says=doc.partition("\n")[0], words=family.source)


def _speaks_of(rule: str, family: str) -> bool:
    """A rule of one family alone has its name in its id."""
    middle = rule.split(".")[1:-1]
    return not middle or middle[0] == family


def declared_fields(family: object) -> tuple[Field[object], ...]:
    """The fields of a declaration."""
    return fields(family) if is_dataclass(family) else ()


def module_of(family: MediaFamily) -> str:
    """The module that declares a family."""
    for found in pkgutil.iter_modules(declared.__path__, f"{declared.__name__}."):
        module = importlib.import_module(found.name)
        text = inspect.getsource(module)
        if any(value is family and f"\n{name} = " in text for name, value in vars(module).items()):
            return found.name
    raise LookupError(family.name)


def cases(family: str) -> list[Case]:
    """The first chosen prompt with a picture, with a clip, with a sound, with a track, that may be drawn whole."""
    found: dict[str, Case] = {}
    for case in chosen(family):
        if case.torn or len(case.prompts) != 1 or case.builder != "rope_index":
            continue
        if not 4 <= expected(case).tables[0].shape[1] <= WIDEST:
            continue
        for segment in case.prompts[0]:
            if segment.kind != "text" and case not in found.values():
                found.setdefault(segment.kind, case)
    return list(found.values())


def drawn(family: MediaFamily, case: Case) -> tuple[str, str, int, Markup, list[Markup]]:
    """(name, the prompt in words, delta, its table, its items token by token)."""
    right = expected(case)
    table = right.tables[0]
    names = FOUR_AXES if len(table) == len(FOUR_AXES) else AXES
    rows = dict(zip(names, (tuple(row.tolist()) for row in table), strict=False))
    name = case.name.partition(": ")[2] or case.name
    shown = figures.tables(figures.DrawnTable(rows=rows), None, caption="the prompt table")
    return name, described(case), right.deltas[0], shown, grids(family, case.laid[0].history, table)


def grids(family: MediaFamily, history: History, table: Table) -> list[Markup]:
    """The pictures and frames of a history drawn; "" where an item is no grid of tokens."""
    found = []
    for run, start, stop in laid(family.name, history):
        columns = tuple(map(tuple, table[:, start:stop].T.tolist()))
        if lines := lines_of(run, columns):
            item = figures.Grid(
                name=f"{run.kind} at {start}", first=start, frames=frames_of(run, family), lines=lines, columns=columns
            )
            found.append(figures.grid(item))
    return [one for one in found if one]


def frames_of(run: Run, family: MediaFamily) -> int:
    """Temporal steps of tokens."""
    assert run.grid is not None
    merge = getattr(family, "temporal_merge", 1) if run.kind == "video" else 1
    return run.grid[0] // merge


def lines_of(run: Run, columns: tuple[tuple[int, ...], ...]) -> int:
    """Lines of tokens in one frame; 0 for what is no picture, or brings tokens of another kind with it."""
    if run.grid is None or run.kind not in ("image", "video") or run.tokens:
        return 0
    frames = max(run.grid[0], 1)
    frame = columns[: len(columns) // frames] if len(columns) % frames == 0 else columns
    return len({column[-2] for column in frame})

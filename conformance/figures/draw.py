"""The templates' environment: everything is escaped unless a template wrote it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

FOLDER = Path(__file__).parent / "templates"


@cache
def environment(*folders: Path) -> Environment:
    """Templates of `folders`, and those of the drawings, which they may import by their file names."""
    return Environment(
        loader=FileSystemLoader([str(folder) for folder in (*folders, FOLDER)]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def rendered(template: str, **values: object) -> Markup:
    """One of the drawings' own templates, filled in."""
    return Markup(environment().get_template(template).render(values))


def stylesheet() -> Markup:
    """The drawings' style, for a page's `<style>`. A page sets --ink, --paper, --line and --wrong, or takes ours."""
    return Markup((FOLDER / "figures.css").read_text("utf-8"))


def stretches(numbers: Iterable[int], dash: str = "..", comma: str = ", ") -> str:
    """Whole numbers with those in a row together: 3, 5..8."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return comma.join(str(first) if first == last else f"{first}{dash}{last}" for first, last in runs)

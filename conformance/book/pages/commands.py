"""The command line: every verb with its options, as `--help` has them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import typer

import ropecheck
from ropecheck.conformance.book.contents import Book
from ropecheck.conformance.book.pages.parts import rendered
from ropecheck.conformance.book.site import Page


class Option(msgspec.Struct, frozen=True):
    """An option or an argument. names: "--out", or the argument's metavar."""

    names: str
    says: str
    default: str


class Verb(msgspec.Struct, frozen=True):
    """One command. name: the whole of it, "known add"."""

    name: str
    says: str
    arguments: tuple[str, ...]
    options: tuple[Option, ...]


def pages(book: Book, command: Any) -> Iterator[Page]:
    """The one page, from the whole tree of commands."""
    shown = list(verbs(command))
    path = "commands.html"
    body = rendered("commands.html.jinja", book, path, verbs=shown)
    words = " ".join(f"{verb.name} {' '.join(option.names for option in verb.options)}" for verb in shown)
    yield Page(path=path, title="Command line", body=body, says="Every verb and its options.", words=words)


def _place(default: object) -> str:
    """A default in words: a place inside the suite without the machine's own path to it."""
    return str(default).removeprefix(f"{Path(ropecheck.__file__).parent}/")


def verbs(command: Any, name: str = "") -> Iterator[Verb]:
    """The leaves of a tree of commands, in its order."""
    if children := getattr(command, "commands", None):
        for child, one in children.items():
            yield from verbs(one, f"{name} {child}".strip())
        return
    arguments, options = [], []
    for one in command.params:
        if one.name == "help":
            continue
        if one.param_type_name == "argument":
            shown = (
                one.make_metavar(typer.Context(command)) if callable(getattr(one, "make_metavar", None)) else one.name
            )
            arguments.append(shown)
            options.append(Option(shown, getattr(one, "help", "") or "", ""))
        else:
            default = "" if one.default in (None, "", False) or callable(one.default) else _place(one.default)
            options.append(Option(", ".join([*one.opts, *one.secondary_opts]), getattr(one, "help", "") or "", default))
    yield Verb(name, " ".join((command.help or "").split()), tuple(arguments), tuple(options))

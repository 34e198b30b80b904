"""The public Python surface: every name that others may import, its signature and its docstring."""

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from typing import Any

import msgspec
from markupsafe import Markup

from ropecheck.conformance.book import source
from ropecheck.conformance.book.contents import Book
from ropecheck.conformance.book.pages.parts import index, rendered
from ropecheck.conformance.book.pages.rules import field_docs
from ropecheck.conformance.book.site import Page
from ropecheck.conformance.book.words import python

MODULES = (
    "ropecheck.conformance.adopt",
    "ropecheck.spec.history",
    "ropecheck.spec.modes",
    "ropecheck.spec.modes.declaration",
    "ropecheck.spec.rules",
    "ropecheck.spec.views",
    "ropecheck.spec.families",
    "ropecheck.spec.families.declaration",
    "ropecheck.adapters.batch",
    "ropecheck.adapters.protocol",
    "ropecheck.adapters.events",
    "ropecheck.conformance.scenario.operations",
    "ropecheck.conformance.scenario.words",
    "ropecheck.conformance.figures",
)
"""What an adapter, a mode file, an adopter or a page may import. Everything else may change without a word."""


class Name(msgspec.Struct, frozen=True):
    """One public name. fields: of a class, with what stands under each."""

    name: str
    signature: Markup
    doc: str
    fields: tuple[tuple[str, str, str], ...]


def pages(book: Book) -> Iterator[Page]:
    """The index, then every module."""
    entries = [(name, f"api/{name}.html", first(name)) for name in MODULES]
    lead = "What an adapter, a mode file or an adopter may import. Everything else may change without a word."
    yield index(book, "api", "Python API", lead, entries)
    for name in MODULES:
        path = f"api/{name}.html"
        names = public(name)
        doc = inspect.getdoc(importlib.import_module(name)) or ""
        body = rendered("api.html.jinja", book, path, module=name, doc=doc, names=names)
        yield Page(path=path, title=name, body=body, says=first(name), words=" ".join(one.name for one in names))


def first(module: str) -> str:
    """The first sentence of a module's docstring."""
    return " ".join((inspect.getdoc(importlib.import_module(module)) or "").partition("\n\n")[0].split())


def public(module: str) -> list[Name]:
    """What the module makes public: `__all__`, else what it defines without a leading underscore, in its order."""
    loaded = importlib.import_module(module)
    tree = ast.parse(inspect.getsource(loaded))
    constants = dict(_constants(tree))
    order = [*(getattr(one, "name", "") for one in tree.body), *constants]
    named = getattr(loaded, "__all__", None) or [name for name in order if name and not name.startswith("_")]
    found = []
    for name in dict.fromkeys(named):
        value = getattr(loaded, name)
        if inspect.isclass(value) and name not in constants:
            found.append(_class(name, value))
        elif inspect.isfunction(value):
            signature = python(f"def {name}{_signature(value)}")
            found.append(Name(name, signature, inspect.getdoc(value) or "", ()))
        elif constants.get(name):
            found.append(Name(name, python(name), constants[name], ()))
    return found


def _class(name: str, value: type[Any]) -> Name:
    said = field_docs(value)
    hints = inspect.get_annotations(value)
    fields = [
        (field, str(hint).replace("ropecheck.", ""), said.get(field, ""))
        for field, hint in hints.items()
        if not field.startswith("_")
    ]
    methods = [
        (f"{field}{_signature(member)}", "", " ".join((inspect.getdoc(member) or "").split()))
        for field, member in vars(value).items()
        if inspect.isfunction(member) and not field.startswith("_")
    ]
    properties = [
        (field, "property", said.get(field, ""))
        for field, member in vars(value).items()
        if isinstance(member, property)
    ]
    bases = [base.__name__ for base in value.__bases__ if base is not object]
    shown = python(f"class {name}" + (f"({', '.join(bases)})" if bases else ""))
    return Name(name, shown, _own_doc(value), tuple(fields + properties + methods))


def _own_doc(value: Any) -> str:
    """A class's docstring, without those that dataclasses make up."""
    try:
        node = ast.parse(source.of(value).code).body[0]
    except LookupError:
        return inspect.getdoc(value) or ""
    return (ast.get_docstring(node) or "") if isinstance(node, ast.ClassDef) else inspect.getdoc(value) or ""


def _signature(member: Any) -> str:
    shown = str(inspect.signature(member)).replace("(self, ", "(").replace("(self)", "()")
    return re.sub(r"(: |-> )'([^']*)'", r"\1\2", shown)  # annotations are strings there


def _constants(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Names that are given a value, and the strings under them."""
    for one, after in zip(tree.body, [*tree.body[1:], None], strict=True):
        targets = one.targets if isinstance(one, ast.Assign) else [one.target] if isinstance(one, ast.AnnAssign) else []
        doc = ""
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and isinstance(after.value.value, str):
            doc = inspect.cleandoc(after.value.value)
        for target in targets:
            if isinstance(target, ast.Name):
                yield target.id, doc

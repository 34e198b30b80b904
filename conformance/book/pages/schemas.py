"""Reference pages of the file formats, from their JSON schemas."""

import inspect
import json
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

import msgspec

from ropecheck.conformance.book.contents import Book
from ropecheck.conformance.book.formats import FORMATS, file_of
from ropecheck.conformance.book.pages.parts import index, rendered
from ropecheck.conformance.book.pages.rules import field_docs
from ropecheck.conformance.book.site import Page


class Property(msgspec.Struct, frozen=True):
    """One field of an object. kind: its type in words; of: the object that it holds, "" for plain values."""

    name: str
    kind: str
    of: str
    required: bool
    default: str
    says: str


class SchemaObject(msgspec.Struct, frozen=True):
    """One object of a schema."""

    name: str
    says: str
    properties: tuple[Property, ...]
    choices: tuple[str, ...]


def pages(book: Book) -> Iterator[Page]:
    """The index, then every format."""
    lead = "What the suite reads and writes, as JSON Schema. Each names itself by its $id."
    yield index(
        book,
        "schemas",
        "File formats",
        lead,
        [(name, f"schemas/{name}.html", one.says) for name, one in FORMATS.items()],
    )
    for name, one in FORMATS.items():
        yield page(book, name, one.says)


def files() -> dict[str, bytes]:
    """The schemas themselves."""
    return {f"schemas/{name}.schema.json": file_of(name).read_bytes() for name in FORMATS}


def page(book: Book, name: str, says: str) -> Page:
    """One format."""
    path = f"schemas/{name}.html"
    schema = json.loads(file_of(name).read_text("utf-8"))
    shown = objects(schema, FORMATS[name].homes)
    body = rendered("schema.html.jinja", book, path, name=name, says=says, schema=schema, objects=shown)
    return Page(path=path, title=f"{name} format", body=body, says=says, words=" ".join(one.name for one in shown))


def objects(schema: dict[str, Any], homes: Sequence[ModuleType]) -> list[SchemaObject]:
    """The root, if it is an object of its own, then every definition, with what its type says of each field."""
    found = []
    if "properties" in schema:
        found.append(_shown(schema.get("title", "the file"), schema, homes))
    return [*found, *(_shown(name, one, homes) for name, one in schema.get("$defs", {}).items())]


def _shown(name: str, schema: dict[str, Any], homes: Sequence[ModuleType]) -> SchemaObject:
    required = set(schema.get("required", ()))
    kinds = [vars(home)[name] for home in homes if inspect.isclass(vars(home).get(name))]
    says = field_docs(kinds[0]) if kinds else {}
    properties = tuple(
        Property(
            name=key,
            kind=kind(one),
            of=reference(one),
            required=key in required,
            default=json.dumps(one["default"]) if "default" in one else "",
            says=says.get(key, ""),
        )
        for key, one in schema.get("properties", {}).items()
    )
    choices = tuple(map(str, schema.get("enum", ()))) + tuple(
        reference(one) or kind(one) for one in schema.get("anyOf", ())
    )
    return SchemaObject(name, " ".join(schema.get("description", "").split()), properties, choices)


def kind(schema: dict[str, Any]) -> str:
    """A type in words."""
    if "const" in schema:
        return json.dumps(schema["const"])
    if "enum" in schema:
        return " or ".join(json.dumps(value) for value in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(kind(one) for one in schema["anyOf"]))
    if "$ref" in schema:
        return reference(schema)
    if schema.get("type") == "array":
        inner = schema.get("items") or {}
        words = (
            "list" if "prefixItems" not in schema else "(" + ", ".join(kind(one) for one in schema["prefixItems"]) + ")"
        )
        return f"{words} of {kind(inner)}" if inner else words
    if isinstance(schema.get("additionalProperties"), dict):
        return f"object of {kind(schema['additionalProperties'])}"
    found = schema.get("type", "anything")
    return found if isinstance(found, str) else " or ".join(found)


def reference(schema: Any) -> str:
    """The definition that a field holds, however deep; "" for plain values."""
    if isinstance(schema, dict):
        if "$ref" in schema:
            return str(schema["$ref"]).rpartition("/")[2]
        for value in schema.values():
            if found := reference(value):
                return found
    if isinstance(schema, list):
        return next((found for one in schema if (found := reference(one))), "")
    return ""

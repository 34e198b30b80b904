"""Source of the specification for its pages: a function as it stands in its file, with the helpers that it calls."""

import ast
import importlib
import inspect
import sys
import textwrap
from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any

import msgspec

MOST = 6
"""Helpers shown under a rule."""


class SourcePiece(msgspec.Struct, frozen=True):
    """A piece of source. place: "spec/column_rules.py:210"."""

    name: str
    place: str
    code: str


@cache
def of(thing: Any) -> SourcePiece:
    """A function or class, decorators and all. Raises LookupError for one that no file states."""
    module = sys.modules[thing.__module__]
    text, nodes = _parsed(module)
    found: ast.AST | None = None
    for part in thing.__qualname__.split("."):
        found = next((one for one in nodes if getattr(one, "name", "") == part), None)
        nodes = getattr(found, "body", [])
    if not isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        raise LookupError(f"{thing.__module__}.{thing.__qualname__}")
    first = min([found.lineno, *(one.lineno for one in found.decorator_list)])
    code = "\n".join(text.splitlines()[first - 1 : found.end_lineno]) + "\n"
    path = module.__name__.removeprefix("ropecheck.").replace(".", "/") + ".py"
    return SourcePiece(thing.__name__, f"{path}:{first}", textwrap.dedent(code))


@cache
def _parsed(module: ModuleType) -> tuple[str, list[ast.stmt]]:
    text = inspect.getsource(module)
    return text, ast.parse(text).body


@cache
def of_module(name: str) -> SourcePiece:
    """A whole module."""
    module = importlib.import_module(name)
    return SourcePiece(name, name.removeprefix("ropecheck.").replace(".", "/") + ".py", inspect.getsource(module))


def with_helpers(function: Callable[..., Any]) -> list[SourcePiece]:
    """The function, then the specification's own functions that it calls, outer ones first."""
    found: dict[str, SourcePiece] = {}
    waiting = [function]
    while waiting and len(found) <= MOST:
        one = waiting.pop(0)
        key = f"{one.__module__}:{one.__qualname__}"
        if key in found:
            continue
        found[key] = of(one)
        waiting += _called(one)
    return list(found.values())


def _called(function: Callable[..., Any]) -> list[Callable[..., Any]]:
    """The specification's functions that are named in the body, in order."""
    module = inspect.getmodule(function)
    names = [node.id for node in ast.walk(ast.parse(of(function).code)) if isinstance(node, ast.Name)]
    values = [getattr(module, name, None) for name in dict.fromkeys(names)]
    return [
        value
        for value in values
        if inspect.isfunction(value)
        and value.__module__.startswith("ropecheck.spec")
        and value is not function
        and value.__module__ != "ropecheck.spec.rules"
    ]

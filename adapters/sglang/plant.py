"""One edit of one engine function, in memory: how the suite's strength against the real engine is measured.

| spec field | adapter field | engine field |
| --- | --- | --- |
| fault | Plant.module, .function | the function's code object, compiled anew from its edited source |
| kind, number | Plant.edit, .nth | the n-th place in the function where such an edit can be made |

Nothing is faked here. The engine's files stay as they are, and no text of them is kept: an edit is told by its place.
"""

from __future__ import annotations

import ast
import gc
import importlib
import inspect
import re
import types
from collections.abc import Callable, Iterator
from typing import Any

from ropecheck.adapters.sglang import spoil

Place = tuple[str, Callable[[], None], str]
"""Kind of edit, what makes it in the tree, and a word on it."""

_OPPOSITE: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
}
_SPEAKS = re.compile("position|delta|lens|offset|start")
_OTHER_CALL = {"max": "min", "min": "max", "amax": "amin", "extend": "append"}


def places(function: ast.AST) -> Iterator[Place]:
    """Every edit that can be made in a function, in the order of its source."""
    for node in ast.walk(function):
        yield from _of_operators(node)
        yield from _of_constants(node)
        yield from _of_flow(node)
        yield from _of_values(node)


def _of_operators(node: ast.AST) -> Iterator[Place]:
    if isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in _OPPOSITE:
        yield "sign", _setter(node, "op", _OPPOSITE[type(node.op)]()), f"line {node.lineno}"
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _OPPOSITE:
        yield "bound", _setter(node, "ops", [_OPPOSITE[type(node.ops[0])](), *node.ops[1:]]), f"line {node.lineno}"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _OTHER_CALL:
        yield "call", _setter(node.func, "attr", _OTHER_CALL[node.func.attr]), f"line {node.lineno}"


def _of_constants(node: ast.AST) -> Iterator[Place]:
    if isinstance(node, ast.Constant) and type(node.value) is int and abs(node.value) < 100:
        yield "number", _setter(node, "value", node.value + 1), f"line {node.lineno}"


def _of_flow(node: ast.AST) -> Iterator[Place]:
    if isinstance(node, ast.If | ast.IfExp):
        yield "condition", _setter(node, "test", ast.UnaryOp(ast.Not(), node.test)), f"line {node.lineno}"
    for field in ("body", "orelse"):
        block = getattr(node, field, None)
        if not isinstance(block, list):
            continue
        for number, line in enumerate(block):
            stored = isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Attribute | ast.Subscript)
            called = isinstance(line, ast.Expr) and isinstance(line.value, ast.Call)
            if stored or called:
                yield "lost line", _dropper(block, number), f"line {line.lineno}"


def _of_values(node: ast.AST) -> Iterator[Place]:
    """Values whose names speak of places, what loops go over, and the names that a choice is made by."""
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name | ast.Attribute):
        target = node.targets[0]
        if _SPEAKS.search(target.id if isinstance(target, ast.Name) else target.attr):
            for kind in spoil.VALUES:
                yield kind, _setter(node, "value", _spoilt("value", kind, node.value)), f"line {node.lineno}"
    if isinstance(node, ast.Return) and node.value is not None:
        for kind in spoil.VALUES:
            yield kind, _setter(node, "value", _spoilt("value", kind, node.value)), f"line {node.lineno}"
    if isinstance(node, ast.For):
        yield "first alone", _setter(node, "iter", _spoilt("first", None, node.iter)), f"line {node.lineno}"
    for name in ast.walk(node) if isinstance(node, ast.Compare) else ():
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            yield "another name", _setter(name, "value", name.value + "?"), f"line {name.lineno}"


def _spoilt(function: str, kind: str | None, value: ast.expr) -> ast.Call:
    """A call of `spoil`, with names that no engine has."""
    text = f"__import__({spoil.__name__!r}, fromlist=['_']).{function}({'' if kind is None else repr(kind)})"
    call = ast.parse(text, mode="eval").body
    assert isinstance(call, ast.Call)
    call.args.append(value)
    return call


def _setter(node: ast.AST, field: str, value: Any) -> Callable[[], None]:
    return lambda: setattr(node, field, value)


def _dropper(block: list[Any], number: int) -> Callable[[], None]:
    def drop() -> None:
        block[number] = ast.copy_location(ast.Pass(), block[number])

    return drop


def tree_of(module: types.ModuleType) -> ast.Module:
    """The module's source, parsed."""
    return ast.parse(inspect.getsource(module))


def function_in(tree: ast.Module, name: str) -> ast.AST:
    """The definition of "Class.method" or "function". Raises LookupError."""
    body: list[ast.stmt] = tree.body
    found: ast.AST | None = None
    for part in name.split("."):
        kinds = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        found = next((node for node in body if isinstance(node, kinds) and node.name == part), None)
        if found is None:
            raise LookupError(name)
        body = getattr(found, "body", [])
    assert found is not None
    return found


def count(module: str, function: str) -> dict[str, int]:
    """Kind of edit -> places for it. Empty where this release has no such function."""
    try:
        node = function_in(tree_of(importlib.import_module(module)), function)
    except (ImportError, LookupError, OSError):
        return {}
    found: dict[str, int] = {}
    for kind, _, _ in places(node):
        found[kind] = found.get(kind, 0) + 1
    return found


_HELD: list[tuple[Any, types.CodeType]] = []


def restore() -> None:
    """The engine as it was."""
    while _HELD:
        function, code = _HELD.pop()
        function.__code__ = code


def plant(module: str, function: str, edit: str, nth: int) -> str:
    """Make the edit; returns where. Raises LookupError for a place that is not there."""
    restore()
    owner = importlib.import_module(module)
    tree = tree_of(owner)
    same = [place for place in places(function_in(tree, function)) if place[0] == edit]
    if nth >= len(same):
        raise LookupError(f"{module}:{function} has {len(same)} places for {edit!r}")
    _, make, where = same[nth]
    make()
    target = _target(owner, function)
    kept = [ast.parse(name).body[0] for name in target.__code__.co_freevars]  # of the last `super()`, when it is lost
    getattr(function_in(tree, function), "body")[:0] = kept  # noqa: B009 - not every node has one
    code = _code_in(compile(ast.fix_missing_locations(tree), owner.__file__ or module, "exec"), function)
    _HELD.append((target, target.__code__))
    target.__code__ = code
    return where


def _code_in(code: types.CodeType, name: str) -> types.CodeType:
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            if inner.co_qualname == name:
                return inner
            if name.startswith(f"{inner.co_qualname}."):
                return _code_in(inner, name)
    raise LookupError(name)


def _target(owner: Any, name: str) -> Any:
    """The function object whose code runs."""
    found = owner
    for part in name.split("."):
        found = inspect.getattr_static(found, part)
    if isinstance(found, staticmethod | classmethod):
        found = found.__func__
    while hasattr(found, "__wrapped__"):
        found = found.__wrapped__
    if not isinstance(found, types.FunctionType):  # a property, or what a decorator made of it
        held = [one for one in gc.get_referents(found) if getattr(one, "__qualname__", "") == name]
        found = held[0] if held else found
    if not isinstance(found, types.FunctionType):
        raise LookupError(f"{name} is a {type(found).__name__}")
    return found

"""Functions of a batch, by their source: is each row's part of the answer made from that row alone?

Where it is, what holds for two rows holds for any number. Only one shape is accepted; all else is Unanswered:

    out = []
    for row, (a, b) in enumerate(zip(as_, bs, strict=True)):    or enumerate(as_), zip(as_, bs), as_ alone
        ...                                                     no other use of a per-row parameter than cs[row], and
                                                                of `row` than as a label: Cell(request=row)
    if tier: ...                                                a parameter that is 0 unless given
    return tuple(out)

What a loop carries from one row to the next is for loops.py.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

from ropecheck.spec.modes.cells import Cell

from ropecheck.conformance.prove.explorer import Unanswered
from ropecheck.conformance.prove.loops import definition, statements_of

Function = Callable[..., Any]


def check(function: Function) -> None:
    """Raises Unanswered where the answer for one row may depend on other rows, on their number, or on its own."""
    made = definition(function)
    space = inspect.unwrap(function).__globals__
    arguments = [*made.args.posonlyargs, *made.args.args, *made.args.kwonlyargs]
    plain = {one.arg for one in arguments if one.annotation and ast.unparse(one.annotation) == "int"}
    per_row = {one.arg for one in arguments} - plain
    first, *rest = statements_of(made)
    out = _list_made(first)
    if not out or not rest or ast.unparse(rest[-1]) != f"return tuple({out})":
        raise _unlike(function, first, "it does not fill one list from the start and return it")
    loops = 0
    for statement in rest[:-1]:
        if isinstance(statement, ast.For):
            loops += 1
            _check_loop(function, space, statement, per_row)
        elif not (isinstance(statement, ast.If) and _off(statement.test, made) and not statement.orelse):
            raise _unlike(function, statement, "a statement outside of the loops over rows")
    if not loops or made.args.vararg or made.args.kwarg:
        raise _unlike(function, made, "no loop over rows")


def check_iterated(function: Function, parameter: str) -> None:
    """Raises Unanswered where a function uses its parameter for more than one loop over all of its elements."""
    made = definition(function)
    uses = [node for node in ast.walk(made) if isinstance(node, ast.Name) and node.id == parameter]
    loops = [node for node in made.body if isinstance(node, ast.For) and node.iter in uses]
    if len(uses) != 1 or len(loops) != 1:
        raise _unlike(function, made, f"{parameter} is not only looped over")


def _check_loop(function: Function, space: dict[str, Any], loop: ast.For, per_row: set[str]) -> None:
    row, numbered = _row_of(function, loop, per_row)
    allowed: set[ast.AST] = set()
    for node in (inner for statement in loop.body for inner in ast.walk(statement)):
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and isinstance(node.slice, ast.Name):
            if numbered and node.value.id in per_row and node.slice.id == row:
                allowed |= {node.value, node.slice}
        elif isinstance(node, ast.Call):
            allowed |= _labels(node, row, space, ())
        if isinstance(node, ast.Name) and node.id in {*per_row, row} and node not in allowed:
            what = "its row number for more than a label" if node.id == row else f"{node.id} beyond its own row"
            raise _unlike(function, node, f"a loop over rows that uses {what}")
    if loop.orelse:
        raise _unlike(function, loop, "a loop with an else")


def _row_of(function: Function, loop: ast.For, per_row: set[str]) -> tuple[str, bool]:
    """(name of the row's number or "", whether rows are numbered from 0) of a loop over every row of the batch."""
    over = loop.iter
    row, numbered = "", False
    if isinstance(over, ast.Call) and ast.unparse(over.func) == "enumerate" and len(over.args) == 1:
        starts = [ast.unparse(keyword) for keyword in over.keywords]
        if starts and starts not in [[f"start=len({name})"] for name in per_row]:
            raise _unlike(function, loop, "rows numbered from elsewhere")
        if not (isinstance(loop.target, ast.Tuple) and isinstance(loop.target.elts[0], ast.Name)):
            raise _unlike(function, loop, "a loop over numbered rows without a name for the number")
        row, numbered, over = loop.target.elts[0].id, not starts, over.args[0]
    sources = [over]
    if isinstance(over, ast.Call) and ast.unparse(over.func) == "zip":
        options = [keyword for keyword in over.keywords if ast.unparse(keyword) != "strict=True"]
        sources = [over] if options else over.args
    if not all(isinstance(source, ast.Name) and source.id in per_row for source in sources):
        raise _unlike(function, loop, "a loop over something else than all rows")
    return row, numbered


def _labels(call: ast.Call, row: str, space: dict[str, Any], seen: tuple[Function, ...]) -> set[ast.AST]:
    """Uses of the name `row` in a call's arguments that do no more than label a cell, there or further down."""
    own = [(place, one) for place, one in enumerate(call.args) if isinstance(one, ast.Name) and one.id == row]
    named = [(one.arg, one.value) for one in call.keywords if isinstance(one.value, ast.Name) and one.value.id == row]
    if not (own or named) or any(isinstance(one, ast.Starred) for one in call.args):
        return set()
    called = _resolved(call.func, space)
    if called is Cell:
        return {value for name, value in named if name == "request"}
    if not isinstance(called, FunctionType) or not called.__module__.startswith("ropecheck.spec.") or called in seen:
        return set()
    made = definition(called)
    names = [one.arg for one in (*made.args.posonlyargs, *made.args.args)]
    pairs = [(names[place], value) for place, value in own if place < len(names)] + named
    return {value for name, value in pairs if name and _only_labels(called, made, name, (*seen, called))}


def _only_labels(function: FunctionType, made: ast.FunctionDef, name: str, seen: tuple[Function, ...]) -> bool:
    """Whether a function uses its parameter only to label cells."""
    inside = [node for statement in made.body for node in ast.walk(statement)]
    calls = [node for node in inside if isinstance(node, ast.Call)]
    allowed = {label for call in calls for label in _labels(call, name, function.__globals__, seen)}
    return all(node in allowed for node in inside if isinstance(node, ast.Name) and node.id == name)


def _resolved(func: ast.expr, space: dict[str, Any]) -> Any:
    """What `name` or `module.name` is in a module."""
    if isinstance(func, ast.Name):
        return space.get(func.id)
    if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name):
        module = space.get(func.value.id)
        return vars(module).get(func.attr) if isinstance(module, ModuleType) else None
    return None


def _list_made(statement: ast.stmt) -> str:
    """`name` in `name = []`."""
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    value = getattr(statement, "value", None)
    empty = isinstance(value, ast.List) and not value.elts
    return targets[0].id if empty and len(targets) == 1 and isinstance(targets[0], ast.Name) else ""


def _off(test: ast.expr, made: ast.FunctionDef) -> bool:
    """Whether the test is a parameter that is 0 unless it is given."""
    options = made.args.args[len(made.args.args) - len(made.args.defaults) :]
    zeros = [one.arg for one, value in zip(options, made.args.defaults, strict=True) if ast.unparse(value) == "0"]
    return isinstance(test, ast.Name) and test.id in zeros


def _unlike(function: Function, where: ast.AST, why: str) -> Unanswered:
    code = inspect.unwrap(function).__code__
    line = code.co_firstlineno + getattr(where, "lineno", 1) - 1
    return Unanswered(f"{code.co_filename.rpartition('/')[2]}:{line} {code.co_name}: {why}")
